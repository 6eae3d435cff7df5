"""Files that belong to no entry: those of killed writers, locks that nobody holds, and strays.

A file in ``tmp/`` or ``locks/`` is a leftover only if nothing changed it for an hour: younger ones may be in
use. A file whose name is not one of ours belongs to somebody else: it is reported and never removed. Must not
know what an entry says.
"""

import stat
from collections.abc import Iterator
from contextlib import suppress

from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder
from gpucache.store import layout, lock
from gpucache.store.interface import Leftover
from gpucache.store.root_folder import RootFolder
from gpucache.store.scan import walk
from gpucache.units import format_list

MINIMUM_AGE_NS = 3600 * 10**9
_MOVE = "give the cache a folder of its own"
_NOT_OURS = "not a file of gpucache, so it stays; move it elsewhere"


def leftovers(root: RootFolder, now_ns: int) -> Iterator[Leftover]:
    """Every leftover, one by one; raises CacheUnusableError if ``entries/`` cannot be read."""
    yield from _beside(root)
    for folder, name in _listed(root, layout.TMP):
        ours = layout.is_beside(layout.TMP, name)
        left = "left by a writer that was stopped" if ours else _NOT_OURS
        yield from _old(folder, name, now_ns, left)
    for folder, name in _listed(root, layout.LOCKS):
        with suppress(OSError):
            if not layout.is_beside(layout.LOCKS, name):
                yield from _old(folder, name, now_ns, _NOT_OURS)
            elif not lock.held(folder, name):
                yield from _old(folder, name, now_ns, "a lock that nobody holds")
    for folder, name, stray in walk(root):
        if stray:
            with suppress(OSError):
                yield _leftover(folder, name, now_ns, _NOT_OURS)


def remove_leftover(root: RootFolder, leftover: Leftover) -> bool:
    """Remove a leftover that is ours and whose size is unchanged; whether that was done. Raises nothing."""
    try:
        *parts, name = leftover.path.relative_to(root.path).parts
        place = tuple(parts)
        if place not in (layout.TMP, layout.LOCKS) or not layout.is_beside(place, name):
            return False
        with root.open(*parts) as folder:
            status = folder.lstat(name)
            if not stat.S_ISREG(status.st_mode) or status.st_size != leftover.size_bytes:
                return False
            return _is_removed(folder, place, name)
    except (OSError, ValueError, CacheUnusableError):
        return False


def is_removed_as_left(folder: Folder, place: tuple[str, ...], name: str, now_ns: int) -> bool:
    """Remove a file of ours in ``tmp/`` or ``locks/`` if nobody can be using it; raises OSError."""
    old = any(_old(folder, name, now_ns, ""))
    return old and _is_removed(folder, place, name)


def _is_removed(folder: Folder, place: tuple[str, ...], name: str) -> bool:
    if place == layout.LOCKS:
        return lock.remove_unheld(folder, name)
    folder.unlink(name)
    return True


def _beside(root: RootFolder) -> Iterator[Leftover]:
    """The files of others directly in the root, as a single leftover, however many there are."""
    with suppress(OSError, CacheUnusableError), root.open() as top:
        names = sorted(found.name for found in top.entries())
        strange = [name for name in names if not layout.is_in_root(name)]
        if strange and layout.VERSION_FOLDER in names:
            yield Leftover(top.path, 0, 0, f"it holds {format_list(strange)} as well, which stay; {_MOVE}")


def _listed(root: RootFolder, place: tuple[str, ...]) -> Iterator[tuple[Folder, str]]:
    with suppress(OSError), root.open(*place) as folder:
        for found in folder.entries():
            yield folder, found.name


def _old(folder: Folder, name: str, now_ns: int, detail: str) -> Iterator[Leftover]:
    with suppress(OSError):
        leftover = _leftover(folder, name, now_ns, detail)
        if leftover.age_ns > MINIMUM_AGE_NS:
            yield leftover


def _leftover(folder: Folder, name: str, now_ns: int, detail: str) -> Leftover:
    status = folder.lstat(name)
    # By the time of change: a writer sets the time of modification to when it compiled.
    return Leftover(folder.path / name, status.st_size, max(0, now_ns - status.st_ctime_ns), detail)
