"""What a store of entries takes and returns: frozen values.

Knows bytes, files and history; must not know GPUs, compilers or terminals.
"""

from pathlib import Path
from typing import NamedTuple

from gpucache.model import BuildRequest, CacheKey, EntryHead
from gpucache.store.answers import Absent as Absent
from gpucache.store.answers import Damage as Damage
from gpucache.store.answers import Damaged as Damaged
from gpucache.store.answers import Found as Found
from gpucache.store.layout import ENTRY_SUFFIX

Share = tuple[int, int]
"""The number of a share of the entries, from 0 on, and how many shares there are."""
ALL: Share = (0, 1)


class FileIdentity(NamedTuple):
    """Equal as long as a file is still the one that was read."""

    inode: int
    size_bytes: int
    mtime_ns: int


class ScannedEntry(NamedTuple):
    """One file below ``entries/`` as a scan sees it; ``head`` is None if it is damaged."""

    folder: Path
    name: str
    identity: FileIdentity
    allocated_bytes: int
    head: EntryHead | None
    damage: Damage | None = None
    damage_detail: str = ""
    unread: bool = False
    """Whether a failing disk, server or limit kept it from being read: it may be sound, and is left alone."""

    @property
    def path(self) -> Path:
        """Where it lies; made on demand, as a scan of 100,000 entries needs few paths."""
        return self.folder / self.name

    @property
    def key(self) -> CacheKey:
        """The key that its name says."""
        return CacheKey(self.name.removesuffix(ENTRY_SUFFIX))


class Leftover(NamedTuple):
    """A file that belongs to no entry: what a killed writer left in ``tmp/``, or a stray file."""

    path: Path
    size_bytes: int
    age_ns: int
    detail: str


UNREADABLE = "entries that cannot be read"
"""The name of the history for quarantined entries whose head does not say which program they are."""


class Event(NamedTuple):
    """One line of a program's history."""

    when_ns: int
    what: str
    """``built``, ``evicted``, ``quarantined``, ``poisoned``; ``named`` says under which name to look."""
    key: str
    target: str
    why: str = ""
    source: str = ""
    """For a build: the first digits of its source's SHA-256."""
    options: tuple[str, ...] | None = None
    """For a build: its canonical build options; None if they are not known."""
    limit_s: float = 0.0
    """For a poisoning by a time limit: that limit in seconds; else 0."""
    program: str = ""
    """The program whose history it is in. Set when it is read; ``record`` takes the name as an argument."""


class RemovedRecord(NamedTuple):
    """A program's history was removed."""

    when_ns: int
    why: str = ""
    """The rule that evicted everything of it along; empty where only the history went."""
    named: bool = True
    """False where it is only known that the histories of some programs were removed until then."""


class RefusedRoot(NamedTuple):
    """A system root that is not asked."""

    root: Path
    problem: str
    """What is wrong, to be read after the root's name."""
    remedy: str

    def __str__(self) -> str:
        return f"the system root {self.root} was not asked, as {self.problem}; {self.remedy}"


class MissedRequest(NamedTuple):
    """A request that missed and whose program was built without the cache, kept to be built later."""

    key: CacheKey
    """The portable key that was looked for."""
    when_ns: int
    command: str
    """The program that asked."""
    request: BuildRequest
    environment: tuple[tuple[str, str], ...] = ()
    """The variables that were set and reach the compiler."""
    rejected: bool = False
    """Whether the driver rejected the entry that was found. One in a system root is found again each time."""
