"""The interface of every cache, whichever program keeps it.

Owns what inspect, verify and evict work on: an opened cache, whose optional methods do nothing here. Nothing
found in a cache is ever loaded, unpickled or executed; a removal that could break the owner is refused. Must
not know how results are displayed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpucache.answers.entries import CacheEntry, EntryReport, Location
from gpucache.answers.verify import Checked
from gpucache.caches.portable import Moving, PortableEntry, Restored
from gpucache.caches.stamps import Seen, Sound
from gpucache.errors import FormatError, UsageError
from gpucache.model import Artifact

if TYPE_CHECKING:
    from gpucache.answers.evict import Kept
    from gpucache.answers.why import Reach
    from gpucache.store.directory import DirectoryStore

Wanted = Mapping[str, tuple[bytes, ...]]
"""The question of an explanation: values by field name, in the order given; all of them raw bytes."""


class Cache(ABC):
    """One cache on disk; this one has no entries. A cache that does not exist yet raises nothing.

    A third-party cache raises only UsageError and FormatError: ``unread`` reports all other failures.
    """

    name: str
    together = 1
    """The most removals that can share a cost, such as taking the owner's lock."""
    strips = False
    """Whether its entries may have more than the binary that programs load."""
    moving = Moving("its entries cannot be taken one by one")
    """How its entries move to another machine, or why they cannot."""
    sound = Sound()
    """The entries that earlier processes found sound."""
    divides = False
    """Whether several processes can check shares of it at the same time."""

    @abstractmethod
    def location(self) -> Location:
        """The place of the cache, the reason for it, and the problems of the place. Raises nothing."""

    def scan(self, *, beside: bool = False) -> Iterator[CacheEntry]:
        """Every entry, one by one, in constant memory; damaged ones are marked. With ``beside``, the next
        call of ``leftovers`` may report the state that this scan saw on its way, to save a second walk."""
        return iter(())

    def entries(self, *, heads: bool = True) -> Iterable[CacheEntry]:
        """Every entry, to be walked several times, also while some are removed: as they are now, unless each
        walk is a separate ``scan``. Without ``heads`` they need only the facts for removing all of them."""
        return list(self.scan())

    def find(self, prefix: str) -> list[CacheEntry]:
        return [entry for entry in self.scan() if entry.key.startswith(prefix)]

    def unread(self) -> Sequence[str]:
        """Why parts could not be read or changed so far, a sentence each."""
        return ()

    @abstractmethod
    def report(self, entry: CacheEntry) -> EntryReport:
        """Everything that the entry stores about itself; raises FormatError if it cannot be parsed."""

    @abstractmethod
    def extract(self, entry: CacheEntry) -> bytes:
        """The compiled bytes of an entry, fully checked; raises FormatError if it is not sound."""

    @abstractmethod
    def check(self, entry: CacheEntry) -> Checked:
        """An entry checked whole, leaving its last use alone."""

    def count(self) -> int:
        """How many entries there are, from their names, if it ``divides``."""
        return 0

    def checked(self, share: tuple[int, int] = (0, 1)) -> Iterator[tuple[CacheEntry, Checked]]:
        """Every entry as in ``scan``, with the result of ``check``; if it ``divides``, of several shares only
        one, given by its number from 0 on and the number of shares."""
        return ((entry, self.check(entry)) for entry in self.scan(beside=True))

    def leftovers(self) -> Iterator[Checked]:
        """Problems of everything that is not an entry, and of the cache as a whole."""
        return iter(())

    @abstractmethod
    def remove(self, entry: CacheEntry, why: str) -> "Kept | None":
        """Remove an entry by its owner's rules and locks if unchanged since the scan; None once removed."""

    def remove_together(self, entries: Iterable[CacheEntry], why: str) -> "Iterable[Kept | None]":
        """Remove several entries like ``remove``: the outcome of each, in their order."""
        return (self.remove(entry, why) for entry in entries)

    def strip(self, entry: CacheEntry) -> "Kept | None":
        """Remove the ``spare_bytes`` of a sound entry unchanged since the scan; None once removed."""
        return None

    def finish_removals(self) -> Sequence[str]:
        """Apply the owner's rules after removals (totals, empty directories): sentences that report it."""
        return ()

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:
        """Repair the problems of an entry; returns the fixed findings, marked as repaired.

        Called after all entries were checked, so it may move other entries; a second call for the same repair
        (several findings of one group) finds it already done.
        """
        return checked

    def finish_repairs(self) -> Sequence[str]:
        """Make the repairs that ``repair`` noted, all together."""
        return ()

    def explain(self, wanted: Wanted) -> "Iterator[Reach]":
        """Whether the cache would serve a build, and if not why.

        Raises UsageError for a field that this system lacks, naming its fields.
        """
        raise UsageError(f"{self.name} is not asked for {', '.join(wanted)}")

    def pack(self, entry: CacheEntry) -> PortableEntry:
        """An entry in its portable form, read whole and checked.

        Raises FormatError if it is not sound, if it changed meanwhile, or if this one cannot move.
        """
        raise FormatError(self.moving.why_not)

    def facts_here(self) -> Mapping[str, frozenset[str]]:
        """The known facts of the programs that use this cache: values by label of ``portable.Fact``."""
        return {}

    def seen(self, entry: CacheEntry) -> Seen:
        """The files of an entry as the scan saw them; empty if that is not all that makes it."""
        return {}

    def seen_now(self, keys: Collection[str]) -> Iterator[tuple[str, Seen]]:
        """The files of the entries of some keys, as they are now, by key. Raises nothing."""
        return iter(())

    def having(self, keys: Collection[str]) -> Callable[[str, Collection[str]], bool]:
        """A test whether there is a sound entry with a key and all files of these portable names.

        The cache is walked once, and ``sound`` saves reading. Raises nothing of the system."""
        return lambda *_: False

    def restore(self, entries: Iterable[PortableEntry]) -> Iterator[Restored]:
        """Write entries as their owner would have, each unless a sound one exists; one outcome for each.

        They come from elsewhere: nothing of them is trusted but their bounds. The leftovers of a killed
        process of earlier ones is removed.
        """
        return (Restored(done=False, reason=self.moving.why_not) for _ in entries)


class OwnRoot(Cache):
    """A root of our own cache: its entries store how they were built, and it has histories and a journal."""

    store: "DirectoryStore"

    @abstractmethod
    def artifact(self, entry: CacheEntry) -> Artifact:
        """The artifact of an entry, fully checked; raises FormatError if it is not sound."""

    @abstractmethod
    def beside_bytes(self) -> int:
        """The disk space of everything besides the entries."""

    @abstractmethod
    def sweep(self, max_size_bytes: int | None, why: str = "") -> str:
        """Remove leftovers of killed processes and, for a limit, the oldest records; a sentence, or nothing.

        ``why`` is the rule that removed all entries before, if one did: then all records are removed.
        """


class Isolation(NamedTuple):
    """How to make a program use a private cache: environment variables, or why that is impossible."""

    environment: tuple[tuple[str, str], ...] = ()
    lacking: str = ""
    """The parts that cannot be redirected, as a sentence; empty if everything can."""
    turn_on: tuple[tuple[str, str], ...] = ()
    """Variables that turn its programs' caching on, if it is off in their environment."""
