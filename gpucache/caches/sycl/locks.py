"""The lock files of a cache: taking them as libsycl does, and telling which ones nobody holds.

Source: libsycl, ``persistent_device_code_cache.cpp`` (``LockCacheItem``): a lock is held while its file
exists, made with O_CREAT | O_EXCL and mode 0200. The file names no process, so a lock whose holder died
can only be told by its age.
"""

import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from gpucache.folders import Folder
from gpucache.units import format_age

STALE_NS = 10 * 60 * 1_000_000_000
"""The age from which a lock counts as held by nobody; libsycl holds one for the writing of two files."""
_MODE = 0o200


class BusyError(Exception):
    """A lock is taken; the message is its file's name. Never leaves the cache."""


@contextmanager
def held(folder: Folder, names: Sequence[str]) -> Iterator[None]:
    """Hold several locks, given in the order in which they are taken; raises BusyError, OSError."""
    with ExitStack() as taken:
        for name in names:
            try:
                os.close(folder.open_for_writing(name, os.O_WRONLY | os.O_EXCL, _MODE))
            except FileExistsError as error:
                raise BusyError(name) from error
            taken.callback(_release, folder, name)
        yield


def age_ns(folder: Folder, name: str) -> int | None:
    """How old a lock is; None where there is none."""
    try:
        return time.time_ns() - folder.lstat(name).st_mtime_ns
    except OSError:
        return None


def is_stale(age: int) -> bool:
    """Whether a lock of some age counts as held by nobody."""
    return age > STALE_NS


def is_strange(folder: Folder, name: str) -> bool:
    """Whether what is called like a lock is none: libsycl makes empty files."""
    try:
        status = folder.lstat(name)
    except OSError:
        return False
    return not stat.S_ISREG(status.st_mode) or status.st_size > 0


def told(folder: Folder, name: str, age: int, effect: str) -> str:
    """What a lock of some age means, as a sentence."""
    if is_strange(folder, name):
        return (
            f"{name} holds something, as no lock of libsycl does, so it may be somebody else's and stays; "
            f"move it elsewhere, as with it {effect}"
        )
    if is_stale(age):
        return (
            f"{name} is {format_age(age)} old, and as it names no process it counts as held by nobody after "
            f"10 min: {effect}; 'gpucache verify --cache sycl --repair' removes it"
        )
    return (
        f"{name} is less than 10 min old, so a program may hold it; if none does: {effect}; "
        f"wait, or remove {name} by hand once no program runs"
    )


def break_stale(folder: Folder, name: str) -> bool:
    """Remove a lock that nobody holds; whether there is none now. Raises OSError."""
    age = age_ns(folder, name)
    if age is None:
        return True
    if not is_stale(age) or is_strange(folder, name):
        return False
    _release(folder, name)
    return True


def _release(folder: Folder, name: str) -> None:
    with suppress(FileNotFoundError):
        folder.unlink(name)
