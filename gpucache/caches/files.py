"""Reading the files of other caches: bounded, never through a link, leaving access times alone.

Owns how a foreign file is opened and told apart from what it was at the scan. Works on open folders
(``gpucache.folders.Folder``). Must not know any format.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.units import format_size

BLOCK_BYTES = 512
_QUIET = getattr(os, "O_NOATIME", 0)


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells whether a file is still the one that was seen."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Identity":
        """The identity of a file's status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def allocated_bytes(status: os.stat_result) -> int:
    """What a file takes on disk."""
    blocks: int = getattr(status, "st_blocks", -(-status.st_size // BLOCK_BYTES))
    return blocks * BLOCK_BYTES


def open_folder(root: Path, *parts: str) -> Folder:
    """A folder below a root, which may itself be a link, but nothing below it. Raises OSError."""
    folder = Folder.at(root)
    if not parts:
        return folder
    with folder:
        return folder.folder(*parts)


@contextmanager
def opened(folder: Folder, name: str) -> Iterator[tuple[int, os.stat_result]]:
    """Descriptor and status of a regular file; raises FormatError for anything else, OSError."""
    try:
        fd = folder.open_file(name, flags=_QUIET)
    except PermissionError:
        fd = folder.open_file(name)  # O_NOATIME is for the owner alone
    except OSError as error:
        if stat.S_ISLNK(folder.lstat(name).st_mode):
            raise FormatError(f"{name} is a link, which is not followed") from error
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{name} is not a regular file")
        yield fd, status
    finally:
        os.close(fd)


def read(folder: Folder, name: str, limit_bytes: int) -> bytes:
    """A whole file of at most so many bytes; raises FormatError for a larger one or no file, OSError."""
    with opened(folder, name) as (fd, status):
        if status.st_size > limit_bytes:
            raise FormatError(
                f"{name} has {format_size(status.st_size)}, over the {format_size(limit_bytes)} that are read"
            )
        return _read(fd, status.st_size, 0)


def read_part(folder: Folder, name: str, offset: int, count: int) -> bytes:
    """Up to ``count`` bytes of a file from an offset; raises FormatError for no file, OSError."""
    with opened(folder, name) as (fd, status):
        return _read(fd, max(0, min(count, status.st_size - offset)), offset)


def _read(fd: int, count: int, offset: int) -> bytes:
    parts = []
    os.lseek(fd, offset, os.SEEK_SET)  # Windows has no pread
    while count > 0:
        part = os.read(fd, count)  # nearly always all of it, so that it is in memory once
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
