"""A folder of small files, each named by hex digits, bounded in number and bytes: the oldest are removed.

A file here may be lost at any time. That costs time, never a program, so nothing raises OSError. A file is
written under another name and renamed. Must not know what the files say.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder
from gpucache.store import layout
from gpucache.store.root_folder import RootFolder
from gpucache.store.trust import open_trusted

RECENCY_NS = 3600 * 10**9
"""How old the last recorded use must be before another one is recorded."""
_UNUSABLE = (OSError, CacheUnusableError)
_HEX = re.compile(r"[0-9a-f]{16}|[0-9a-f]{64}")
_SELDOM = 2


class Bounds(NamedTuple):
    """How much a folder holds at most."""

    files: int
    file_bytes: int
    total_bytes: int
    seldom: bool = False
    """Whether the bounds are applied at few writes, so that one costs no more where there are many files."""


class BoundedFolder:
    """The files of one folder, each called by its hex digits and ``suffix``."""

    def __init__(self, root: RootFolder, place: tuple[str, ...], suffix: str, bounds: Bounds) -> None:
        self._root = root
        self._place = place
        self._suffix = suffix
        self._bounds = bounds

    def put(self, name: str, data: bytes) -> bool:
        """Write a file, in place of one that may be there; whether that worked."""
        if len(data) > self._bounds.file_bytes:
            return False
        with suppress(*_UNUSABLE), self._root.make(*self._place) as folder:
            with self._root.make(*layout.TMP) as tmp:
                _write(tmp, folder, name + self._suffix, data, self._root.file_mode)
            # Names are digests: those that begin so are one in 256.
            if not (self._bounds.seldom and name[:_SELDOM].strip("0")):
                self._trim(folder)
            return True
        return False

    def get(self, name: str, *, use: bool = False) -> bytes | None:
        """The content of a file; None if there is none that is ours and small enough.

        ``use`` records that it was used now, so that others are removed before it.
        """
        with suppress(*_UNUSABLE), self._root.open(*self._place) as folder:
            return self._read(folder, name + self._suffix, use=use)
        return None

    def all(self) -> Iterator[tuple[str, bytes]]:
        """Every file with its hex digits, by name."""
        with suppress(*_UNUSABLE), self._root.open(*self._place) as folder:
            for name in sorted(filter(self._is_ours, (entry.name for entry in folder.entries()))):
                with suppress(*_UNUSABLE):
                    data = self._read(folder, name)
                    if data is not None:
                        yield name.removesuffix(self._suffix), data

    def names(self) -> list[str]:
        """The hex digits of every file, sorted; none of them is read."""
        with suppress(*_UNUSABLE), self._root.open(*self._place) as folder:
            return sorted(
                one.name.removesuffix(self._suffix) for one in folder.entries() if self._is_ours(one.name)
            )
        return []

    def remove(self, name: str) -> None:
        """Remove a file."""
        with suppress(*_UNUSABLE), self._root.open(*self._place) as folder:
            folder.unlink(name + self._suffix)

    def _is_ours(self, name: str) -> bool:
        return name.endswith(self._suffix) and _HEX.fullmatch(name.removesuffix(self._suffix)) is not None

    def _read(self, folder: Folder, name: str, *, use: bool = False) -> bytes | None:
        with open_trusted(folder, name) as (fd, status):
            if status.st_size > self._bounds.file_bytes:
                return None
            with os.fdopen(os.dup(fd), "rb") as file:
                data = file.read(self._bounds.file_bytes + 1)
            now_ns = time.time_ns()
            if use and now_ns - status.st_mtime_ns > RECENCY_NS:
                with suppress(OSError):
                    os.utime(fd, ns=(now_ns, now_ns))
        return data if len(data) <= self._bounds.file_bytes else None

    def _trim(self, folder: Folder) -> None:
        """Remove the oldest until the bounds hold."""
        ages = []
        for name in [entry.name for entry in folder.entries() if self._is_ours(entry.name)]:
            with suppress(OSError):
                status = folder.lstat(name)
                ages.append((status.st_mtime_ns, status.st_size, name))
        kept_bytes = 0
        for rank, (_, size, name) in enumerate(sorted(ages, reverse=True)):
            kept_bytes += size
            if rank >= self._bounds.files or kept_bytes > self._bounds.total_bytes:
                with suppress(OSError):
                    folder.unlink(name)


def _write(tmp: Folder, folder: Folder, name: str, data: bytes, mode: int) -> None:
    aside = f"{os.getpid()}-{os.urandom(8).hex()}-{name}"
    try:
        fd = tmp.open_for_writing(aside, os.O_WRONLY | os.O_EXCL, mode)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
        finally:
            os.close(fd)
        tmp.move(aside, folder, name)
    except BaseException:
        with suppress(OSError):
            tmp.unlink(aside)
        raise
