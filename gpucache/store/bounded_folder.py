"""Directories of small files, bounded in number and bytes: the oldest are removed.

These files may be lost at any time. That costs time or an explanation, never a program, so nothing raises
OSError. Must not know the content of the files.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from gpucache.folders import Folder
from gpucache.store import layout
from gpucache.store.root_folder import UNUSABLE, RootFolder, note_use
from gpucache.store.trust import open_trusted

_SELDOM = 2


class Bounds(NamedTuple):
    """The limits of a directory."""

    files: int
    file_bytes: int
    total_bytes: int
    seldom: bool = False
    """Whether the bounds are applied only at few writes, so that a write costs the same with many files."""
    age: Callable[[str, os.stat_result], int] = lambda _, status: status.st_mtime_ns
    """When a file was made or last used, from its name and status."""


class BoundedFolder:
    """The files of one directory, each named as ``layout.BESIDE`` says: hex digits and ``suffix``."""

    def __init__(self, root: RootFolder, place: tuple[str, ...], suffix: str, bounds: Bounds) -> None:
        self._root = root
        self._place = place
        self._suffix = suffix
        self._bounds = bounds

    def put(self, name: str, data: bytes) -> bool:
        """Write a file, or replace it; returns whether that worked."""
        if len(data) > self._bounds.file_bytes:
            return False
        with suppress(*UNUSABLE), self._root.make(*self._place) as folder:
            self._root.put(folder, name + self._suffix, data)
            # Names are digests: one in 256 begins with these digits.
            if not (self._bounds.seldom and name[:_SELDOM].strip("0")):
                self.trim(folder)
            return True
        return False

    def get(self, name: str, *, use: bool = False) -> bytes | None:
        """The content of a file; None if it is missing, not ours or too large.

        ``use`` records this use, so that less recently used files are removed first.
        """
        with suppress(*UNUSABLE), self._root.open(*self._place) as folder:
            return self._read(folder, name + self._suffix, use=use)
        return None

    def age_s(self, name: str) -> float | None:
        """How many seconds ago a file was written; None if it is not there."""
        with suppress(*UNUSABLE), self._root.open(*self._place) as folder:
            return time.time() - folder.lstat(name + self._suffix).st_mtime
        return None

    def all(self) -> Iterator[tuple[str, bytes]]:
        """Every file with the hex digits of its name, sorted by name."""
        for name in self.names():
            data = self.get(name)
            if data is not None:
                yield name, data

    def names(self) -> list[str]:
        """The hex digits of every file, sorted; no file is read."""
        with suppress(*UNUSABLE), self._root.open(*self._place) as folder:
            return sorted(name.removesuffix(self._suffix) for name in self._ours(folder))
        return []

    def remove(self, name: str) -> None:
        with suppress(*UNUSABLE), self._root.open(*self._place) as folder:
            folder.unlink(name + self._suffix)

    def trim(self, folder: Folder) -> None:
        """Remove the oldest until the bounds are met; ``folder`` is this directory, open."""
        ages = []
        for name in self._ours(folder):
            with suppress(OSError):
                status = folder.lstat(name)
                ages.append((self._bounds.age(name, status), status.st_size, name))
        kept_bytes = 0
        for rank, (_, size, name) in enumerate(sorted(ages, reverse=True)):
            kept_bytes += size
            if rank >= self._bounds.files or kept_bytes > self._bounds.total_bytes:
                with suppress(OSError):
                    folder.unlink(name)

    def _ours(self, folder: Folder) -> list[str]:
        names = (found.name for found in folder.entries())
        return [one for one in names if one.endswith(self._suffix) and layout.is_beside(self._place, one)]

    def _read(self, folder: Folder, name: str, *, use: bool) -> bytes | None:
        with open_trusted(folder, name) as (fd, status):
            if status.st_size > self._bounds.file_bytes:
                return None
            with os.fdopen(os.dup(fd), "rb") as file:
                data = file.read(self._bounds.file_bytes + 1)
            if use:
                note_use(fd, status)
        return data if len(data) <= self._bounds.file_bytes else None
