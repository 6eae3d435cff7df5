"""What a store of entries can do, and the outcomes it returns.

Owns the protocol that ``engine/`` uses. Knows bytes, files, locks and history; must not know GPUs, compilers
or terminals.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gpucache.model import BuildRequest, CacheKey, Entry, EntryDetail, EntryHead
from gpucache.store.answers import Absent as Absent
from gpucache.store.answers import Damage as Damage
from gpucache.store.answers import Damaged as Damaged
from gpucache.store.answers import Found as Found
from gpucache.store.layout import ENTRY_SUFFIX

if TYPE_CHECKING:
    from gpucache.answers.evict import Kept
    from gpucache.answers.lookup import Noted


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


class Store(Protocol):
    """Entries by key. Implementations: a directory, and memory."""

    def get(self, key: CacheKey) -> Found | Absent | Damaged:
        """The entry of a key, fully verified. Raises nothing, whatever is on disk."""
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
        """The detail of an entry; None if there is no sound entry."""
        ...

    def seal(self, key: CacheKey) -> tuple[bytes, EntryHead] | None:
        """The checksum of an entry's description, with its head; None if that is not sound."""
        ...

    def answers(self, name: str) -> bytes | None:
        """A file of the index, by the 16 hex digits of its question; None if there is none."""
        ...

    def keep_answers(self, name: str, data: bytes) -> None:
        """Put a file of the index in place; losing it is no error."""
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

    def scan(self, *, heads: bool = True) -> Iterator[ScannedEntry]:
        """Every file below ``entries/``, one by one, heads only or not even those, constant memory."""
        ...

    def scan_whole(self, share: Share = ALL) -> Iterator[tuple[ScannedEntry, Entry | None]]:
        """The same, with all of each entry that is sound, every byte of it checked."""
        ...

    def leftovers(self, now_ns: int) -> Iterator[Leftover]:
        """Files that belong to no entry."""
        ...

    def remove(self, scanned: ScannedEntry, why: str) -> "Kept | None":
        """Remove an entry if it is unchanged since the scan, and record that; why it stays, or None."""
        ...

    def remove_together(
        self, going: Iterable[ScannedEntry], why: str, *, everything: bool = False
    ) -> "Iterator[Kept | None]":
        """What ``remove`` does, of one entry after the other; ``everything`` where that is all of them."""
        ...

    def quarantine(self, scanned: ScannedEntry, why: str) -> bool:
        """Move an entry to ``quarantine/`` if unchanged since the scan, and record that; whether it moved."""
        ...

    def remove_leftover(self, leftover: Leftover) -> bool:
        """Remove a leftover; whether it was removed."""
        ...

    def note_missed(self, missed: MissedRequest) -> "Noted":
        """Keep a request to be built later; losing it is no error."""
        ...

    def missed(self) -> list[MissedRequest]:
        """The requests that were kept, the oldest first."""
        ...

    def missed_count(self) -> int:
        """How many requests are kept, without reading them."""
        ...

    def forget_missed(self, key: CacheKey) -> None:
        """Remove the request of a key."""
        ...

    def build_missed(self) -> AbstractContextManager[bool]:
        """Be the one process that builds what missed; yields False if another one does."""
        ...

    def single_flight(self, key: CacheKey, timeout_s: float) -> AbstractContextManager[bool]:
        """Hold this key's lock while compiling; yields False if it could not be had in time."""
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
        """A program's events, oldest first."""
        ...

    def removed_record(self, program: str) -> RemovedRecord | None:
        """When a program's history was last removed; None if it never was."""
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
