"""The values that a store of entries takes and returns, frozen.

Knows bytes, files and history; must not know GPUs, compilers or terminals.
"""

from pathlib import Path
from typing import NamedTuple

from gpucache.model import BuildRequest, CacheKey, EntryHead, FindingKind, Problem
from gpucache.store.layout import ENTRY_SUFFIX

REMOTE = "remote"
"""The word for the root of an entry that came from a store on another machine."""


class Found(NamedTuple):
    """A sound entry: header and payload checksums match, and the key is the requested one."""

    key: CacheKey
    head: EntryHead
    payload: bytes
    root: Path
    log: str = ""
    """The compiler's log, of an entry that may be in no root."""


class Absent(NamedTuple):
    """The entry does not exist; ``reason`` is set if it could not be read, as with an unreadable root."""

    reason: str | None = None


class Damaged(NamedTuple):
    """The entry exists and is not sound; ``quarantined`` says whether it was moved out of the way."""

    damage: FindingKind
    detail: str
    quarantined: bool


Share = tuple[int, int]
"""The number of a share of the entries, from 0, and the number of shares."""
ALL: Share = (0, 1)


class FileIdentity(NamedTuple):
    """Identifies a file: equal as long as it is still the file that was read."""

    inode: int
    size_bytes: int
    mtime_ns: int


class ScannedEntry(NamedTuple):
    """A file below ``entries/`` as a scan sees it; ``head`` is None if it is damaged."""

    folder: Path
    name: str
    identity: FileIdentity
    allocated_bytes: int
    head: EntryHead | None
    damage: Problem | None = None
    """The damage; without a kind if a disk, server or limit prevented reading, so that it may be sound."""

    @property
    def path(self) -> Path:
        """The path of the file; built on demand, as a scan of 100,000 entries needs few paths."""
        return self.folder / self.name

    @property
    def key(self) -> CacheKey:
        return CacheKey(self.name.removesuffix(ENTRY_SUFFIX))


class Leftover(NamedTuple):
    """A file that belongs to no entry: left in ``tmp/`` by a killed writer, or a stray."""

    path: Path
    size_bytes: int
    age_ns: int
    detail: str


UNREADABLE = "entries that cannot be read"
"""The name of the history for quarantined entries whose head does not name their program."""


BUILT = "built"
MADE = (BUILT, "pulled")
"""The events of a new entry: compiled on this machine, or pulled from another."""
FAILED = "failed"
"""The event of a program that does not compile."""


class Event(NamedTuple):
    """One line of a program's history."""

    when_ns: int
    what: str
    """One of ``MADE``, ``FAILED``, ``evicted``, ``quarantined``, ``poisoned``; ``named`` is the name to look
    under."""
    key: str
    target: str
    why: str = ""
    source: str = ""
    """For a build, also one that failed: the first digits of its source's SHA-256."""
    options: tuple[str, ...] | None = None
    """For a build: its canonical build options; None if unknown."""
    limit_s: float = 0.0
    """For a poisoning by a time limit: that limit in seconds; otherwise 0."""
    program: str = ""
    """The program whose history this is in. Set when it is read; ``record`` takes the name as an argument."""


class RemovedRecord(NamedTuple):
    """A program's history was removed."""

    when_ns: int
    why: str = ""
    """The rule that also evicted all its entries; empty if only the history was removed."""
    named: bool = True
    """False if it is only known that the histories of some programs were removed by then."""


class RefusedRoot(NamedTuple):
    """A system root that is not used."""

    root: Path
    problem: str
    """The problem, worded to follow the root's name."""
    remedy: str

    def __str__(self) -> str:
        return f"the system root {self.root} is not used, as {self.problem}; {self.remedy}"


class MissedRequest(NamedTuple):
    """A request that missed and was built without the cache, kept to be built later."""

    key: CacheKey
    """The portable key of the lookup."""
    when_ns: int
    command: str
    request: BuildRequest
    environment: tuple[tuple[str, str], ...] = ()
    """The variables that were set and affect the compiler."""
    rejected: bool = False
    """Whether the driver rejected the entry that was found. In a system root it is found again each time."""
    question: tuple[str, ...] = ()
    """The fields of the request of a program below ``run``, without those of its process, and instead of its
    source PyOpenCL's mark; for the row that answers it once it is built."""
