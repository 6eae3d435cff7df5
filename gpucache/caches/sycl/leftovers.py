"""What belongs to no entry, and what is wrong with the cache as a whole.

Owns the one walk that finds all of it. Must not change anything.
"""

from collections.abc import Iterator
from pathlib import Path

from gpucache.caches.sycl import locks, naming, totals, tree
from gpucache.caches.sycl.naming import Group
from gpucache.caches.sycl.tree import Listing, Stray
from gpucache.folders import Folder
from gpucache.outcomes import FindingKind, Problem

_TIMES = "programs no longer note when the entry was used, and eviction takes it too early"


Left = tuple[Path, Problem]


def leftovers(root: Path) -> Iterator[Left]:
    """Every stray thing, then the file of the size and the locks. Raises nothing."""
    summed = 0
    for item in tree.walk(root):
        if isinstance(item, Stray):
            detail = f"{'/'.join(item.parts) or root}: {item.detail}"
            yield root.joinpath(*item.parts), Problem(item.kind, detail)
        else:
            summed += totals.group_bytes(root, item)
            yield from _of_group(root, item)
    if problem := totals.size_problem(root, summed):
        yield root / naming.SIZE_FILE, problem
    if lock := totals.size_lock(root):
        yield root / naming.SIZE_LOCK, lock
    yield from totals.eviction_files(root)


def _of_group(root: Path, group: Group) -> Iterator[Left]:
    place = root.joinpath(*group.parts)
    try:
        with tree.open_group(root, group) as folder:
            listing = tree.listing(folder)
            if not listing.files and not listing.foreign:
                empty = f"{'/'.join(group.parts)} is empty, as eviction leaves it"
                yield place, Problem(FindingKind.LEFTOVER, empty)
            for name, problem in _in_group(folder, listing, f"of {group.hex[:12]}"):
                yield place / name, problem
    except OSError:
        return  # gone meanwhile


def _in_group(folder: Folder, listing: Listing, where: str) -> Iterator[tuple[str, Problem]]:
    """Names in a group's folder that belong to no entry, each with what it does."""
    for name in listing.foreign:
        detail = f"{name} beside the entries {where} is none of libsycl's and is left alone"
        yield name, Problem(FindingKind.LEFTOVER, detail)
    for stem, suffixes in sorted(listing.files.items(), key=lambda item: naming.order(item[0])):
        present = listing.present(stem)
        if naming.ACCESS in suffixes and not present and naming.LOCK not in suffixes:
            detail = f"{stem}{naming.ACCESS} {where} has the last use of an entry that is gone"
            yield stem + naming.ACCESS, Problem(FindingKind.ORPHAN, detail)
        if naming.LOCK in suffixes and not present:
            yield from _lock(folder, stem + naming.LOCK, where, _holding(listing, stem))
        if naming.ACCESS_LOCK in suffixes:
            yield from _lock(folder, stem + naming.ACCESS_LOCK, where, _TIMES)


def _lock(folder: Folder, name: str, where: str, effect: str) -> Iterator[tuple[str, Problem]]:
    age = locks.age_ns(folder, name)
    if age is not None:
        detail = f"{where[3:]}: {locks.told(folder, name, age, effect)}"
        yield name, Problem(FindingKind.LOCKED, detail)


def _holding(listing: Listing, stem: str) -> str:
    """What a lock does where there is no entry."""
    if stem == naming.IR_STEM:
        return "the program is compiled at every run and never kept"
    above = [one for one in listing.stems if naming.order(one) > naming.order(stem)]
    unseen = f" (now {', '.join(above[:3])}{'...' if above[3:] else ''})" if above else ""
    return f"programs write their copy above {stem}{unseen}, never look there, and add one at every run"
