"""What a store of entries can do, and the outcomes it answers with.

Owns the protocol that ``engine/`` uses. Knows bytes, files, locks and history; nothing of GPUs,
compilers or terminals.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from gpucache.model import BuildRequest, CacheKey, Entry, EntryDetail, EntryHead
from gpucache.outcomes import Kept, Noted
from gpucache.store.layout import ENTRY_SUFFIX


class Damage(StrEnum):
    """How the bytes of an entry fail their format."""

    TRUNCATED = "truncated"
    CORRUPT = "corrupt"
    MISPLACED = "misplaced"
    UNTRUSTED = "untrusted"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Found:
    """A sound entry: header and payload checksums match and the key is the one asked for."""

    key: CacheKey
    head: EntryHead
    payload: bytes
    root: Path


@dataclass(frozen=True, slots=True)
class Absent:
    """No entry; ``reason`` says why where it is more than not being there (unreadable root, I/O error)."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Damaged:
    """An entry was there and is not sound. ``quarantined`` where it could be moved out of the way."""

    damage: Damage
    detail: str
    quarantined: bool


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What tells whether a file is still the one that was read."""

    inode: int
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class ScannedEntry:
    """One file below ``entries/`` as a scan sees it; ``head`` is None if ``damage`` says why."""

    folder: Path
    name: str
    identity: FileIdentity
    allocated_bytes: int
    last_used_ns: int
    head: EntryHead | None
    damage: Damage | None = None
    damage_detail: str = ""
    unread: bool = False
    """Whether a failing disk, server or limit hid it: nothing can be said of it, and it is left alone."""

    @property
    def path(self) -> Path:
        """Where it lies; put together when it is asked for, as of a hundred thousand few are."""
        return self.folder / self.name

    @property
    def key(self) -> CacheKey:
        """Whose entry it is by its name."""
        return CacheKey(self.name.removesuffix(ENTRY_SUFFIX))


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that belongs to no entry: what a killed writer left in ``tmp/``, or a stray file."""

    path: Path
    size_bytes: int
    age_ns: int
    detail: str


UNREADABLE = "entries that cannot be read"
"""The history of what was quarantined without a head to say of which program it was."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a program's history."""

    when_ns: int
    what: str
    """``built``, ``evicted``, ``quarantined``, ``poisoned``; ``named`` says under which name to look."""
    key: str
    target: str
    why: str = ""
    source: str = ""
    """Of a build: the first digits of its source's SHA-256."""
    limit_s: float = 0.0
    """Of a poisoning by a time limit: that limit in seconds; else 0."""
    program: str = field(default="", compare=False)
    """The program in whose history it stands. Set when it is read; ``record`` takes the name by itself."""


@dataclass(frozen=True, slots=True)
class RefusedRoot:
    """A system root that is not asked."""

    root: Path
    problem: str
    """What is wrong, to be read after the root's name."""
    remedy: str

    def __str__(self) -> str:
        return f"the system root {self.root} was not asked, as {self.problem}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class MissedRequest:
    """A request that missed and whose program was built without us, kept to be built later."""

    key: CacheKey
    """The portable key that was looked for."""
    when_ns: int
    command: str
    """The program that asked."""
    request: BuildRequest
    environment: tuple[tuple[str, str], ...] = ()
    """The variables that were set and reach the compiler."""
    rejected: bool = False
    """Whether the driver rejected the entry that answered: one of a system root answers again and again."""


class Store(Protocol):
    """Entries by key. Implementations: a directory, and memory."""

    def get(self, key: CacheKey) -> Found | Absent | Damaged:
        """The entry of a key, fully checked. Never raises for what lies on disk."""
        ...

    def publish(self, entry: Entry) -> int:
        """Put an entry in place atomically; its size in bytes. Raises OSError, CacheUnusableError."""
        ...


class EntryStore(Store, Protocol):
    """A store on disk, with what the verbs need beyond a hit."""

    @property
    def root(self) -> Path:
        """The directory the cache lives in."""
        ...

    @property
    def writable(self) -> bool:
        """Whether publishing, removing and recording may be tried."""
        ...

    def detail(self, key: CacheKey) -> EntryDetail | None:
        """The detail of an entry; None if there is none or it is not sound."""
        ...

    def contains(self, key: CacheKey) -> bool:
        """Whether a file for this key exists, unread."""
        ...

    def look_at(self, key: CacheKey) -> ScannedEntry | None:
        """The entry of one key as a scan sees it; None if there is none."""
        ...

    def find(self, prefix: str) -> list[CacheKey]:
        """Keys that begin with a hex prefix of two or more digits, without a full scan."""
        ...

    def scan(self) -> Iterator[ScannedEntry]:
        """Every file below ``entries/``, one by one, heads only, constant memory."""
        ...

    def leftovers(self, now_ns: int) -> Iterator[Leftover]:
        """What belongs to no entry."""
        ...

    def remove(self, scanned: ScannedEntry, why: str) -> Kept | None:
        """Remove an entry if unchanged since the scan, recording it; whether it was removed."""
        ...

    def quarantine(self, scanned: ScannedEntry, why: str) -> bool:
        """Move an entry to ``quarantine/`` if unchanged since the scan, recording it."""
        ...

    def remove_leftover(self, leftover: Leftover) -> bool:
        """Remove a leftover; whether it was removed."""
        ...

    def note_missed(self, missed: MissedRequest) -> Noted:
        """Keep a request to be built later; losing it is no error."""
        ...

    def missed(self) -> list[MissedRequest]:
        """The requests that are kept, the oldest first."""
        ...

    def forget_missed(self, key: CacheKey) -> None:
        """Remove the request of a key."""
        ...

    def build_missed(self) -> AbstractContextManager[bool]:
        """Be the one process that builds what missed; yields False if there is another."""
        ...

    def single_flight(self, key: CacheKey, timeout_s: float) -> AbstractContextManager[bool]:
        """Hold this key's lock while compiling; yields False when it was not to be had in time."""
        ...

    def recall(self, name: str) -> bytes | None:
        """What was kept under a name, unharmed; None if nothing is."""
        ...

    def remember(self, name: str, data: bytes) -> None:
        """Keep something under a name; losing it is no error."""
        ...

    def record(self, program: str, event: Event) -> None:
        """Append to a program's history; losing it is no error."""
        ...

    def history(self, program: str) -> list[Event]:
        """A program's history, oldest first; empty if there is none."""
        ...

    def programs(self) -> list[str]:
        """Names of programs that have a history, sorted, for completion."""
        ...

    def journal(self, record: Mapping[str, object]) -> None:
        """Append one line to the journal; losing it is no error."""
        ...

    def journal_tail(self, count: int) -> list[dict[str, object]]:
        """The last lines of the journal, newest first."""
        ...
