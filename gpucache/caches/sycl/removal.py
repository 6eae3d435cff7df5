"""Taking one entry away so that every other one stays reachable.

Programs stop at the first missing number, so the entries above a removed one are moved down, under the
locks of all numbers concerned. Files are moved in an order that never leaves the ``.bin`` of one entry
beside the ``.src`` of another, wherever the process is killed. Must not decide what goes.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from gpucache.caches.sycl import locks, naming, slots, tree
from gpucache.caches.sycl.entries import Handle, locate
from gpucache.caches.sycl.locks import BusyError, held
from gpucache.caches.sycl.tree import Listing
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.outcomes import Kept
from gpucache.units import format_age

_OWN = (naming.SOURCE, naming.BINARY, naming.ACCESS)


def remove(root: Path, handle: Handle) -> Kept | None:
    """Remove an entry that is as it was seen; None once it is gone."""
    try:
        with tree.open_group(root, handle.group) as folder:
            return _remove(folder, handle)
    except FileNotFoundError:
        return Kept("it was removed meanwhile")
    except OSError as error:
        return Kept(f"{root.joinpath(*handle.group.parts)} cannot be changed ({error.strerror})")


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


def close_hole(folder: Folder) -> None:
    """Move the last entry into a hole that a writer left open behind a removal; best effort."""
    found = tree.listing(folder)
    hole, stems = str(found.hole()), found.stems
    if not stems or naming.order(stems[-1]) <= int(hole) or stems[-1] == naming.IR_STEM:
        return
    with suppress(BusyError), held(folder, lock_names([hole, stems[-1]])):
        move(folder, stems[-1], hole)


def _remove(folder: Folder, handle: Handle) -> Kept | None:
    found = tree.listing(folder)
    slot = locate(folder, found, handle)
    if slot is None:
        return Kept()
    above = _above(folder, handle, found, slot.stem)
    try:
        with held(folder, lock_names([slot.stem, *above])):
            if slots.look(folder, handle.group, slot.stem).identities != handle.identities:
                return Kept()
            chain = [slot.stem, *above]
            for lower, upper in pairwise(chain):
                move(folder, upper, lower)
            delete(folder, chain[-1])
    except BusyError as busy:
        return Kept(_busy(folder, str(busy)))
    if above:
        close_hole(folder)
    return None


def _above(folder: Folder, handle: Handle, found: Listing, stem: str) -> list[str]:
    """Which entries move down: the last into the gap; all of them where the last is damaged.

    A damaged copy that came before a sound one of the same program would be taken in its place.
    """
    later = [one for one in found.stems if naming.order(one) > naming.order(stem)]
    if not later:
        return []
    return later[-1:] if _whole(folder, handle, later[-1]) else later


def _whole(folder: Folder, handle: Handle, stem: str) -> bool:
    slot = slots.look(folder, handle.group, stem)
    try:
        slots.binary_of(folder, slot)
        if slot.with_source:
            slots.source_of(folder, slot)
    except (OSError, FormatError):
        return False
    return True


def _busy(folder: Folder, name: str) -> str:
    age = locks.age_ns(folder, name)
    if age is None:
        return f"a program held {name}; run it again"
    if locks.is_stale(age):
        return (
            f"{name} is {format_age(age)} old and held by nobody; run 'gpucache verify --repair --cache sycl'"
        )
    return f"a program may be writing, as {name} exists; run it again later"
