"""One lock per key, so that processes and threads that need the same program compile it once.

It is an advisory lock of the operating system (``flock``) on a separate file. The kernel frees it when its
holder dies, so the existence of the file means nothing. The holder removes the file before it frees the lock;
a process that gets the lock of a removed file notices by comparing inodes, and tries again. Without such
locks (Windows, a read-only or unusual file system) no process waits. Must not know the compiled program.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gpucache.folders import Folder, give_back

if sys.platform != "win32":
    import fcntl

_MODE = 0o600
"""The mode of lock files, also in a shared root: a user who can open one can keep its owner waiting."""
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.1


class _Hold:
    """A lock of this process. A forked child must close its copy, or the lock outlives this process."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd: int | None = fd


_held: set[_Hold] = set()


def _forget_in_child() -> None:
    for hold in _held:
        if hold.fd is not None:
            give_back(hold.fd)
            hold.fd = None
    _held.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_in_child)


@contextmanager
def single_flight(folder: Folder, name: str, timeout_s: float) -> Iterator[bool]:
    """Take a lock; yields False, without it, after ``timeout_s`` seconds or if locks are unavailable."""
    hold = _wait(folder, name, timeout_s)
    try:
        yield hold is not None
    finally:
        if hold is not None:
            _release(folder, name, hold)


def held(folder: Folder, name: str) -> bool:
    """Whether a process has the lock of this file; raises OSError."""
    if sys.platform == "win32":
        return True
    fd = folder.open_file(name)
    try:
        return not _lock(fd)
    finally:
        give_back(fd)


def remove_unheld(folder: Folder, name: str) -> bool:
    """Remove a lock file unless its lock is taken; returns whether it did. Raises OSError."""
    if sys.platform == "win32":
        return False
    fd = folder.open_file(name)
    try:
        if not _lock(fd) or not _is_at(fd, folder, name):
            return False
        folder.unlink(name)
        return True
    finally:
        give_back(fd)


def _wait(folder: Folder, name: str, timeout_s: float) -> _Hold | None:
    deadline = time.monotonic() + timeout_s
    pause = _FIRST_PAUSE_S
    while True:
        try:
            hold = _try(folder, name)
        except OSError:
            return None
        left = deadline - time.monotonic()
        if hold is not None or left <= 0:
            return hold
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _try(folder: Folder, name: str) -> _Hold | None:
    if sys.platform == "win32":
        raise OSError("this platform has no locks that the kernel frees")
    fd = folder.open_for_writing(name, os.O_RDWR, _MODE)
    try:
        if _lock(fd) and _is_at(fd, folder, name):
            hold = _Hold(fd)
            _held.add(hold)
            return hold
    except BaseException:
        give_back(fd)
        raise
    give_back(fd)
    return None


def _release(folder: Folder, name: str, hold: _Hold) -> None:
    if hold.fd is None:
        return
    # The file goes before the lock: in the other order, another process's lock file could be removed.
    with suppress(OSError):
        folder.unlink(name)
    _held.discard(hold)
    give_back(hold.fd)


def _lock(fd: int) -> bool:
    if sys.platform != "win32":
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _is_at(fd: int, folder: Folder, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), folder.lstat(name))
    except FileNotFoundError:
        return False
