"""A store in a directory, on this machine or on a file system that several share.

An object is a file that is written in ``tmp/``, synced and linked into place, so that a reader sees all of it
or nothing, and of two writers one creates it. Owns the temporary files: leftovers of killed writers
go at the first write of a process, once they are an hour old. Must not know the content of objects.
"""

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from gpucache.errors import RemoteError
from gpucache.folders import Folder
from gpucache.host import os_errors
from gpucache.remote.objects import Limits, Listed, in_parallel, require_object_name

_TEMPORARY = "tmp"
_TEMPORARY_NAME = re.compile(r"\d+-[0-9a-f]{32}")
_HOUR_NS = 3600 * 10**9
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV)
"""The errors for anything other than a file, such as a link or a socket."""
_FEW = 4


class FolderObjects:
    """See ``gpucache.remote.objects.Objects``."""

    lists = True
    served = True
    writes = True

    def __init__(self, root: Path) -> None:
        self._root = root
        self.url = str(root)
        self._swept = False

    def listed(self, prefix: str) -> Iterator[Listed]:
        """Every file, but temporary ones and links."""
        start = self._root / prefix
        try:
            for path, folders, names in os.walk(start, onerror=_raise):
                if Path(path) == self._root and _TEMPORARY in folders:
                    folders.remove(_TEMPORARY)
                for name in sorted(names):
                    found = Path(path, name)
                    with suppress(FileNotFoundError):  # somebody removes it
                        status = found.lstat()
                        if stat.S_ISREG(status.st_mode) and not name.startswith("."):
                            relative = found.relative_to(self._root).as_posix()
                            yield Listed(relative, status.st_size, status.st_mtime_ns)
        except OSError as error:
            raise self._unread(error) from None

    def read(self, names: Iterable[str], limit_bytes: int) -> Iterator[tuple[str, bytes | None]]:
        """Files, bounded before they are read; few take less time than threads for them."""
        some = in_parallel if not isinstance(names, Sized) or len(names) > _FEW else map
        return some(lambda name: (name, self._read(name, limit_bytes)), names)

    def create(self, objects: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bool]]:
        """Files, each linked into place."""
        return in_parallel(
            lambda pair: (pair[0], self._create(*pair)), objects, weight=lambda pair: len(pair[1])
        )

    def replace(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        """Rename over the old file, below a lock."""
        path = self._path(name)
        try:
            with self._locked(path), self._written(path, change(self._read(name, 1 << 30))) as made:
                made.replace(path)
        except OSError as error:
            raise self._unwritten(error) from None

    def remove(self, names: Iterable[str]) -> None:
        """Unlink."""
        try:
            for name in names:
                self._path(name).unlink(missing_ok=True)
        except OSError as error:
            raise os_errors_remote(f"{self.url} cannot be changed", error) from None

    def close(self) -> None:
        """Nothing is open."""

    def _read(self, name: str, limit_bytes: int) -> bytes | None:
        try:
            fd = os.open(
                self._path(name), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            )
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise self._unread(error) from None
        status = os.fstat(fd)
        try:
            if not stat.S_ISREG(status.st_mode) or status.st_size > limit_bytes:
                return None
            with os.fdopen(os.dup(fd), "rb") as file:
                return file.read(status.st_size)
        except OSError as error:
            raise self._unread(error) from None
        finally:
            os.close(fd)

    def _create(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        if os.path.lexists(path):
            return False
        try:
            with self._written(path, data) as made:
                try:
                    os.link(made, path)
                except FileExistsError:
                    return False
                except OSError:  # a file system without hard links
                    if os.path.lexists(path):
                        return False
                    made.replace(path)
        except OSError as error:
            raise self._unwritten(error) from None
        return True

    @contextmanager
    def _written(self, path: Path, data: bytes) -> Iterator[Path]:
        """A temporary file with some bytes, on disk, for a path; gone afterwards."""
        made = self._root / _TEMPORARY / f"{os.getpid()}-{uuid4().hex}"
        for folder in (made.parent, path.parent):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            with made.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                now_ns = os.fstat(file.fileno()).st_mtime_ns
            yield made
        finally:
            made.unlink(missing_ok=True)
        if not self._swept:
            self._swept = True
            self._sweep(now_ns)

    def _sweep(self, now_ns: int) -> None:
        """Remove temporary files of writers that were killed, by the clock of the file system."""
        with suppress(OSError), Folder.at(self._root) as root, root.folder(_TEMPORARY) as folder:
            for one in list(folder.entries()):
                if _TEMPORARY_NAME.fullmatch(one.name):
                    with suppress(FileNotFoundError):
                        if folder.lstat(one.name).st_mtime_ns < now_ns - _HOUR_NS:
                            folder.unlink(one.name)

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        if sys.platform == "win32":
            yield
            return
        import fcntl

        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path.parent / f".{path.name}.lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _path(self, name: str) -> Path:
        return self._root / require_object_name(name)

    def _unread(self, error: OSError) -> RemoteError:
        return os_errors_remote(f"{self.url} cannot be read", error)

    def _unwritten(self, error: OSError) -> RemoteError:
        return os_errors_remote(f"{self.url} cannot be written", error)


def open_url(url: str, limits: Limits) -> FolderObjects:  # noqa: ARG001 - a directory takes no time limits
    """The store of a path or of a ``file://`` URL."""
    return FolderObjects(Path(url.removeprefix("file://")).expanduser().absolute())


def os_errors_remote(told: str, error: OSError) -> RemoteError:
    """An error of the operating system as one of a store."""
    return RemoteError(f"{told} ({os_errors.reason(error)}); {os_errors.remedy(error, 'check its path')}")


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
