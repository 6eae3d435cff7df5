"""PyOpenCL's global lock: a file ``lock`` that exists while a program reads or writes the cache.

Source: ``CacheLockManager``. It is taken by O_CREAT | O_EXCL and is empty, so its holder is
unknown; a killed program leaves it behind. A holder needs it for the time of reading or writing three
files, and a waiter gives up after 60 s. A file of that name that is not empty belongs to another program: it
stops every program as well, and is never removed.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches import files
from gpucache.caches.format import Clock, HeldError
from gpucache.caches.pyopencl.locations import LOCK
from gpucache.folders import Folder
from gpucache.units import format_age

STALE_NS = 120 * 10**9
"""A lock older than twice the time for which programs wait is abandoned."""
_REPAIR = "'gpucache verify --cache pyopencl --repair'"
_ATTEMPTS = 5
_PAUSE_S = 0.05
_YOUNG_NS = 10**9


def is_strange(status: os.stat_result) -> bool:
    """Whether a file with the lock's name is not a lock: a lock is an empty file."""
    return not stat.S_ISREG(status.st_mode) or status.st_size > 0


def age_ns(folder: Folder, clock: Clock) -> int | None:
    """How long ago the lock was taken; None where it is free. Raises OSError."""
    try:
        return max(0, clock() - folder.lstat(LOCK).st_mtime_ns)
    except FileNotFoundError:
        return None


def problem(folder: Folder, age_ns: int) -> Problem:
    """The problem of an existing lock of an age in ns, and its effect; raises OSError."""
    path, age = folder.path / LOCK, format_age(age_ns)
    waits = (
        "every program that builds waits 60 s for it and then dies with KeyError: "
        "'PYOPENCL_CACHE_FAILURE_FATAL'"
    )
    if is_strange(folder.lstat(LOCK)):
        detail = f"{path} is not PyOpenCL's lock, which is an empty file, but {waits}; move it elsewhere"
        return Problem(FindingKind.MISPLACED, detail)
    if age_ns > STALE_NS:
        what = f"the lock {path} was left behind {age} ago by a program that was killed"
        return Problem(FindingKind.MISPLACED, f"{what}: {waits}; run {_REPAIR}")
    return Problem(
        FindingKind.LOCKED,
        f"the lock {path} was taken {age} ago, and a program has it or was killed with it: others wait up "
        f"to 60 s for it; if it stays, run {_REPAIR} in two minutes",
    )


@contextmanager
def held(path: Path, clock: Clock) -> Iterator[None]:
    """The lock of a directory, taken as PyOpenCL takes it; raises HeldError, OSError."""
    with files.open_folder(path) as folder, ExitStack() as stack:
        _take(folder, clock, stack)
        yield


def free_stale(folder: Folder, clock: Clock) -> bool:
    """Remove an abandoned lock; True if no such lock exists now. Raises OSError."""
    try:
        seen = folder.lstat(LOCK)
        if clock() - seen.st_mtime_ns <= STALE_NS or is_strange(seen):
            return False
        folder.unlink(LOCK)
    except FileNotFoundError:
        pass
    return True


def _take(folder: Folder, clock: Clock, stack: ExitStack) -> None:
    for _ in range(_ATTEMPTS):
        with suppress(FileExistsError):
            return stack.enter_context(files.held_by_name(folder, LOCK, 0o644))
        age = age_ns(folder, clock)
        if age is not None and age > _YOUNG_NS:
            with suppress(FileNotFoundError):
                if is_strange(folder.lstat(LOCK)):
                    what = f"the file {LOCK} is not PyOpenCL's, and stops its programs"
                    raise HeldError(f"{what}; move it elsewhere")
            if age > STALE_NS:
                what = f"PyOpenCL's lock was left behind {format_age(age)} ago"
                raise HeldError(f"{what}; run {_REPAIR}")
            break
        time.sleep(_PAUSE_S)
    raise HeldError("PyOpenCL's lock is held; try again once the program that has it is done")
