"""The interface of every cache, whichever program keeps it, and of every system that keeps caches.

Owns the two protocols that inspect, verify and evict work on: a ``System`` knows the places of its caches, a
``Cache`` is one opened cache. Nothing found in a cache is ever loaded, unpickled or executed; a removal that
could break the owner is refused. Must not know how results are displayed.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from gpucache.answers.entries import CacheEntry, EntryReport, Location
from gpucache.answers.verify import Checked
from gpucache.caches.portable import Moving, PortableEntry, Restored
from gpucache.model import Artifact, BuildRequest, Toolchain

if TYPE_CHECKING:
    from gpucache.answers.evict import Kept
    from gpucache.answers.why import Reach
    from gpucache.store.directory import DirectoryStore

Wanted = Mapping[str, tuple[bytes, ...]]
"""The question of an explanation: values by field name, in the order given; all of them raw bytes."""


class Cache(Protocol):
    """One cache on disk. A cache that does not exist yet has no entries and raises nothing.

    A third-party cache raises only UsageError and FormatError: ``unread`` reports all other failures.
    """

    @property
    def name(self) -> str:
        """The name that people and ``--cache`` use for its system."""
        ...

    def location(self) -> Location:
        """The place of the cache, the reason for it, and the problems of the place. Raises nothing."""
        ...

    def scan(self, *, beside: bool = False) -> Iterator[CacheEntry]:
        """Every entry, one by one, in constant memory; damaged ones are marked. With ``beside``, the next
        call of ``leftovers`` may report the state that this scan saw on its way, to save a second walk."""
        ...

    def find(self, prefix: str) -> list[CacheEntry]:
        """Entries whose key begins with some hex digits."""
        ...

    def unread(self) -> Sequence[str]:
        """Why parts could not be read or changed so far, a sentence each."""
        ...

    def report(self, entry: CacheEntry) -> EntryReport:
        """Everything that the entry stores about itself; raises FormatError if it cannot be parsed."""
        ...

    def extract(self, entry: CacheEntry) -> bytes:
        """The compiled bytes of an entry, fully checked; raises FormatError if it is not sound."""
        ...

    def check(self, entry: CacheEntry) -> Checked:
        """An entry checked whole, leaving its last use alone."""
        ...

    def leftovers(self) -> Iterator[Checked]:
        """Problems of everything that is not an entry, and of the cache as a whole."""
        ...

    def remove(self, entry: CacheEntry, why: str) -> "Kept | None":
        """Remove an entry by its owner's rules and locks if unchanged since the scan; None once removed."""
        ...

    def finish_removals(self) -> Sequence[str]:
        """Apply the owner's rules after removals (totals, empty directories): sentences that report it."""
        ...

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:
        """Repair the problems of an entry; returns the fixed findings, marked as repaired.

        Called after all entries were checked, so it may move other entries; a second call for the same repair
        (several findings of one group) finds it already done.
        """
        ...

    def explain(self, wanted: Wanted) -> "Iterator[Reach]":
        """Whether the cache would serve a build, and if not why.

        Raises UsageError for a field that this system lacks, naming its fields.
        """
        ...


@runtime_checkable
class RemovesTogether(Protocol):
    """A cache in which something costs more than a removal, so that several share one: an owner's lock."""

    @property
    def together(self) -> int:
        """The maximum number of removals that share one lock or commit."""
        ...

    def remove_together(self, entries: Iterable[CacheEntry], why: str) -> "Iterable[Kept | None]":
        """Remove several entries like ``remove``: the outcome of each, in their order."""
        ...


@runtime_checkable
class Strips(Protocol):
    """A cache of a system whose entries may have more than the binary that programs load."""

    @property
    def strips(self) -> bool:
        """Whether its system has such entries."""
        ...

    def strip(self, entry: CacheEntry) -> "Kept | None":
        """Remove the ``spare_bytes`` of a sound entry unchanged since the scan; None once removed."""
        ...


