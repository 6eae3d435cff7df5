"""Every change to the cache: entries removed under PyOpenCL's lock, and a lock that nobody holds.

``info`` goes first: should it end there, PyOpenCL finds an entry without it and builds it again.
"""

import os
import stat
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gpucache.caches.pyopencl import checks, entries, locking, names
from gpucache.caches.pyopencl.entries import Seen
from gpucache.folders import Folder
from gpucache.outcomes import GONE, CacheEntry, Checked, Kept

_ORDER = (names.INFO, names.BINARY, names.SOURCE)


def _holds_nothing(status: os.stat_result) -> bool:
    """Whether nothing but a name goes with a link or a file."""
    return stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and not status.st_size)


def seen_of(entry: CacheEntry) -> Seen:
    """What the scan saw of an entry of this cache."""
    if not isinstance(entry.handle, Seen):
        raise TypeError("an entry of another cache")
    return entry.handle


def remove(root: Path, seen: Seen, clock: locking.Clock = time.time_ns) -> Kept | None:
    """Remove an entry's folder if it is unchanged and holds nothing foreign; None once removed."""
    try:
        with names.open_cache(root, seen.root) as folder, locking.held(folder, clock):
            return _remove(folder, seen)
    except locking.HeldError as error:
        return error.kept
    except OSError as error:
        return Kept.by(error, seen.root)


def repair(root: Path, checked: Checked, seen: Seen, clock: locking.Clock = time.time_ns) -> Checked:
    """Remove an entry that is broken still; a finding that stays says why."""
    with suppress(OSError), names.open_cache(root, seen.root) as folder:
        if not _broken(folder, seen.key):
            return checked
        locking.free_stale(folder, clock)
    kept = remove(root, seen, clock)
    if kept is None or kept == GONE:
        return checked.mended()
    return replace(
        checked,
        findings=tuple(replace(one, detail=f"{one.detail}; {kept.reason}") for one in checked.findings),
    )


def repair_loose(top: Path, checked: Checked, clock: locking.Clock = time.time_ns) -> Checked:
    """Remove a lock left behind, what is in the way of an entry, or an empty folder; nothing else."""
    path = Path(checked.entry)
    if names.python_of(path.name):
        return checked.mended() if remove_empty(path) else checked
    with suppress(OSError, locking.HeldError), names.open_cache(top, path.parent) as root:
        if path.name == names.LOCK:
            return checked.mended() if locking.free_stale(root, clock) else checked
        if names.is_key(path.name):
            if not _holds_nothing(root.lstat(path.name)):
                return checked
            locking.free_stale(root, clock)
            with locking.held(root, clock), suppress(FileNotFoundError):
                root.unlink(path.name)
            return checked.mended()
    return checked


def remove_empty(folder: Path) -> bool:
    """Remove the folder of another Python that has nothing in it; whether it is gone."""
    if names.python_of(folder.name) in ("", names.own_python()):
        return False
    with suppress(OSError):
        folder.rmdir()
        return True
    return False


def _remove(root: Folder, seen: Seen) -> Kept | None:
    with root.folder(seen.key) as inner:
        if entries.identities(inner) != seen.identities:
            return Kept()
        foreign = [name for name in seen.names if name not in names.PARTS]
        if foreign:
            return Kept(
                f"its folder holds {names.shown(foreign[0])}, none of PyOpenCL's; remove that yourself"
            )
        for name in _ORDER:
            with suppress(FileNotFoundError):
                inner.unlink(name)
    root.rmdir(seen.key)
    return None


def _broken(root: Folder, key: str) -> bool:
    """Whether an entry has something that its removal mends; also where it is gone."""
    try:
        with root.folder(key) as inner:
            return any(problem.mended for problem in checks.problems(inner))
    except FileNotFoundError:
        return True
