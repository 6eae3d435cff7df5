"""The cache of libsycl as a format of the one engine.

An entry is a numbered place in a folder that four hashes lead to. What lies where is in ``naming``, which
files an entry has in ``slots``, what is wrong with one in ``checks``, and every change in ``removal`` and
``repair``, which keep to the owner's own locks.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Location, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach
from gpucache.caches.format import Clock, Format, Look
from gpucache.caches.interface import Wanted
from gpucache.caches.sycl import (
    checks,
    explaining,
    fields,
    locations,
    naming,
    non_entries,
    repair,
    signs,
    slots,
    tree,
)
from gpucache.caches.sycl.checks import Verdicts
from gpucache.caches.sycl.locations import Bounds, SyclPlaces
from gpucache.caches.sycl.removal import Removals
from gpucache.caches.sycl.slots import Slot
from gpucache.caches.sycl.tree import Listing, Views
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.folders import Folder

_NOT_OURS = frozenset({FindingKind.STALE, FindingKind.SUPERSEDED})
"""Kinds that others add to an entry, which no repair of its files takes away."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A numbered place with its files, as an ``Item`` of ``gpucache.caches.format``."""

    slot: Slot
    path: Path
    seen: Look
    """What a scan saw of it while its folder was open: thousands of copies may lie in one."""
    owned: bool = True
    """In a root that is one's own all is mended, and nothing in another's."""

    @property
    def key(self) -> str:
        """The hashes of its folders, and its number."""
        return self.slot.group.key(self.slot.stem)

    @property
    def size_bytes(self) -> int:
        """What its files take on disk."""
        return self.slot.allocated_bytes

    @property
    def written_ns(self) -> int:
        """When its binary was written."""
        made = self.slot.binary or self.slot.source
        return made.st_mtime_ns if made else 0