@runtime_checkable
class Moves(Protocol):
    """A cache whose entries can be taken to another machine."""

    @property
    def moving(self) -> Moving:
        """How they move, or why they do not."""
        ...

    def pack(self, entry: CacheEntry) -> PortableEntry:
        """An entry in its portable form, read whole and checked.

        Raises FormatError if it is not sound, if it changed meanwhile, or if this one cannot move.
        """
        ...

    def facts_here(self) -> Mapping[str, frozenset[str]]:
        """What is known of the programs that use this cache: values by label of ``portable.Fact``."""
        ...

    def having(self, keys: Container[str]) -> Callable[[str, Collection[str]], bool]:
        """Whether sound entries of some keys are there: a function of a key and the portable names of all
        files that the entry must have. The cache is walked once. Raises nothing of the system.
        """
        ...

    def restore(self, entries: Iterable[PortableEntry]) -> Iterator[Restored]:
        """Write entries as their owner would have, each unless a sound one is there; one outcome for each.

        They come from elsewhere: nothing of them is believed but their bounds. What a killed process left of
        earlier ones is removed.
        """
        ...


@runtime_checkable
class Rescanned(Protocol):
    """A cache that can be scanned while its entries are removed, so that callers need not store them all."""

    def entries(self, *, heads: bool = True) -> Iterable[CacheEntry]:
        """Every entry; each call is a separate ``scan``, and without ``heads`` it reads only as much of an
        entry as its removal needs."""
        ...


@runtime_checkable
class ChecksAll(Protocol):
    """A cache that reads each entry once to show and to check it."""

    def checked(self, share: tuple[int, int] = (0, 1)) -> Iterator[tuple[CacheEntry, Checked]]:
        """Every entry as in ``scan``, with the result of ``check``; of several shares only one, given by its
        number from 0 on and the number of shares."""
        ...


@runtime_checkable
class OwnRoot(Cache, Protocol):
    """A root of our own cache: its entries store how they were built, and its store has other records."""

    @property
    def store(self) -> "DirectoryStore":
        """The store of its entries and records."""
        ...

    def artifact(self, entry: CacheEntry) -> Artifact:
        """The artifact of an entry, fully checked; raises FormatError if it is not sound."""
        ...

    def beside_bytes(self) -> int:
        """The disk space of everything besides the entries."""
        ...

    def sweep(self, max_size_bytes: int | None, why: str = "") -> str:
        """Remove leftovers of killed processes and, for a limit, the oldest records; a sentence, or nothing.

        ``why`` is the rule that removed all entries before, if one did: then all records are removed.
        """
        ...


class Isolation(NamedTuple):
    """How to make a program use a private cache: environment variables, or why that is impossible."""

    environment: tuple[tuple[str, str], ...] = ()
    lacking: str = ""
    """The parts that cannot be redirected, as a sentence; empty if everything can."""
    turn_on: tuple[tuple[str, str], ...] = ()
    """Variables that turn its programs' caching on, if it is off in their environment."""


class System(Protocol):
    """A kind of cache."""

    @property
    def name(self) -> str:
        """The name that people and ``--cache`` use for it."""
        ...

    @property
    def title(self) -> str:
        """A short description."""
        ...

    @property
    def nowhere(self) -> str:
        """Why an environment can lack a place for its caches, and the remedy; a clause."""
        ...

    @property
    def wanted(self) -> Mapping[str, str]:
        """The fields that ``explain`` accepts, each with its meaning."""
        ...

    def locations(self, environ: Mapping[str, str]) -> Sequence[Location]:
        """The places where its programs look in an environment, in order, existing or not. Raises nothing."""
        ...

    def recognises(self, path: Path) -> bool:
        """Whether a file or directory looks like one of its caches. Raises nothing."""
        ...

    def open(self, location: Location) -> Cache:
        """The cache at a location; raises CacheUnusableError if it cannot be opened at all."""
        ...

    def isolation(self, folder: Path) -> Isolation:
        """The environment that moves its programs' cache below a directory."""
        ...

    @property
    def tracing(self) -> Mapping[str, str]:
        """The environment variables that make its programs log hits and misses; empty for none."""
        ...

    @property
    def driver(self) -> bool:
        """Whether a driver owns its caches, below every program and all other caches."""
        ...

    @property
    def below(self) -> Mapping[str, str]:
        """By the implementation of a toolchain whose programs pass this cache on their way to the compiler:
        why they do not use it, or an empty text if they do."""
        ...

    def question(self, request: BuildRequest, toolchain: Toolchain) -> Wanted:
        """The question for ``explain`` that shows whether the cache would serve a build."""
        ...
