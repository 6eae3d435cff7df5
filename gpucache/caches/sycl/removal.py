"""Taking one entry away so that every other one stays reachable.

Programs stop at the first missing number, so the last whole entry is moved into the place of a removed
one, under the locks of both. Damaged ones behind it stay where they are: a hole before them hides nothing
that programs could use. Files are moved in an order that never leaves the ``.bin`` of one entry
beside the ``.src`` of another, wherever the process is killed. Must not decide what goes.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpucache.answers.evict import Kept
from gpucache.caches.sycl import checks, locks, naming, slots, tree
from gpucache.caches.sycl.locks import BusyError, held
from gpucache.caches.sycl.naming import Family, Group
from gpucache.caches.sycl.slots import Identities, Slot
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.units import format_age

_HOLES_CLOSED = 16
"""One for each program that wrote meanwhile; a folder with more holes is for repair."""
_OWN = (naming.SOURCE, naming.BINARY, naming.ACCESS)


class Removals:
    """The removals of one run, and what they know of the folders they work in."""

    def __init__(self, mend: str) -> None:
        """``mend`` says what frees locks that nobody holds."""
        self._mend = mend
        self._tails: dict[Group, Tail] = {}

    def remove(self, root: Path, seen: Slot) -> Kept | None:
        """Remove an entry that is as it was seen; None once it is gone."""
        try:
            with tree.open_group(root, seen.group) as folder:
                tail = self._tails.setdefault(seen.group, Tail(seen.group))
                tail.refresh(folder)
                kept = _remove(folder, seen, tail, self._mend)
                tail.note(folder)
                return kept
        except OSError as error:
            return Kept.by(error, root.joinpath(*seen.group.parts))

    def finish(self, root: Path) -> None:
        """Close what holes writers left open behind the removals; best effort."""
        groups, self._tails = list(self._tails), {}
        for group in groups:
            with suppress(OSError), tree.open_group(root, group) as folder:
                close_holes(folder, group)


class Tail:
    """Which numbers of a folder there are, from whose end entries are taken to fill gaps."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._stems: list[str] = []
        self._damaged: set[str] = set()
        self._moved: dict[Identities, str] = {}
        self._changed_ns: int | None = None
        self._known = False

    def refresh(self, folder: Folder) -> None:
        """List a folder that others changed; raises OSError."""
        if folder.status().st_mtime_ns != self._changed_ns:
            self._known = True
            self._stems, self._damaged = list(tree.listing(folder).stems), set()

    def note(self, folder: Folder) -> None:
        """Take what the folder is now for our own doing; raises OSError."""
        self._changed_ns = folder.status().st_mtime_ns if self._known else None

    def forget(self) -> None:
        """List the folder again before the next removal."""
        self._known = False

    def find(self, folder: Folder, seen: Slot) -> Slot | None:
        """An entry that was seen before, also where a removal of another moved it."""
        likely = (self._moved.get(seen.identities), seen.stem)
        for stem in (*(one for one in likely if one is not None), *self._stems, *sorted(self._damaged)):
            slot = slots.look(folder, self._group, stem)
            if slot.identities == seen.identities:
                return slot
        return None

    def last(self, folder: Folder, stem: str) -> Slot | None:
        """The last entry above a number that is whole, which may be moved into its place.

        A damaged copy that came before a sound one of the same program would be taken in its place.
        """
        while self._group.family is not Family.IR and self._stems:
            slot = slots.look(folder, self._group, self._stems[-1])
            if naming.order(slot.stem) <= naming.order(stem):
                return None
            if _whole(folder, slot):
                return slot
            self._damaged.add(self._stems.pop())
        return None

    def drop(self, stem: str, moved: Slot | None) -> str:
        """Note that an entry is gone and which one took its place; the number that became free."""
        if moved is not None:
            self._stems.pop()
            self._moved[moved.identities] = stem
            return moved.stem
        self._damaged.discard(stem)
        if self._stems and self._stems[-1] == stem:
            self._stems.pop()
        return stem

    def expects(self, stem: str) -> bool:
        """Whether a number is one of the damaged ones at the end."""
        return stem in self._damaged


def delete(folder: Folder, stem: str) -> None:
    """Delete the files of an entry whose lock is held, in libsycl's order; raises OSError."""
    for suffix in _OWN:
        with suppress(FileNotFoundError):
            folder.unlink(stem + suffix)


def move(folder: Folder, stem: str, onto: str) -> None:
    """Put an entry in the place of another, both locks being held; raises OSError."""
    with suppress(FileNotFoundError):
        folder.unlink(onto + naming.SOURCE)  # without it no program takes what lies there
    for suffix in (naming.BINARY, naming.SOURCE, naming.ACCESS):
        try:
            folder.move(stem + suffix, folder, onto + suffix)
        except FileNotFoundError:
            with suppress(FileNotFoundError):
                folder.unlink(onto + suffix)


def lock_names(stems: Sequence[str]) -> list[str]:
    """The locks of some numbers, in the order in which they are taken."""
    return [stem + naming.LOCK for stem in sorted(stems, key=naming.order)]


def close_holes(folder: Folder, group: Group) -> None:
    """Move the last whole entries into holes that writers left open behind a removal; best effort."""
    for _ in range(0 if group.family is Family.IR else _HOLES_CLOSED):
        found = tree.listing(folder)
        hole = str(found.hole)
        above = (stem for stem in reversed(found.stems) if naming.order(stem) > found.hole)
        last = next((stem for stem in above if _whole(folder, slots.look(folder, group, stem))), None)
        if last is None:
            return
        try:
            with held(folder, lock_names([hole, last])):
                move(folder, last, hole)
        except BusyError:
            return


def _remove(folder: Folder, seen: Slot, tail: Tail, mend: str) -> Kept | None:
    slot = tail.find(folder, seen)
    if slot is None:
        return Kept()
    if strange := slots.stranger(folder, slot):
        return Kept(checks.not_ours(strange))
    last = tail.last(folder, slot.stem)
    there = [slot] if last is None else [slot, last]
    try:
        with held(folder, lock_names([one.stem for one in there])):
            if any(slots.look(folder, one.group, one.stem).identities != one.identities for one in there):
                tail.forget()
                return Kept()
            if last is None:
                delete(folder, slot.stem)
            else:
                move(folder, last.stem, slot.stem)
    except BusyError as busy:
        return Kept(_busy(folder, str(busy), mend))
    _look_behind(folder, seen.group, tail, tail.drop(slot.stem, last))
    return None


def _look_behind(folder: Folder, group: Group, tail: Tail, free: str) -> None:
    """Close the hole where a program wrote behind the number that became free."""
    if group.family is Family.IR:
        return
    behind = str(int(free) + 1)
    slot = slots.look(folder, group, behind)
    if (slot.binary or slot.source) and not tail.expects(behind):
        tail.forget()
        close_holes(folder, group)


def _whole(folder: Folder, slot: Slot) -> bool:
    try:
        slots.binary_of(folder, slot)
        if slot.with_source:
            slots.source_of(folder, slot)
    except (OSError, FormatError):
        return False
    return True


def _busy(folder: Folder, name: str, mend: str) -> str:
    age = locks.age_ns(folder, name)
    if age is None:
        return f"a program held {name}; run it again"
    if locks.is_strange(folder, name):
        return f"{name} is no lock of libsycl, as it holds something; move it elsewhere"
    if locks.is_stale(age):
        return f"{name} is {format_age(age)} old and held by nobody; {mend}"
    return f"a program may be writing, as {name} exists; run it again later"
