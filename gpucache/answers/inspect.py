"""What inspect says of caches, and of what is written to them."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, TypedDict

from gpucache.answers.entries import CacheEntry, Location
from gpucache.answers.told import Instant, told


class AdviceKind(StrEnum):
    """What the keys of a program can suffer from."""

    IDENTICAL = "identical"
    RESTLESS = "restless"
    GROWTH = "growth"
    UNREAD = "unread"


@told("kind program target detail fields entries")
class Advice(NamedTuple):
    """What the keys of a program suffer from."""

    kind: AdviceKind
    """What it is."""
    program: str
    """The program's name."""
    target: str
    """The target."""
    detail: str
    """A sentence."""
    fields: tuple[str, ...] = ()
    """The key fields it is about."""
    keys: tuple[str, ...] = ()

    @property
    def entries(self) -> int:
        """How many entries it is about."""
        return len(self.keys)


@told("entry.* root when_ns writers before_bytes")
class Written(NamedTuple):
    """An entry that was just written; with --watch each is a line of its own."""

    entry: CacheEntry
    root: str
    """Where its cache lies."""
    when_ns: Instant
    """When that was seen, in UTC."""
    writers: tuple[tuple[str, str], ...] = ()
    """Who still had it open for writing: commands by process."""
    before_bytes: int | None = None
    """The size of an entry that grew, before; null if it is new."""


class Stale(NamedTuple):
    """What of a cache no program of this machine reads again and ``evict --stale`` removes."""

    entries: int = 0
    """Entries that nobody here reads again, which evict --stale removes; null where that was not asked."""
    size_bytes: int = 0
    """Their bytes."""
    why: tuple[str, ...] = ()
    """Why nobody does, a clause each."""


@told(
    "cache=location.cache root=location.root decided_by=location.decided_by enabled=location.enabled "
    "limit_bytes=location.limit_bytes problems=location.problems entries size_bytes files programs damaged "
    "role=location.role findings stale_entries=stale.entries stale_bytes=stale.size_bytes stale_why "
    "beside_bytes"
)
class CacheState(NamedTuple):
    """A cache and its place."""

    location: Location
    entries: int
    """Entries in it."""
    size_bytes: int
    """Bytes on disk."""
    files: int
    """Files of entries."""
    programs: int
    """Programs that the entries are of."""
    damaged: int
    """Entries that cannot be read."""
    oldest_used_ns: int | None = None
    findings: tuple[str, ...] = ()
    """What a scan sees wrong, a sentence each."""
    stale: Stale | None = None
    """None where that was not asked."""
    beside_bytes: int = 0
    """Of our own cache: what records and leftovers take beside the entries."""

    @property
    def stale_why(self) -> tuple[str, ...]:
        """Why nobody does, a clause each."""
        return self.stale.why if self.stale else ()


class RecordedDifference(TypedDict):
    """A key field that differs, as it was written down."""

    label: str
    """The key field."""
    left: str | None
    """Its value in the nearest entry."""
    right: str | None
    """Its value in the program that missed."""


class RecordedMiss(TypedDict):
    """A miss as it was written down."""

    kind: str
    """Always miss."""
    when_ns: int
    """When, in nanoseconds since 1970."""
    program: str
    """The program's name."""
    target: str
    """The target."""
    key: str
    """The cache key that was not found."""
    verdict: str
    """Why it was not found."""
    detail: str
    """The verdict as a sentence."""
    differences: list[RecordedDifference]
    """What differs from the nearest entry; at most 8."""
    command: str
    """The program that asked."""
    pid: int
    """Its process."""
    noted: bool
    """Whether it was left for warm --misses."""


class RecordedProcess(TypedDict):
    """What a process counted."""

    kind: str
    """Always process."""
    when_ns: int
    """When it ended, in nanoseconds since 1970."""
    command: str
    """The program."""
    pid: int
    """Its process."""
    hits: int
    """What it found."""
    misses: int
    """What it did not find."""


@told("state.* advice misses processes")
class Ours(NamedTuple):
    """Our own cache, and what is worth knowing of it."""

    state: CacheState
    advice: Iterable[Advice]
    """What its keys suffer from."""
    misses: Sequence[RecordedMiss]
    """The last misses, newest first."""
    processes: Sequence[RecordedProcess]
    """What the last processes counted, newest first."""


@told("ours.* caches total_bytes total_stale_bytes unread")
class Overview(NamedTuple):
    """Our own cache, and those of others at a glance."""

    ours: Ours
    caches: Sequence[CacheState]
    """The caches of others."""
    total_bytes: int
    """Bytes of all of these."""
    total_stale_bytes: int
    """Those of them that nobody here reads again."""
    unread: tuple[str, ...] = ()
    """Why not all of the caches could be read, a sentence each; exit 5."""


class CachesSummary(NamedTuple):
    """The caches that were named."""

    caches: Sequence[CacheState]
    """The caches that were named."""
    unread: tuple[str, ...] = ()
    """Why not all of the caches could be read, a sentence each; exit 5."""


@told("ours.* caches unread")
class OursAmongCaches(NamedTuple):
    """The caches that were named, and ours among them."""

    ours: Ours
    caches: Sequence[CacheState]
    """The other caches that were named."""
    unread: tuple[str, ...] = ()
    """Why not all of the caches could be read, a sentence each; exit 5."""


@told("entries size_bytes unread")
class Listed:
    """How many entries were listed; counted as they pass."""

    entries: int = 0
    """How many there are."""
    size_bytes: int = 0
    """What they take together."""
    unread: tuple[str, ...] = ()
    """Why not all of the caches could be read, a sentence each; exit 5."""

    def count(self, entry: CacheEntry) -> None:
        """Count an entry."""
        self.entries += 1
        self.size_bytes += entry.size_bytes


@told("count=number")
class MissesSummary(NamedTuple):
    """How many misses are on record."""

    number: int
    """How many there are."""


class Extracted(NamedTuple):
    """The file that an entry's bytes were written to."""

    file: str
    """The file."""
    size_bytes: int
    """Its size."""
