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
"""Paths with the properties that change when the file or directory does."""


class Closure(NamedTuple):
    """Every header the compiler could read for a program.

    Equal closures mean equal content reached in the same way, wherever the files are.
    """

    includes: tuple[Include, ...] = ()
    resolution: str = ""
    """Digest of which include resolved to which content; distinguishes equal sets reached differently."""
    uncacheable: str | None = None
    """Why no key can be made, with the remedy; None if one can."""
    files: tuple[str, ...] = ()
    """The paths of the headers found; for traces and watching, never part of a key."""
    stamps: "Stamps | None" = ()
    """Each file and, ending in a slash, each searched directory with its device, inode, size, ctime, mtime:
    they show whether one was different for a while. None if they were not taken. Never part of a key."""
    asked: Sequence[Asked] | None = ()
    """All questions asked of the disk, in order; None if an answer is an error that may pass.
    Never part of a key."""
    tells_places: bool = False
    """Whether a constant may have been made of the path of a header, as by ``sizeof(__FILE__)``: such a
    constant cannot be found in the artifact."""
    tells_name: bool = False
    """The same for the name of the source, as far as its compiler does not make that up for each build."""
    renames: bool = False
    """Whether a text may have a name that is relative to the current directory, by a ``#line``."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Closure) and self[:3] == other[:3]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:3])
