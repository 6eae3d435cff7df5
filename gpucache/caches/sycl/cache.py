"""A cache of libsycl on disk, as every cache is asked.

Owns nothing but the wiring: what is found, removed, mended and explained is in the modules beside it.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gpucache.caches.interface import Wanted
from gpucache.caches.sycl import (
    entries,
    explain,
    leftovers,
    limits,
    naming,
    question,
    repair,
    reports,
    roots,
    slots,
    standing,
    totals,
    tree,
)
from gpucache.caches.sycl.entries import CACHE, handle_of
from gpucache.caches.sycl.environment import Bounds, SyclLocation
from gpucache.caches.sycl.judging import Problem
from gpucache.caches.sycl.naming import Group
from gpucache.caches.sycl.removal import Removals
from gpucache.caches.sycl.slots import Slot
from gpucache.caches.sycl.standing import Verdicts
from gpucache.caches.sycl.views import Views
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.outcomes import CacheEntry, Checked, EntryReport, Finding, FindingKind, Kept, Location, Reach

_NOT_OURS = frozenset({FindingKind.STALE, FindingKind.SUPERSEDED})
"""Kinds that others add to an entry, which no repair of its files takes away."""


class SyclCache:
    """A folder that libsycl keeps its device binaries in."""

    name = CACHE

    def __init__(self, location: Location, bounds: Bounds, foreign: str = "") -> None:
        """``foreign`` says why the place is none of libsycl's yet; such a one is left alone."""
        self._location = location
        self._bounds = bounds
        self._foreign = foreign
        self._limits: tuple[str, ...] | None = None
        self._root = Path(location.root)
        self._verdicts = Verdicts()
        self._views = Views()
        self._removals = Removals(roots.mend(location))
        self._repaired: set[tuple[str, ...]] = set()
        self._touched: set[tuple[str, ...]] = set()

    def location(self) -> Location:
        """Where it lives and what is wrong with the place, its limits held against what is stored."""
        if not isinstance(self._location, SyclLocation):
            return self._location
        if self._limits is None:
            self._limits = tuple(limits.problems(self._location))
        return replace(self._location, problems=(*self._location.problems, *self._limits))

    def scan(self) -> Iterator[CacheEntry]:
        """Every entry, the first bytes of its files only; none where the place cannot be read."""
        for group in self._groups():
            yield from entries.scan_group(self._root, group)

    def find(self, prefix: str) -> list[CacheEntry]:
        """Entries whose key begins with some digits; with ``-n`` behind them only those of number n."""
        digits, _, number = prefix.partition("-")
        near = (group for group in self._groups() if group.hex.startswith(digits))
        found = (entry for group in near for entry in entries.scan_group(self._root, group))
        return [entry for entry in found if not number or handle_of(entry).stem == number]

    def report(self, entry: CacheEntry) -> EntryReport:
        """The stored key, and what the binary is; raises FormatError."""
        with self._opened(entry) as (folder, slot):
            return reports.report(entry, folder, slot)

    def extract(self, entry: CacheEntry) -> bytes:
        """The binary; raises FormatError where the entry is not sound."""
        with self._opened(entry) as (folder, slot):
            wrong = [detail for kind, detail in self._verdicts.of(folder, slot).problems if kind.wrong]
            if wrong:
                raise FormatError(f"the entry {entry.key[:12]} is not sound: {wrong[0]}")
            return slots.payload_of(folder, slot)

    def check(self, entry: CacheEntry) -> Checked:
        """Both files whole, the four hashes, the binary's kind, and what keeps programs from it."""
        handle = handle_of(entry)
        try:
            with tree.open_group(self._root, handle.group) as folder:
                view = self._views.of(folder)
                slot = view.find(folder, handle.group, handle.stem, handle.identities)
                if slot is None:
                    return _gone(entry)
                found = list(standing.problems(folder, view.listing, slot, self._verdicts))
                return self._checked(entry, found, self._verdicts.of(folder, slot).notes)
        except FileNotFoundError:
            return _gone(entry)
        except OSError as error:
            detail = f"it cannot be read ({error.strerror}), neither here nor by programs of this user"
            return self._checked(entry, [(FindingKind.UNTRUSTED, detail)], ())

    def leftovers(self) -> Iterator[Checked]:
        """Locks, halves, empty folders, foreign files, the file of the size; or why the place is closed."""
        unreadable = roots.unreadable(self._root)
        if unreadable:
            return iter((leftovers.found(self._root, FindingKind.UNTRUSTED, unreadable),))
        if self._foreign:
            return iter((leftovers.found(self._root, FindingKind.LEFTOVER, self._foreign),))
        return leftovers.leftovers(self._root)

    def remove(self, entry: CacheEntry, why: str) -> Kept | None:  # noqa: ARG002 - libsycl keeps no record
        """Remove an entry under the locks of its folder, moving a later one into its place."""
        handle = handle_of(entry)
        kept = self._removals.remove(self._root, handle)
        if kept is None:
            self._touched.add(handle.group.parts)
        return kept

    def settle(self) -> Sequence[str]:
        """Remove folders that became empty, and correct the file of the size where there is one."""
        self._removals.settle(self._root)
        gone = sum(tree.remove_empty(self._root, parts) for parts in sorted(self._touched))
        touched, self._touched = bool(self._touched), set()
        told = [f"{gone} empty folders removed"] if gone else []
        if touched and totals.has_size(self._root):
            summed = totals.summed_bytes(self._root)
            told.append(totals.rewrite(self._root, summed, roots.mend(self._location)))
        return [sentence for sentence in told if sentence]

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:
        """Mend the folder of an entry, or take away one thing; raises CacheUnusableError."""
        if self._foreign or roots.unreadable(self._root):
            return checked  # nothing there is ours to change
        repair.require_own(self._root)
        try:
            if entry is None:
                return self._repair_other(checked)
            return self._repair_entry(checked, entry)
        except OSError:
            return checked

    def explain(self, wanted: Wanted) -> Iterator[Reach]:
        """One answer for the fields given; raises UsageError."""
        asked = question.ask(wanted)
        return iter((explain.explain(self._root, self._location, self._bounds, asked),))

    @contextmanager
    def _opened(self, entry: CacheEntry) -> Iterator[tuple[Folder, Slot]]:
        """The folder and files of an entry; raises FormatError where they cannot be read."""
        handle = handle_of(entry)
        try:
            with tree.open_group(self._root, handle.group) as folder:
                view = self._views.of(folder)
                slot = view.find(folder, handle.group, handle.stem, handle.identities)
                if slot is None:
                    raise FormatError(f"the entry {entry.key[:12]} changed or is gone; look again")
                yield folder, slot
        except OSError as error:
            raise FormatError(f"the entry {entry.key[:12]} cannot be read ({error.strerror})") from error

    def _groups(self) -> Iterator[Group]:
        return (item for item in tree.walk(self._root) if isinstance(item, Group) and not self._foreign)

    def _repair_entry(self, checked: Checked, entry: CacheEntry) -> Checked:
        group = handle_of(entry).group
        if group.parts not in self._repaired:
            repair.repair_group(self._root, group)
            self._repaired.add(group.parts)
        again = self.check(entry)
        left = frozenset(finding.kind for finding in again.findings)
        left |= _NOT_OURS if again.counts else frozenset()
        return _marked(checked, left)

    def _repair_other(self, checked: Checked) -> Checked:
        path = Path(checked.entry)
        if os.path.lexists(path):
            repair.repair_other(self._root, path)
        return checked if self._remains(path) else _marked(checked, frozenset())

    def _remains(self, path: Path) -> bool:
        if path == self._root / naming.SIZE_FILE and totals.has_size(self._root):
            return totals.size_problem(self._root, totals.summed_bytes(self._root)) is not None
        return os.path.lexists(path)

    def _checked(self, entry: CacheEntry, found: Sequence[Problem], notes: tuple[str, ...]) -> Checked:
        findings = (
            Finding(CACHE, entry.key, kind, detail, entry.program, entry.target) for kind, detail in found
        )
        return Checked(entry.key, tuple(findings), notes)


def _gone(entry: CacheEntry) -> Checked:
    return Checked(entry.key, notes=("it was removed while it was being checked",), counts=False)


def _marked(checked: Checked, left: frozenset[FindingKind]) -> Checked:
    """The findings whose kind is not left, marked as repaired."""
    return replace(
        checked,
        findings=tuple(
            replace(finding, repaired=finding.repaired or finding.kind not in left)
            for finding in checked.findings
        ),
    )
