"""Writing cache files that Futhark restores, so that nobody reads half of one.

Futhark itself truncates the file and writes in place; here it is written aside and renamed. Must not
know how a payload is compiled nor what its key is made of.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from gpucache.caches.futhark import file
from gpucache.caches.futhark.format import is_cache_file
from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder
from gpucache.host import os_errors

_NEW_MODE = 0o666  # less the umask, as fopen makes files


def write_file(path: Path, key: bytes, payload: bytes) -> None:
    """Write a cache file in the place of an older one; PTX loses the NUL that NVRTC puts behind it.

    Raises FormatError for a key that has not 32 bytes, and CacheUnusableError where the file cannot be
    written, or is there and is no cache file; then nothing of it is left.
    """
    data = file.encode(key, file.stored_form(payload))
    try:
        with Folder.at(path.parent) as folder:
            _publish(folder, path, data)
    except FileNotFoundError as error:
        raise CacheUnusableError(f"{path.parent} does not exist; make it, as Futhark does not") from error
    except OSError as error:
        raise CacheUnusableError(os_errors.unwritable(path, error, "name another file")) from error
    except ValueError as error:
        raise CacheUnusableError(f"{path} cannot be written ({error}); name another file") from error


def _publish(folder: Folder, path: Path, data: bytes) -> None:
    mode = _mode_of(folder, path)
    partial = file.partial_name()
    # Not through the folder's own way of making files, which sets the mode whatever the umask.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    fd = os.open(folder.path / partial, flags, _NEW_MODE)
    try:
        _write(fd, data, mode)
        folder.move(partial, folder, path.name)
    except BaseException:
        with suppress(OSError):
            folder.unlink(partial)
        raise
    folder.sync()


def _mode_of(folder: Folder, path: Path) -> int | None:
    """The mode of the file that is replaced; None where there is none. Raises CacheUnusableError."""
    try:
        status = folder.lstat(path.name)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise CacheUnusableError(f"{path} is a link or no file; name the file itself")
    if status.st_size and not is_cache_file(folder, path.name):
        raise CacheUnusableError(f"{path} is there and is no Futhark cache file; name another file")
    return stat.S_IMODE(status.st_mode)


def _write(fd: int, data: bytes, mode: int | None) -> None:
    try:
        if mode is not None and hasattr(os, "fchmod"):
            os.fchmod(fd, mode)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)
