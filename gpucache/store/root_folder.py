"""The root of a cache and the directories in it: opened without following links, made on demand.

Owns the root's creation, its modes and its CACHEDIR.TAG, and how a file is written atomically. Must not know
the content of entries, histories or locks.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder, give
from gpucache.store import layout
from gpucache.store.tag import TAG_NAME, TAG_TEXT
from gpucache.store.trust import open_root

RECENCY_NS = 60 * 10**9
"""The age that the last recorded use of a file must have before another one is recorded."""
_KEPT_DEPTH = 2
"""The depth of directories that are held open; the 256 directories of entries are below it."""
UNUSABLE = (OSError, CacheUnusableError)
"""The errors of a root or directory that cannot be used, or not at the moment."""


def note_use(fd: int, status: os.stat_result, created_ns: int | None = None) -> None:
    """Record a use in the mtime of a file: its first one, then one a minute, so that most uses only read.

    Its mtime is ``created_ns`` until it is used. The clock may have gone back. Raises nothing.
    """
    now_ns, last_ns = time.time_ns(), status.st_mtime_ns
    if (last_ns == created_ns or abs(now_ns - last_ns) > RECENCY_NS) and os.utime in os.supports_fd:
        with suppress(OSError):
            os.utime(fd, ns=(now_ns, now_ns))


class RootFolder:
    """One root, with the modes of the directories and files that are made in it.

    A private root has 0700 and 0600. A shared one, which other users read, has 0755 and 0644 and no
    CACHEDIR.TAG, because archivers would leave it out of images. Without ``writable`` it makes nothing.
    """

    def __init__(self, root: Path, *, shared: bool = False, writable: bool = True) -> None:
        self.path = root
        self.shared = shared
        self.writable = writable
        self.folder_mode, self.file_mode = (0o755, 0o644) if shared else (0o700, 0o600)
        self._kept: dict[tuple[str, ...], Folder] | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Open the root and its directories once in the block, in which many files are read or written."""
        self._kept = {}
        try:
            yield
        finally:
            self._kept = None  # which closes them once no thread has any

    def open(self, *parts: str) -> Folder:
        """Open a directory below the root; raises CacheUnusableError for the root, OSError for the rest."""
        kept = self._kept
        if kept is not None and len(parts) <= _KEPT_DEPTH:
            if parts not in kept:
                made = self.open(*parts[:-1]).folder(parts[-1]) if parts else open_root(self.path)
                kept.setdefault(parts, made)  # another thread may be faster
            return kept[parts].lent()
        depth = 0 if kept is None else _KEPT_DEPTH
        folder = self.open(*parts[:depth]) if depth else open_root(self.path)
        for name in parts[depth:]:  # step by step, as the function that opens a path takes longer to import
            with folder as outer:
                folder = outer.folder(name)
        return folder

    def make(self, *parts: str) -> Folder:
        """Open a directory to write to, creating it; raises CacheUnusableError for the root, else OSError."""
        if not self.writable:
            raise CacheUnusableError(
                f"the cache at {self.path} is read-only; unset GPUCACHE_READ_ONLY to write"
            )
        try:
            if parts:  # a root with a directory in it exists
                return self.open(*parts)
        except FileNotFoundError:
            pass
        folder = self._make_root()
        for name in parts:
            with folder as outer:
                folder = outer.make(name, self.folder_mode)
        return folder

    def put(
        self,
        folder: Folder,
        name: str,
        data: bytes,
        *,
        used_ns: int | None = None,
        durable: bool | None = None,
    ) -> None:
        """Write a file to ``tmp/`` and rename it into a directory, so that no process sees half of it.

        ``used_ns`` is its modification time. If ``durable``, which is the default with that time, it
        survives a power cut. A failure leaves nothing in ``tmp/``; a writer that is killed leaves one file
        there. Raises OSError, CacheUnusableError.
        """
        durable = used_ns is not None if durable is None else durable
        partial = f"{os.getpid()}-{os.urandom(8).hex()}-{name}"
        times_ns = None if used_ns is None else (used_ns, used_ns)
        with self.make(*layout.TMP) as tmp:
            tmp.publish(partial, folder, name, data, self.file_mode, times_ns=times_ns, durable=durable)

    def _make_root(self) -> Folder:
        try:
            folder = self.open()
        except FileNotFoundError:
            self._make_path(self.path)
            folder = self.open()
        try:
            # Only in an empty directory: the tag makes backups leave out everything in it.
            if not self.shared and not any(True for _ in folder.entries()):
                self._write_tag(folder)
        except BaseException:
            folder.close()
            raise
        return folder

    def _make_path(self, path: Path) -> None:
        if path.is_symlink():
            raise CacheUnusableError(f"the cache root {self.path} is a link to nothing; remove the link")
        if not path.parent.is_dir():
            self._make_path(path.parent)
        try:
            path.mkdir(self.folder_mode)
        except FileExistsError:
            return
        path.chmod(self.folder_mode)
        give(path)

    def _write_tag(self, folder: Folder) -> None:
        try:
            fd = folder.open_for_writing(TAG_NAME, os.O_WRONLY | os.O_EXCL, self.file_mode)
        except FileExistsError:
            return
        try:
            os.write(fd, TAG_TEXT)
        finally:
            os.close(fd)
