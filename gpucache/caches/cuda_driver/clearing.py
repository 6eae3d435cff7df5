"""Emptying a driver cache: everything below its root, links removed and not followed.

What was written since the clearing began stays, as it is of a program that started meanwhile. Owns
the order: the index goes first, so that a program that starts meanwhile begins a new one and is not
led to binaries that are gone. Must not decide whether to.
"""

import stat
from contextlib import suppress
from pathlib import Path

from gpucache.caches.cuda_driver.tree import DEEPEST, INDEX, Tally
from gpucache.caches.files import open_folder
from gpucache.folders import Folder

_LONGEST_NS = 3600 * 10**9
"""No clearing takes so long: a file from further ahead has a wrong date."""


def clear(root: Path, began_ns: int) -> Tally:
    """Remove all that is older than an instant; what could not be removed. Raises OSError for the root."""
    failed = Tally()
    with open_folder(root) as folder:
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(folder.lstat(INDEX).st_mode):
                _remove(folder, INDEX, began_ns, failed)
        _clear(folder, began_ns, failed, 0)
    return failed


def _clear(folder: Folder, began_ns: int, failed: Tally, depth: int) -> None:
    for found in folder.entries():
        if found.is_dir(follow_symlinks=False):
            _clear_below(folder, found.name, began_ns, failed, depth + 1)
        else:
            _remove(folder, found.name, began_ns, failed)


def _clear_below(outer: Folder, name: str, began_ns: int, failed: Tally, depth: int) -> None:
    if depth > DEEPEST:
        failed.add(name, "it lies too deep")
        return
    try:
        with outer.folder(name) as folder:
            _clear(folder, began_ns, failed, depth)
            path = folder.path
    except FileNotFoundError:
        return
    except OSError as error:
        failed.add(name, error.strerror or "it does not open")
        return
    with suppress(OSError):  # it holds what stays
        path.rmdir()


def _remove(folder: Folder, name: str, began_ns: int, failed: Tally) -> None:
    try:
        age_ns = began_ns - folder.lstat(name).st_mtime_ns
        if not -_LONGEST_NS < age_ns < 0:
            folder.unlink(name)
    except FileNotFoundError:
        return
    except OSError as error:
        failed.add(name, error.strerror or "it cannot be removed")
