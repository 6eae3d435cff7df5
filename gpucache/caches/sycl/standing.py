"""What the other numbers of a folder, and locks, mean for one entry in it.

Source: libsycl, ``persistent_device_code_cache.cpp`` (``getItemFromDisc``): programs look at 0, 1, 2...
while either file of a number exists; a number with a lock is passed over; the first whose ``.src``
equals what is wanted is taken, whatever its ``.bin`` holds. Must not know files' formats.
"""

from collections.abc import Iterator

from gpucache.caches.files import Identity
from gpucache.caches.sycl import judging, locks, naming, slots
from gpucache.caches.sycl.judging import Problem, Verdict
from gpucache.caches.sycl.naming import Group
from gpucache.caches.sycl.slots import Slot
from gpucache.caches.sycl.tree import Listing
from gpucache.folders import Folder
from gpucache.outcomes import FindingKind

_Identities = tuple[Identity | None, Identity | None]
_LOCKED = "programs pass this entry over and keep another copy beside it, and eviction spins on it for ever"


class Verdicts:
    """The verdicts of one group's entries, each kept while its files stay the same."""

    def __init__(self) -> None:
        self._group: Group | None = None
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


def problems(folder: Folder, listing: Listing, slot: Slot, verdicts: Verdicts) -> Iterator[Problem]:
    """What is wrong with an entry where it lies; raises OSError."""
    lock = slot.stem + naming.LOCK
    age = locks.age_ns(folder, lock)
    if age is not None:
        yield FindingKind.LOCKED, locks.told(lock, age, _LOCKED)
        if not locks.is_stale(age):
            return  # what is being written is not judged
    yield from verdicts.of(folder, slot).problems
    unreached = beyond(listing, slot.stem)
    if unreached:
        yield FindingKind.MISPLACED, unreached
    else:
        yield from _behind(folder, listing, slot, verdicts)
    yield from _times(folder, slot)


def beyond(listing: Listing, stem: str) -> str:
    """Why programs stop before a number; empty where they get to it."""
    if stem == naming.IR_STEM:
        return ""
    hole = listing.hole()
    if naming.order(stem) <= hole:
        return ""
    stop = f"programs stop looking at {hole}, which is missing, and never get to {stem}"
    if naming.LOCK in listing.files.get(str(hole), set()):
        return f"{stop}: as {hole}{naming.LOCK} keeps it free, they add another copy at every run"
    return f"{stop} until they fill the gap with another copy"


def _behind(folder: Folder, listing: Listing, slot: Slot, verdicts: Verdicts) -> Iterator[Problem]:
    """A lower number that programs take in place of this one."""
    own = verdicts.of(folder, slot).digest
    for stem in listing.stems:
        if stem == slot.stem:
            return
        if naming.LOCK in listing.files[stem]:
            continue
        lower = verdicts.of(folder, slots.look(folder, slot.group, stem))
        if lower.kills:
            yield FindingKind.MISPLACED, f"programs die of {stem} before they get to {slot.stem}"
            return
        if own and lower.taken and lower.digest == own:
            yield _twin(lower, stem, slot.stem)
            return


def _twin(lower: Verdict, stem: str, own: str) -> Problem:
    if lower.sound:
        return FindingKind.SUPERSEDED, f"it is a copy of {stem}, which programs take; it only takes room"
    return (
        FindingKind.MISPLACED,
        f"programs take {stem} for it, which is damaged, and never get to {own}",
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
        yield FindingKind.ORPHAN, f"{name} {effect}"


def _evicts(folder: Folder, group: Group) -> bool:
    """Whether eviction was ever on in the cache that a group's folder lies in."""
    return (folder.path.parents[len(group.parts) - 1] / naming.SIZE_FILE).is_file()
