"""The files next to the entries: leftovers, their total size, and which of them are removed.

Leftovers are the files of killed writers, locks that no process has, and strays. A file in ``tmp/`` or
``locks/`` is one only if it is unchanged for an hour: younger ones may be in use. The other files may be
lost at the cost of an explanation or some time, so the oldest are removed when their total is too large. A
file whose name is not one of ours belongs to another program: it is reported, and neither counted nor
removed. Must not know the content of the files.
"""

import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from gpucache.folders import Folder
from gpucache.store import layout, lock
from gpucache.store.history import History
from gpucache.store.interface import Leftover
from gpucache.store.root_folder import UNUSABLE, RootFolder
from gpucache.store.scan import allocated, walk
from gpucache.units import format_list

MINIMUM_AGE_NS = 3600 * 10**9
_SHARE = 4
"""The files next to the entries may take a quarter of the limit of the entries."""
_MOVE = "give the cache its own directory"
_NOT_OURS = "not a file of gpucache, so it stays; move it elsewhere"
_LEFT = {layout.TMP: "left by a writer that was stopped", layout.LOCKS: "a lock that no process holds"}


class Swept(NamedTuple):
    """The allocated bytes that a sweep removed, and those that are left."""

    files: int
    freed_bytes: int
    left_bytes: int


class _Item(NamedTuple):
    changed_ns: int
    place: tuple[str, ...]
    name: str
    allocated_bytes: int


def leftovers(root: RootFolder, now_ns: int) -> Iterator[Leftover]:
    """Every leftover, one by one; raises CacheUnusableError if ``entries/`` cannot be read."""
    yield from _in_root(root)
    for _, _, leftover in _abandoned(root, now_ns):
        yield leftover
    for folder, name, stray in walk(root):
        if stray:
            with suppress(OSError):
                yield _leftover(folder, name, now_ns, _NOT_OURS)


def remove_leftover(root: RootFolder, leftover: Leftover) -> bool:
    """Remove a leftover that is ours and whose size is unchanged; returns whether it did. Raises nothing."""
    with suppress(*UNUSABLE, ValueError):
        *parts, name = leftover.path.relative_to(root.path).parts
        with root.open(*parts) as folder:
            status = folder.lstat(name)
            same = stat.S_ISREG(status.st_mode) and status.st_size == leftover.size_bytes
            return same and _is_removed(folder, tuple(parts), name)
    return False


def remove_left(root: RootFolder, now_ns: int) -> list[int]:
    """Remove the files killed processes left in ``tmp/`` and ``locks/``; returns their allocated bytes."""
    gone = []
    for folder, place, leftover in _abandoned(root, now_ns):
        with suppress(OSError):
            blocks = allocated(folder.lstat(leftover.path.name))
            if _is_removed(folder, place, leftover.path.name):
                gone.append(blocks)
    return gone


def beside_bytes(root: RootFolder) -> int:
    """The allocated bytes of all our files next to the entries."""
    return sum(item.allocated_bytes for item in _items(root))


def sweep(root: RootFolder, history: History, max_size_bytes: int | None, why: str, now_ns: int) -> Swept:
    """Remove leftovers, then the oldest other files until they take a quarter of the limit of the entries.

    ``why``, the rule that removed all entries before, is recorded for the histories that are removed.
    """
    gone = remove_left(root, now_ns)
    rest = sorted(_items(root))
    left = over = sum(item.allocated_bytes for item in rest)
    going = []
    for item in rest if max_size_bytes is not None else ():
        if over > (max_size_bytes or 0) // _SHARE and item.place not in _LEFT:
            going.append(item)
            over -= item.allocated_bytes
    # Recorded first, so that a process that is stopped in between leaves no history unaccounted for.
    history.note_removed([item.name for item in going if item.place == layout.PROGRAMS], now_ns, why)
    removed = []
    for item in going:
        with suppress(*UNUSABLE), root.open(*item.place) as folder:
            folder.unlink(item.name)
            removed.append(item.allocated_bytes)
    return Swept(len(gone) + len(removed), sum(gone) + sum(removed), left - sum(removed))


def _items(root: RootFolder) -> Iterator[_Item]:
    for place in layout.BESIDE:
        with suppress(*UNUSABLE), root.open(*place) as folder:
            for found in folder.entries():
                if layout.is_beside(place, found.name):
                    with suppress(OSError):
                        status = folder.lstat(found.name)
                        yield _Item(status.st_mtime_ns, place, found.name, allocated(status))


def _abandoned(root: RootFolder, now_ns: int) -> Iterator[tuple[Folder, tuple[str, ...], Leftover]]:
    """The old files of ``tmp/`` and ``locks/``, of any owner, except locks that are in use."""
    for place, detail in _LEFT.items():
        with suppress(*UNUSABLE), root.open(*place) as folder:
            for name in [found.name for found in folder.entries()]:
                with suppress(OSError):
                    ours = layout.is_beside(place, name)
                    leftover = _leftover(folder, name, now_ns, detail if ours else _NOT_OURS)
                    unused = not ours or place != layout.LOCKS or not lock.held(folder, name)
                    if leftover.age_ns > MINIMUM_AGE_NS and unused:
                        yield folder, place, leftover


def _is_removed(folder: Folder, place: tuple[str, ...], name: str) -> bool:
    """Remove one of our files in ``tmp/`` or ``locks/``, unless it is a lock in use; raises OSError."""
    if place not in _LEFT or not layout.is_beside(place, name):
        return False
    if place == layout.LOCKS:
        return lock.remove_unheld(folder, name)
    folder.unlink(name)
    return True


def _in_root(root: RootFolder) -> Iterator[Leftover]:
    """The foreign files directly in the root, as a single leftover, however many they are."""
    with suppress(*UNUSABLE), root.open() as top:
        names = sorted(found.name for found in top.entries())
        strange = [name for name in names if not layout.is_in_root(name)]
        if strange and layout.VERSION_FOLDER in names:
            yield Leftover(top.path, 0, 0, f"it also contains {format_list(strange)}, which stay; {_MOVE}")


def _leftover(folder: Folder, name: str, now_ns: int, detail: str) -> Leftover:
    status = folder.lstat(name)
    # The change time, as a writer sets the modification time to the time of the build.
    return Leftover(folder.path / name, status.st_size, max(0, now_ns - status.st_ctime_ns), detail)
