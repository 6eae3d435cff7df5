"""What the other numbers of a folder, and locks, mean for one entry in it.

Source: libsycl, ``persistent_device_code_cache.cpp`` (``getItemFromDisc``): programs look at 0, 1, 2...
while either file of a number exists; a number with a lock is passed over; the first whose ``.src``
equals what is wanted is taken, whatever its ``.bin`` holds. Must not know files' formats.
"""

from collections.abc import Iterator

from gpucache.caches.files import Identity
from gpucache.caches.sycl import judging, locks, naming, slots, totals
from gpucache.caches.sycl.judging import Verdict
from gpucache.caches.sycl.naming import Group
from gpucache.caches.sycl.slots import Slot
from gpucache.caches.sycl.tree import Listing
from gpucache.folders import Folder
from gpucache.outcomes import FindingKind, Problem
from gpucache.units import format_age

_Identities = tuple[Identity | None, Identity | None]
_LOCKED = "programs pass this entry over and keep another copy beside it, and eviction spins on it for ever"


class Verdicts:
    """The verdicts of one group's entries, each kept while its files stay the same."""

    def __init__(self) -> None:
        self._group: Group | None = None
        self._answers: Answers | None = None
        self._kept: dict[str, tuple[_Identities, Verdict]] = {}

    def of(self, folder: Folder, slot: Slot) -> Verdict:
        """The verdict of an entry; raises OSError."""
        if slot.group != self._group:
            self._group, self._kept = slot.group, {}
        known = self._kept.get(slot.stem)
        if known is None or known[0] != slot.identities:
            known = slot.identities, judging.judge(folder, slot)
            self._kept[slot.stem] = known
        return known[1]

    def answers(self, folder: Folder, listing: Listing, slot: Slot) -> "Answers":
        """Which numbers answer programs, up to an entry; raises OSError."""
        if self._answers is None or self._answers.listing is not listing:
            self._answers = Answers(listing)
        self._answers.fill(folder, slot, self)
        return self._answers


class Answers:
    """The first number of a folder that programs take for each key, and the first they die of."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.killer: str | None = None
        self.taken: dict[str, tuple[str, Verdict]] = {}
        self._filled = 0

    def fill(self, folder: Folder, slot: Slot, verdicts: Verdicts) -> None:
        """Look at the numbers below an entry that were not looked at yet; raises OSError."""
        stems, end = self.listing.stems, naming.order(slot.stem)
        while self._filled < len(stems) and naming.order(stems[self._filled]) < end:
            stem = stems[self._filled]
            if naming.LOCK not in self.listing.files[stem]:
                self._add(stem, verdicts.of(folder, slots.look(folder, slot.group, stem)))
            self._filled += 1

    def _add(self, stem: str, verdict: Verdict) -> None:
        if verdict.kills and self.killer is None:
            self.killer = stem
        if verdict.taken:
            self.taken.setdefault(verdict.digest, (stem, verdict))


def problems(folder: Folder, listing: Listing, slot: Slot, verdicts: Verdicts) -> Iterator[Problem]:
    """What is wrong with an entry where it lies; raises OSError."""
    locked = under_lock(folder, slot.stem)
    yield from locked
    if len(locked) == 1:
        return  # what is being written is not judged
    yield from verdicts.of(folder, slot).problems
    unreached = beyond(listing, slot.stem)
    if locked:
        pass  # nothing else matters to programs
    elif unreached:
        yield Problem(FindingKind.MISPLACED, unreached)
    else:
        yield from _behind(folder, listing, slot, verdicts)
    yield from _times(folder, slot)


def under_lock(folder: Folder, stem: str) -> list[Problem]:
    """What a lock on an entry that is there means; misplaced where nobody holds it."""
    name = stem + naming.LOCK
    age = locks.age_ns(folder, name)
    if age is None:
        return []
    found = [Problem(FindingKind.LOCKED, locks.told(folder, name, age, _LOCKED))]
    if locks.is_stale(age):
        left = f"no program reads it: {name} was left {format_age(age)} ago"
        found.append(Problem(FindingKind.MISPLACED, f"{left}, so programs compile again and add a copy"))
    return found


def beyond(listing: Listing, stem: str) -> str:
    """Why programs stop before a number; empty where they get to it."""
    if stem == naming.IR_STEM:
        return ""
    hole = listing.hole
    if naming.order(stem) <= hole:
        return ""
    stop = f"programs stop looking at {hole}, which is missing, and never get to {stem}"
    if naming.LOCK in listing.files.get(str(hole), set()):
        return f"{stop}: as {hole}{naming.LOCK} keeps it free, they add another copy at every run"
    return f"{stop} until they fill the gap with another copy"


def _behind(folder: Folder, listing: Listing, slot: Slot, verdicts: Verdicts) -> Iterator[Problem]:
    """A lower number that programs take in place of this one."""
    own, answers = verdicts.of(folder, slot).digest, verdicts.answers(folder, listing, slot)
    end = naming.order(slot.stem)
    twin = answers.taken.get(own) if own else None
    if twin is not None and naming.order(twin[0]) < end:
        end = naming.order(twin[0])
    if answers.killer is not None and naming.order(answers.killer) < end:
        detail = f"programs die of {answers.killer} before they get to {slot.stem}"
        yield Problem(FindingKind.MISPLACED, detail)
    elif twin is not None and end < naming.order(slot.stem):
        yield _twin(twin[1], twin[0], slot.stem)


def _twin(lower: Verdict, stem: str, own: str) -> Problem:
    if lower.sound:
        return Problem(
            FindingKind.SUPERSEDED, f"it is a copy of {stem}, which programs take; it only takes room"
        )
    return Problem(
        FindingKind.MISPLACED, f"programs take {stem} for it, which is damaged, and never get to {own}"
    )


def needs_time(folder: Folder, slot: Slot) -> bool:
    """Whether an entry lacks a time that libsycl's eviction goes by."""
    if slot.access is None:
        return slot.binary is not None and _evicts(folder, slot.group)
    return slots.access_number(folder, slot.stem) is None


def _times(folder: Folder, slot: Slot) -> Iterator[Problem]:
    if needs_time(folder, slot):
        name = slot.stem + naming.ACCESS
        effect = "is missing, so libsycl never evicts the entry"
        if slot.access is not None:
            effect = "holds no time, so libsycl evicts the entry before all others"
        yield Problem(FindingKind.ORPHAN, f"{name} {effect}")


def _evicts(folder: Folder, group: Group) -> bool:
    """Whether eviction was ever on in the cache that a group's folder lies in."""
    return totals.has_size(folder.path.parents[len(group.parts) - 1])
