"""The include closure of a program, as a value: every header that its compiler could read.

Must not know how it is found, which is the job of ``gpucache.sources``.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Include(NamedTuple):
    """A header of the closure: its name as spelled, and its SHA-256, None if it resolved nowhere."""

    name: str
    digest: str | None


Asked = tuple[str, str, str]
"""A question to the disk, the path that it is about, and the answer."""
Stamps = tuple[tuple[str, tuple[int, ...]], ...]
"""Paths with what changes when the file or folder does."""


class Closure(NamedTuple):
    """Every header the compiler could read for a program.

    Equal closures mean equal content reached in the same way, wherever the files lie.
    """

    includes: tuple[Include, ...] = ()
    resolution: str = ""
    """Digest of which include led to which content; tells apart equal sets reached differently."""
    uncacheable: str | None = None
    """Why no key can be made, with the remedy; None if one can."""
    files: tuple[str, ...] = ()
    """Where the headers were found; for traces and watching, never part of a key."""
    stamps: "Stamps | None" = ()
    """Each file and, ending in a slash, each searched folder with its device, inode, size, ctime and mtime:
    what tells that one was another for a while. None where they were not taken. Never part of a key."""
    asked: Sequence[Asked] | None = ()
    """All that was asked of the disk, in that order; None where an answer is an error that may pass.
    Never part of a key."""
    tells_places: bool = False
    """Whether a constant may have been made of where a header lies, as by ``sizeof(__FILE__)``: of such a
    constant nothing can be found in the artifact."""
    tells_name: bool = False
    """The same of what the source is called, as far as its compiler does not make that up for each build."""
    renames: bool = False
    """Whether a text may have a name that is relative to the current directory, by a ``#line``."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Closure) and self[:3] == other[:3]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:3])
