"""Temporary folders of this process, and the removal of those that killed processes left behind.

A process removes its own folders at its end. One that is killed cannot, so each process removes the abandoned
folders of its user before it makes its first own one. A process locks its folder, and makes an empty file in
it, the mark, once it has the lock. So a folder with a mark and without a lock is abandoned. The mark goes
last: a folder in which a dying child still writes is found by the next sweep. Without such locks (Windows,
some network file systems) nothing is removed. A folder that somebody named, and that was made for a command
which then failed, is removed as well. Must not know what is kept in a folder.
"""

import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from gpucache.host.interrupts import held

if sys.platform != "win32":
    import fcntl

PREFIX = "gpucache-"
MARK = ".gpucache-scratch"
PLACES = ("/tmp", "/dev/shm")
"""Where temporary folders may go if TMPDIR does not do."""


@contextmanager
def scratch(purpose: str, parent: str = "") -> Iterator[Path]:
    """An empty folder in TMPDIR or ``parent``, removed afterwards with everything in it; raises OSError."""
    parent = parent or temporary()
    sweep(parent)
    place = tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=parent)
    lock = None
    try:
        lock = _lock(place)
        if lock is not None:
            Path(place, MARK).touch()
        yield Path(place)
    finally:
        with held():
            _remove(place)
        if lock is not None:
            os.close(lock)


def temporary() -> str:
    """Where temporary folders go; /dev/shm where Python finds no place. Raises OSError where that is none.

    Python looks for a place that files can be written to. For a folder with a socket less will do, as with
    ``ulimit -f 0``, and in a container whose file system is read-only /dev/shm is what is left.
    """
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        for place in (os.environ.get("TMPDIR", ""), *PLACES):
            if place and os.access(place, os.W_OK | os.X_OK):
                return place
    raise OSError(errno.EROFS, "no folder for temporary files can be written", "/dev/shm")


def absent(folder: Path) -> tuple[Path, ...]:
    """A folder and those above it that are not there; the deepest first."""
    return tuple(place for place in (folder, *folder.parents) if not os.path.lexists(place))


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, one after another, in which nothing lies; raises nothing."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@cache
def sweep(parent: str) -> None:
    """Remove what killed processes of this user left below ``parent``; done once in a process."""
    if sys.platform == "win32":
        return
    with suppress(OSError), os.scandir(parent) as found:
        for entry in found:
            if entry.name.startswith(PREFIX):
                with suppress(OSError):
                    _remove_left(entry.path)


def _remove_left(place: str) -> None:
    if os.lstat(place).st_uid != os.geteuid() or not stat.S_ISREG(os.lstat(Path(place, MARK)).st_mode):
        return
    lock = _lock(place)
    if lock is not None:
        _remove(place)
        os.close(lock)


def _remove(place: str) -> None:
    """Remove a folder as far as that can be done; what is left keeps its mark."""
    with suppress(OSError), os.scandir(place) as found:
        for entry in tuple(found):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != MARK:
                with suppress(OSError):
                    Path(entry).unlink()
    mark = Path(place, MARK)
    with suppress(OSError):
        mark.unlink(missing_ok=True)
        try:
            Path(place).rmdir()
        except OSError:
            mark.touch()


def _lock(place: str) -> int | None:
    """A descriptor that locks a folder; None if another process has the lock, or there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
