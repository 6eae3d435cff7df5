"""Emptying a driver cache: its own files, in the folders of its layout, and nothing else.

What was written since the clearing began stays, as it is of a program that started meanwhile. Owns
the order: the index goes first, so that a program that starts meanwhile begins a new one and is not
led to binaries that are gone. Must not decide whether to.
"""

import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpucache.caches.cuda_driver.tree import INDEX, Tally, is_folder_of_it, is_its_own
from gpucache.caches.files import open_folder
from gpucache.folders import Folder

_LONGEST_NS = 3600 * 10**9
"""No clearing takes so long: a file from further ahead has a wrong date."""


def clear(root: Path, began_ns: int) -> Tally:
    """Remove all of it that is older than an instant; what could not be removed. Raises OSError."""
    failed = Tally()
    with open_folder(root) as folder:
        _remove(folder, INDEX, began_ns, failed)
        _clear(folder, (), began_ns, failed)
    return failed


def _clear(folder: Folder, parts: Sequence[str], began_ns: int, failed: Tally) -> None:
    for found in folder.entries():
        path = "/".join((*parts, found.name))
        if found.is_dir(follow_symlinks=False):
            if is_folder_of_it(path):
                _clear_below(folder, (*parts, found.name), began_ns, failed)
        elif is_its_own(path):
            _remove(folder, found.name, began_ns, failed)


def _clear_below(outer: Folder, parts: Sequence[str], began_ns: int, failed: Tally) -> None:
    try:
        with outer.folder(parts[-1]) as folder:
            _clear(folder, parts, began_ns, failed)
    except FileNotFoundError:
        return
    except OSError as error:
        failed.add("/".join(parts), error.strerror or "it does not open")
        return
    with suppress(OSError):  # it holds what stays
        outer.rmdir(parts[-1])


def _remove(folder: Folder, name: str, began_ns: int, failed: Tally) -> None:
    try:
        status = folder.lstat(name)
        age_ns = began_ns - status.st_mtime_ns
        if stat.S_ISREG(status.st_mode) and not -_LONGEST_NS < age_ns < 0:
            folder.unlink(name)
    except FileNotFoundError:
        return
    except OSError as error:
        failed.add(name, error.strerror or "it cannot be removed")
