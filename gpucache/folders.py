"""An open folder, and everything that is done to the files directly in it.

Works on open descriptors and names without slashes, so that a link put in the way of a path is not
followed; where a platform has no such descriptors (Windows) it works on paths. Must not know what
the files mean nor whom to trust.
"""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# Without O_NONBLOCK opening a FIFO would wait for its other end.
_FILE_FLAGS = _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def give_back(fd: int) -> None:
    """Close a descriptor through which nothing was written; raises nothing.

    A failing disk or server may report an error here too, but what was read has been read, and the
    descriptor is gone either way.
    """
    with suppress(OSError):
        os.close(fd)


class Folder:
    """A folder held open; a context manager that closes it. Every method but ``close`` raises OSError."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path, fd: int | None) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def at(cls, path: Path) -> "Folder":
        """The folder at a path, whose last part may be a link."""
        if _BY_DESCRIPTOR:
            return cls(path, os.open(path, _FOLDER_FLAGS))
        if not path.is_dir():
            raise (
                NotADirectoryError(f"{path} is not a folder")
                if path.exists()
                else FileNotFoundError(str(path))
            )
        return cls(path, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptor back; raises nothing."""
        if self._fd is not None:
            give_back(self._fd)
            self._fd = None

    def status(self) -> os.stat_result:
        """The folder's own status."""
        return self.path.stat() if self._fd is None else os.fstat(self._fd)

    def folder(self, name: str) -> "Folder":
        """A folder in this one, never through a link nor upwards."""
        if name in (os.curdir, os.pardir):
            raise NotADirectoryError(f"{name} is not a folder in {self.path}")
        path = self.path / name
        if self._fd is not None:
            return Folder(path, os.open(name, _FOLDER_FLAGS | _NO_LINK, dir_fd=self._fd))
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise NotADirectoryError(f"{path} is not a folder")
        return Folder(path, None)

    def make(self, name: str, mode: int) -> "Folder":
        """A folder in this one, made with this mode, whatever the umask, if it is missing."""
        try:
            return self.folder(name)
        except FileNotFoundError:
            pass
        try:
            os.mkdir(self._at(name), 0o700, dir_fd=self._fd)
        except FileExistsError:
            return self.folder(name)
        # By name: a umask may have left us no right to open what we made.
        os.chmod(self._at(name), mode, dir_fd=self._fd)
        return self.folder(name)

    def open_file(self, name: str, flags: int = 0) -> int:
        """A descriptor for reading, with flags beyond O_RDONLY; ELOOP for a link."""
        return os.open(self._at(name), os.O_RDONLY | _FILE_FLAGS | flags, dir_fd=self._fd)

    def open_for_writing(self, name: str, flags: int, mode: int) -> int:
        """A descriptor of a file made with this mode, whatever the umask; ``flags`` beyond O_CREAT."""
        fd = os.open(self._at(name), os.O_CREAT | flags | _FILE_FLAGS, mode, dir_fd=self._fd)
        try:
            if sys.platform != "win32" and stat.S_IMODE(os.fstat(fd).st_mode) != mode:
                os.fchmod(fd, mode)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def lstat(self, name: str) -> os.stat_result:
        """The status of a name, links not followed."""
        return os.stat(self._at(name), dir_fd=self._fd, follow_symlinks=False)

    def move(self, name: str, into: "Folder", new_name: str) -> None:
        """Rename into a folder, atomically replacing what is there."""
        os.replace(self._at(name), into._at(new_name), src_dir_fd=self._fd, dst_dir_fd=into._fd)

    def unlink(self, name: str) -> None:
        """Remove a file or link."""
        os.unlink(self._at(name), dir_fd=self._fd)

    def rmdir(self, name: str) -> None:
        """Remove an empty folder, never through a link."""
        os.rmdir(self._at(name), dir_fd=self._fd)

    def entries(self) -> Iterator[os.DirEntry[str]]:
        """What is in the folder, one by one, in no order; one walk at a time, as they share a position."""
        with os.scandir(self.path if self._fd is None else self._fd) as found:
            yield from found

    def sync(self) -> None:
        """Make renames into this folder survive a power cut, where the platform can."""
        if self._fd is not None:
            os.fsync(self._fd)

    def _at(self, name: str) -> str:
        return name if self._fd is not None else os.fspath(self.path / name)