class Sycl(SyclPlaces, Format[Numbered]):
    """A folder that libsycl keeps its device binaries in."""

    item: ClassVar[type] = Numbered
    wanted = explaining.WANTED
    asks_itself = True
    leaves_to_owner = False

    def __init__(self, location: Location, clock: Clock) -> None:
        super().__init__(location, clock)
        self._foreign = signs.foreign(self.root)
        self._verdicts = Verdicts()
        self._views = Views()
        self._removals = Removals(locations.mend(location))
        self._repaired: set[tuple[str, ...]] = set()
        self._touched: set[tuple[str, ...]] = set()

    @classmethod
    def require(cls, root: Path) -> None:
        """Raise CacheUnusableError for a file, the home folder and the root of the machine."""
        if refusal := locations.refusal(root, os.environ):
            raise CacheUnusableError(refusal)

    @classmethod
    def opened(cls, location: Location) -> Location:
        """The same; raises CacheUnusableError for one that was named by hand and holds other things alone.

        Where programs will make their cache in such a place, it has no entries yet.
        """
        if location.bounds is not None:
            return location
        if foreign := signs.foreign(Path(location.root)):
            raise CacheUnusableError(foreign)
        return super().opened(location)

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether a folder holds entries under hashes, or is an empty one of the cache's name."""
        return signs.recognises(path)

    def limits(self) -> Iterator[str]:
        """Limits that what is stored shows to be wrong, where programs go by them here."""
        if self.location.bounds is not None:
            yield from non_entries.limits(self.location, Bounds(*self.location.bounds))

    def items(self, prefix: str) -> Iterator[Numbered]:
        """Every entry, with the first bytes of its files; of digits with ``-n`` behind number n alone."""
        digits, _, number = prefix.partition("-")
        if self._foreign:
            return
        for group in tree.walk(self.root):
            if isinstance(group, tree.Stray):
                if group.error is not None:
                    self.not_read(self.root.joinpath(*group.parts), group.error)
                continue
            if not group.hex.startswith(digits):
                continue
            for slot, path, seen in fields.scan_group(self.root, group):
                if not number or slot.stem == number:
                    yield Numbered(slot, path, seen)

    def look(self, item: Numbered) -> Look:
        """What the scan saw."""
        return item.seen

    def check(self, item: Numbered) -> Iterator[Problem]:
        """Both files whole, the four hashes, the binary's kind, and what keeps programs from it."""
        with self._found(item) as (folder, listing, slot):
            yield from checks.problems(folder, listing, slot, self._verdicts)

    def notes(self, item: Numbered) -> Iterator[str]:
        """What its files could not tell."""
        with self._found(item) as (folder, _, slot):
            yield from self._verdicts.of(folder, slot).notes

    def unsound(self, item: Numbered) -> Problem | None:
        """Whatever is wrong with its own files; where it lies does not matter."""
        with self._reading(item) as (folder, slot):
            problems = self._verdicts.of(folder, slot).problems
        return next((one for one in problems if one.kind is not None and one.kind.wrong), None)

    def payload(self, item: Numbered) -> bytes:
        """The binary."""
        with self._reading(item) as (folder, slot):
            return slots.payload_of(folder, slot)

    def report(self, item: Numbered, entry: CacheEntry) -> EntryReport:
        """The stored key, and what the binary is."""
        with self._reading(item) as (folder, slot):
            return fields.report(entry, folder, slot)

    def unchanged(self, item: Numbered) -> bool:
        """Its two files are the ones that were seen, wherever a removal moved them."""
        with self._found(item):
            return True

    def remove(self, item: Numbered) -> Kept | None:
        """Remove an entry under the locks of its folder, moving a later one into its place."""
        kept = self._removals.remove(self.root, item.slot)
        if kept is None:
            self._touched.add(item.slot.group.parts)
        return kept

    def finish_removals(self) -> Sequence[str]:
        """Remove folders that became empty, and correct the file of the size where there is one."""
        self._removals.finish(self.root)
        gone = sum(tree.remove_empty(self.root, parts) for parts in sorted(self._touched))
        touched, self._touched = bool(self._touched), set()
        told = [f"{gone} empty folders removed"] if gone else []
        if touched and non_entries.has_size(self.root):
            summed = non_entries.summed_bytes(self.root)
            told.append(non_entries.rewrite(self.root, summed, locations.mend(self.location)))
        return [sentence for sentence in told if sentence]

    def mend(self, item: Numbered, problems: Sequence[Problem]) -> Sequence[Problem]:
        """Mend the whole folder of an entry, once; raises CacheUnusableError."""
        if self._foreign or locations.unreadable(self.root):
            return ()
        repair.require_own(self.root)
        group = item.slot.group
        if group.parts not in self._repaired:
            repair.repair_group(self.root, group)
            self._repaired.add(group.parts)
        left = {problem.kind for problem in self.check(item)}
        return [one for one in problems if one.kind not in left | _NOT_OURS]

    def closed(self) -> str:
        """Why nothing can be known of the root; empty where it can be read, or is not there."""
        return locations.unreadable(self.root)

    def beside(self) -> Iterator[Checked]:
        """Locks, halves, empty folders, strangers, the file of the size; or that the place is another's."""
        if self._foreign:
            return iter((self.told(self.root, Problem(FindingKind.LEFTOVER, self._foreign)),))
        return (self.told(path, problem) for path, problem in non_entries.leftovers(self.root))

    def clear(self, checked: Checked) -> Checked:
        """Take away one thing that is no entry; raises CacheUnusableError."""
        if self._foreign or locations.unreadable(self.root):
            return checked  # nothing there is ours to change
        repair.require_own(self.root)
        path = Path(checked.entry)
        try:
            if os.path.lexists(path):
                repair.repair_other(self.root, path)
        except OSError:
            return checked
        return checked if self._remains(path) else checked.mended()

    def answer(self, wanted: Wanted) -> Iterator[Reach]:
        """One answer for the fields given; raises UsageError."""
        placed = self.location
        bounds = Bounds(*(placed.bounds or locations.bounds(os.environ)))
        return iter((explaining.explain(self.root, placed, bounds, explaining.ask(wanted)),))

    def _remains(self, path: Path) -> bool:
        if path == self.root / naming.SIZE_FILE and non_entries.has_size(self.root):
            return non_entries.size_problem(self.root, non_entries.summed_bytes(self.root)) is not None
        return os.path.lexists(path)

    @contextmanager
    def _found(self, item: Numbered) -> Iterator[tuple[Folder, Listing, Slot]]:
        """The folder of an entry, and its files where they lie now; raises FileNotFoundError, OSError."""
        seen = item.slot
        with tree.open_group(self.root, seen.group) as folder:
            view = self._views.of(folder)
            slot = view.find(folder, seen)
            if slot is None:
                raise FileNotFoundError(f"the entry {item.key[:12]} changed or is gone")
            yield folder, view.listing, slot

    @contextmanager
    def _reading(self, item: Numbered) -> Iterator[tuple[Folder, Slot]]:
        """The same for what people are to see of it; raises FormatError where it is gone, OSError."""
        try:
            with self._found(item) as (folder, _, slot):
                yield folder, slot
        except FileNotFoundError as error:
            raise FormatError(f"the entry {item.key[:12]} changed or is gone; look again") from error


FORMAT = Sycl
