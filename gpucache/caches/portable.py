"""Entries on their way to another machine: the files of one entry, whichever system keeps it.

Owns the portable form, its bounds, and the facts that decide whether a program elsewhere hits the entry. The
form has no path of the machine in the places that a format rewrites, so the digest of an entry is the same
after a move. Must not know where entries go or who signs them.
"""

import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from gpucache.errors import FormatError
from gpucache.model import CacheKey, EntryHead

MOST_FILES = 20_000
MOST_BYTES = 4 << 30
OWN_MODE = 0o600
"""The mode of our own entries in their portable form; each root sets its own."""
_AHEAD, _AHEAD_BYTES = 64, 64 << 20
"""How many entries are written into a cache at once, and the most bytes of all but one of them."""
_LONGEST_NAME = 1024
_DEEPEST = 16
_PLAIN_PART = "[A-Za-z0-9_-][A-Za-z0-9._-]*"
_PLAIN_NAME = re.compile(rf"(?:{_PLAIN_PART}/){{0,{_DEEPEST - 1}}}{_PLAIN_PART}")


class ImmovableError(FormatError):
    """A sound entry that cannot move, unlike others of its system; the message says why."""


class Fact(StrEnum):
    """The facts that must agree on two machines, so that a program on one hits an entry from the other."""

    ARCHITECTURE = "architecture"
    """The GPU's architecture as a target has it, such as ``sm_90``, or the name of an OpenCL device."""
    DRIVER = "driver"
    VERSION = "version"
    """The version of the owner, such as Triton's."""
    CPU = "CPU"
    FEATURE = "CPU feature"
    """A feature that the CPU must have, as Linux writes it."""
    PYTHON = "Python"
    PATH = "install path"
    """The directory that the owner's package is in, such as ``/usr/lib/python3``, if its entries are only hit
    from there."""
    PLACE = "cache path"
    """Where the cache is, if its entries are only hit there."""
    PTX = "PTX for"
    """The architecture of a PTX, such as ``compute_80``: drivers take it for this one and later ones."""


class PortableFile(NamedTuple):
    """A file of an entry."""

    name: str
    """Its path below the root of the cache, with slashes."""
    data: bytes
    mode: int
    """The permissions of the file, which are all that moves of its mode."""


class PortableEntry(NamedTuple):
    """An entry, checked and ready to move."""

    system: str
    key: str
    files: tuple[PortableFile, ...]
    """In the order in which their owner publishes them: the file that is read first comes last."""
    facts: tuple[tuple[str, str], ...] = ()
    """The recorded facts that must be the same elsewhere: labels of ``Fact``, or of the system."""
    program: str = ""
    target: str = ""
    kind: str = ""
    compile_ns: int | None = None
    made_ns: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(len(one.data) for one in self.files)


class Moving(NamedTuple):
    """How the entries of a system move."""

    why_not: str = ""
    """Why no entry of the system moves: a clause with the alternative; empty if they move."""
    tells: str = ""
    """The facts that its entries reveal of the machine and the programs that made them, such as "source
    text"; empty if they reveal nothing."""
    sources: bool = False
    """Whether entries contain source text, which is sent only if requested."""
    note: str = ""
    """Which entries stay, or are hit in one case alone: a sentence for people; empty if all are alike."""
    untold: tuple[str, ...] = ()
    """Further facts that decide about a hit, but that no entry records."""


class Restored(NamedTuple):
    """The outcome of restoring an entry."""

    done: bool
    present: bool = False
    """Whether the cache had a sound entry, so that nothing was written."""
    reason: str = ""
    """Why it was not written: a clause with the remedy; empty if it was written or exists."""
    damaged: bool = False
    """Whether the reason is the entry itself."""
    failed: bool = False
    """Whether the reason is that the cache cannot be written."""


Start = Callable[[PortableEntry], Callable[[], Restored]]
"""Begins to restore an entry, and returns the function that ends it."""


def restored_ahead(start: Start, entries: Iterable[PortableEntry]) -> Iterator[Restored]:
    """The outcomes of entries, in their order: some more are begun before one ends, as their files take time
    to the disk. These end also if there is an error instead of a further one."""
    under_way: deque[tuple[int, Callable[[], Restored]]] = deque()
    total, stopped = 0, None
    try:
        for entry in entries:
            size = entry.size_bytes
            while under_way and (len(under_way) == _AHEAD or total + size > _AHEAD_BYTES):
                ended, end = under_way.popleft()
                total -= ended
                yield end()
            under_way.append((size, start(entry)))
            total += size
    except Exception as error:
        stopped = error
    for _, end in under_way:
        yield end()
    if stopped:
        raise stopped


def of_own(key: CacheKey, head: EntryHead, data: bytes) -> PortableEntry:
    """The portable form of an entry of our own from the bytes of its file, which the caller has verified."""
    return PortableEntry(
        "gpucache",
        key.hex,
        (PortableFile(own_name(key), data, OWN_MODE),),
        head.toolchain,
        head.program,
        head.target,
        head.artifact_kind,
        head.compile_ns,
        head.created_ns,
    )


def own_name(key: CacheKey) -> str:
    """The name of the one file of an entry of our own."""
    from gpucache.store.layout import entry_folder, entry_name  # other systems' caches do without our store

    return "/".join((*entry_folder(key), entry_name(key)))


def portable_name(name: str) -> str:
    """A file's name as it is on its way, where colons are written otherwise; raises FormatError."""
    return require_name(name.replace("%", "%25").replace(":", "%3A"))


def name_here(name: str) -> str:
    """The name of a file on this system, from its portable name; raises FormatError if it cannot have it."""
    found = name.replace("%3A", ":").replace("%25", "%")
    if ":" in found and sys.platform == "win32":
        raise FormatError(f"{name[:80]!r} is not a name of a file on Windows")
    return found


def require_name(name: str) -> str:
    """A file's name that stays below the root on every system; raises FormatError for any other."""
    if len(name) <= _LONGEST_NAME and _PLAIN_NAME.fullmatch(name):
        return name
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") for part in parts) and name.isprintable()
    if not plain or len(name.encode()) > _LONGEST_NAME or len(parts) > _DEEPEST or set(name) & set(":\\"):
        raise FormatError(f"{name[:80]!r} is not a name of a file below a cache")
    return name
