"""What belongs to no entry, and what is wrong with the cache as a whole.

Owns the one walk that finds all of it. Must not change anything.
"""

from collections.abc import Iterator
from pathlib import Path

from gpucache.caches.sycl import locks, naming, totals, tree
from gpucache.caches.sycl.entries import CACHE
from gpucache.caches.sycl.judging import Problem
from gpucache.caches.sycl.naming import Group
from gpucache.caches.sycl.tree import Listing, Stray
from gpucache.folders import Folder
from gpucache.outcomes import Checked, Finding, FindingKind

_TIMES = "programs no longer note when the entry was used, and eviction takes it too early"


def leftovers(root: Path) -> Iterator[Checked]:
    """Every stray thing, then the file of the size and the locks. Raises nothing."""
    summed = 0
    for item in tree.walk(root):
        if isinstance(item, Stray):
            yield found(
                root.joinpath(*item.parts), item.kind, f"{'/'.join(item.parts) or root}: {item.detail}"
            )
        else:
            summed += totals.group_bytes(root, item)
            yield from _of_group(root, item)
    yield from _of_root(root, summed)


def found(path: Path, kind: FindingKind, detail: str) -> Checked:
    """A finding about what is no entry."""
    return Checked(str(path), (Finding(CACHE, path.name, kind, detail),), counts=False)


def in_group(folder: Folder, listing: Listing, group: Group) -> Iterator[tuple[str, Problem]]:
    """Names in a group's folder that belong to no entry, each with what it does."""
    where = f"of {group.hex[:12]}"
    for name in listing.foreign:
        yield (
            name,
            (
                FindingKind.LEFTOVER,
                f"{name} beside the entries {where} is none of libsycl's and is left alone",
            ),
        )
    for stem, suffixes in sorted(listing.files.items(), key=lambda item: naming.order(item[0])):
        present = listing.present(stem)
        if naming.ACCESS in suffixes and not present and naming.LOCK not in suffixes:
            name = stem + naming.ACCESS
            yield name, (FindingKind.ORPHAN, f"{name} {where} has the last use of an entry that is gone")
        if naming.LOCK in suffixes and not present:
            yield from _lock(folder, stem + naming.LOCK, where, _holding(listing, stem))
        if naming.ACCESS_LOCK in suffixes:
            yield from _lock(folder, stem + naming.ACCESS_LOCK, where, _TIMES)


def _of_group(root: Path, group: Group) -> Iterator[Checked]:
    place = root.joinpath(*group.parts)
    try:
        with tree.open_group(root, group) as folder:
            listing = tree.listing(folder)
            if not listing.files and not listing.foreign:
                yield found(
                    place, FindingKind.LEFTOVER, f"{'/'.join(group.parts)} is empty, as eviction leaves it"
                )
            for name, (kind, detail) in in_group(folder, listing, group):
                yield found(place / name, kind, detail)
    except OSError:
        return  # gone meanwhile


def _of_root(root: Path, summed: int) -> Iterator[Checked]:
    problem = totals.size_problem(root, summed)
    if problem is not None:
        yield found(root / naming.SIZE_FILE, *problem)
    lock = totals.size_lock(root)
    if lock is not None:
        yield found(root / naming.SIZE_LOCK, *lock)
    for path, (kind, detail) in totals.eviction_files(root):
        yield found(path, kind, detail)


def _lock(folder: Folder, name: str, where: str, effect: str) -> Iterator[tuple[str, Problem]]:
    age = locks.age_ns(folder, name)
    if age is not None:
        yield name, (FindingKind.LOCKED, f"{where[3:]}: {locks.told(folder, name, age, effect)}")


def _holding(listing: Listing, stem: str) -> str:
    """What a lock does where there is no entry."""
    if stem == naming.IR_STEM:
        return "the program is compiled at every run and never kept"
    above = [one for one in listing.stems if naming.order(one) > naming.order(stem)]
    unseen = f" (now {', '.join(above[:3])}{'...' if above[3:] else ''})" if above else ""
    return f"programs write their copy above {stem}{unseen}, never look there, and add one at every run"
