"""An open directory, and all operations on the files directly in it.

Works on open descriptors and names without slashes, so that no link in a path is followed; on a platform
without such descriptors (Windows) it works on paths. Must not know the meaning of files or whom to trust.
"""

import errno
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# Without O_NONBLOCK opening a FIFO would wait for its other end.
_FILE_FLAGS = _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
# openat2(2), linux/openat2.h: resolve flags that forbid links and paths that leave the directory.
_OPENAT2 = 437
_THROUGH_NOTHING = 0x02 | 0x04 | 0x08
_CLOSED_BY_EXEC = getattr(os, "O_CLOEXEC", 0)
_PR_GET_SECCOMP = 21
_LONG_PATH = 248


def _reached(path: Path) -> str:
    """A path as Windows takes it though it has more than 260 characters; elsewhere as it is.

    Source: Microsoft's "Maximum Path Length Limitation"; a directory may have 12 fewer.
    """
    text = os.fspath(path)
    if sys.platform == "win32" and len(text) >= _LONG_PATH:
        return f"\\\\?\\UNC\\{text[2:]}" if text.startswith("\\\\") else f"\\\\?\\{text}"
    return text


def give_back(fd: int) -> None:
    """Close a descriptor that was only read from; raises nothing.

    A failing disk or server may report an error in the close, too, but the data was read, and the descriptor
    is closed anyway.
    """
    try:  # noqa: SIM105 - a hit closes several
        os.close(fd)
    except OSError:
        pass


def write(fd: int, data: bytes) -> None:
    """Write all of some bytes, as one call may write a part of them; raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def sync_all(fds: Sequence[int]) -> None:
    """Let files survive a power cut; raises OSError.

    All are on their way before the first is waited for: on a journal, the others take no more time then.
    """
    for fd in fds:
        if sys.platform == "linux":
            with suppress(OSError):  # of a file that is none
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    for fd in fds:
        os.fsync(fd)


class Folder:
    """An open directory; a context manager that closes it. Every method but ``close`` raises OSError."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: "Path | tuple[Folder, str]", fd: int | None) -> None:
        self._path = path
        self._fd = fd

    @property
    def path(self) -> Path:
        """The path at which it was opened; made on demand, as a hit does not need it."""
        if isinstance(self._path, tuple):
            outer, name = self._path
            self._path = outer.path / name
        return self._path

    @property
    def fd(self) -> int | None:
        """Its descriptor, for as long as it is open; None where directories have none."""
        return self._fd

    @classmethod
    def at(cls, path: Path, *, follow: bool = True) -> "Folder":
        """The directory at a path; its last part may be a link with ``follow``, and always on Windows."""
        if _BY_DESCRIPTOR:
            return cls(path, os.open(path, _FOLDER_FLAGS if follow else _FOLDER_FLAGS | _NO_LINK))
        if not os.path.isdir(_reached(path)):  # noqa: PTH112
            raise (
                NotADirectoryError(f"{path} is not a directory")
                if os.path.exists(_reached(path))  # noqa: PTH110
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
        """Close the descriptor; raises nothing."""
        if self._fd is not None:
            give_back(self._fd)
            self._fd = None

    def __del__(self) -> None:
        self.close()

    def lent(self) -> "Folder":
        """The directory for a caller for whom it stays open, and who does not close it."""
        lent = _Lent(self._path, self._fd)
        lent.owner = self
        return lent

    def status(self) -> os.stat_result:
        return os.stat(_reached(self.path)) if self._fd is None else os.fstat(self._fd)  # noqa: PTH116

    def folder(self, *parts: str) -> "Folder":
        """A directory in this one, or with several parts a deeper one; never through a link or upwards."""
        if os.curdir in parts or os.pardir in parts:
            raise NotADirectoryError(f"{'/'.join(parts)} is not a directory in {self.path}")
        if len(parts) != 1:
            fd = self._open_below(parts, _FOLDER_FLAGS)
            return self._walk(parts) if fd is None else Folder((self, "/".join(parts)), fd)
        [name] = parts
        if self._fd is not None:
            return Folder((self, name), os.open(name, _FOLDER_FLAGS | _NO_LINK, dir_fd=self._fd))
        path = self.path / name
        if not stat.S_ISDIR(os.lstat(_reached(path)).st_mode):
            raise NotADirectoryError(f"{path} is not a directory")
        return Folder(path, None)

    def _walk(self, parts: tuple[str, ...]) -> "Folder":
        folder = self.folder(parts[0])
        for name in parts[1:]:
            with folder as outer:
                folder = outer.folder(name)
        return folder

    def make(self, name: str, mode: int) -> "Folder":
        """A directory in this one, made with this mode, regardless of the umask, if it is missing."""
        try:
            return self.folder(name)
        except FileNotFoundError:
            pass
        try:
            os.mkdir(self._at(name), 0o700, dir_fd=self._fd)
        except FileExistsError:
            return self.folder(name)
        # By name, as a umask may have left us without permission to open it.
        os.chmod(self._at(name), mode, dir_fd=self._fd)
        made = self.folder(name)
        if made._fd is not None:
            give(made._fd)
        return made

    def open_file(self, *parts: str, flags: int = 0) -> int:
        """A descriptor for reading, with more flags than O_RDONLY; fails with ELOOP for a link.

        The last part names the file, the others the directories on the way to it.
        """
        if len(parts) == 1:
            return os.open(self._at(parts[0]), os.O_RDONLY | _FILE_FLAGS | flags, dir_fd=self._fd)
        fd = self._open_below(parts, os.O_RDONLY | _FILE_FLAGS | flags)
        if fd is None:
            with self._walk(parts[:-1]) as folder:
                return folder.open_file(parts[-1], flags=flags)
        return fd

    def _open_below(self, parts: tuple[str, ...], flags: int) -> int | None:
        """A descriptor by one system call; None to open it step by step, which raises any error."""
        openat2 = _openat2() if self._fd is not None else None
        if openat2 is None:
            return None
        fd = openat2(self._fd, os.fsencode("/".join(parts)), _how(flags | _CLOSED_BY_EXEC))
        return fd if fd >= 0 else None

    def open_for_writing(self, name: str, flags: int, mode: int) -> int:
        """A descriptor of a file made with this mode, for any umask; ``flags`` are added to O_CREAT."""
        fd = os.open(self._at(name), os.O_CREAT | flags | _FILE_FLAGS, mode, dir_fd=self._fd)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EPERM, "it is not a regular file", name)
            if sys.platform != "win32" and stat.S_IMODE(os.fstat(fd).st_mode) != mode:
                os.fchmod(fd, mode)
            give(fd)
        except BaseException:
            os.close(fd)
            if flags & os.O_EXCL:  # nobody else can have made it
                with suppress(OSError):
                    self.unlink(name)
            raise
        return fd

    def publish(
        self,
        partial: str,
        into: "Folder",
        name: str,
        data: bytes | Iterable[bytes],
        mode: int,
        *,
        times_ns: tuple[int, int] | None = None,
        durable: bool = False,
    ) -> None:
        """Write a new file here and rename it into a directory, so that no process sees half of it.

        ``data`` may come in pieces. A ``durable`` one survives a power cut. A failure leaves nothing here.
        Raises OSError.
        """
        fd = self.open_for_writing(partial, os.O_WRONLY | os.O_EXCL, mode)
        try:
            try:
                for piece in (data,) if isinstance(data, bytes) else data:
                    write(fd, piece)
                if times_ns is not None and os.utime in os.supports_fd:
                    os.utime(fd, ns=times_ns)
                if durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
            self.move(partial, into, name)
        except BaseException:
            with suppress(OSError):
                self.unlink(partial)
            raise
        if durable:
            into.sync()

    def lstat(self, name: str) -> os.stat_result:
        return os.stat(self._at(name), dir_fd=self._fd, follow_symlinks=False)

    def readlink(self, name: str) -> str:
        return os.readlink(self._at(name), dir_fd=self._fd)

    def move(self, name: str, into: "Folder", new_name: str) -> None:
        """Rename into a directory, atomically, and replace a file of that name."""
        os.replace(self._at(name), into._at(new_name), src_dir_fd=self._fd, dst_dir_fd=into._fd)

    def link(self, name: str, into: "Folder", new_name: str) -> None:
        """Give a file another name; raises FileExistsError if that is taken."""
        os.link(
            self._at(name),
            into._at(new_name),
            src_dir_fd=self._fd,
            dst_dir_fd=into._fd,
            follow_symlinks=False,
        )

    def unlink(self, name: str) -> None:
        os.unlink(self._at(name), dir_fd=self._fd)

    def rmdir(self, name: str) -> None:
        """Remove an empty directory, never through a link."""
        os.rmdir(self._at(name), dir_fd=self._fd)

    def entries(self) -> Iterator[os.DirEntry[str]]:
        """The directory's entries, one by one, unsorted; one walk at a time, as walks share a position."""
        with os.scandir(_reached(self.path) if self._fd is None else self._fd) as found:
            yield from found

    def names(self) -> list[str]:
        return os.listdir(_reached(self.path) if self._fd is None else self._fd)  # noqa: PTH208

    def sync(self) -> None:
        """Make renames into this directory survive a power cut, if the platform can do that."""
        if self._fd is not None:
            os.fsync(self._fd)

    def _at(self, name: str) -> str:
        return name if self._fd is not None else _reached(self.path / name)


class _Lent(Folder):
    """A directory that is closed when neither its owner nor anybody it is lent to has it any more."""

    __slots__ = ("owner",)
    owner: Folder

    def close(self) -> None:
        """Leave it open."""


@cache
def _how(flags: int) -> bytes:
    """The ``struct open_how`` of a call that follows no link."""
    return struct.pack("=QQQ", flags, 0, _THROUGH_NOTHING)


@cache
def _openat2() -> Callable[[int | None, bytes, bytes], int] | None:
    """The system call that opens a file below a directory without following links; None if it is missing."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        prctl, call = libc.prctl, libc.syscall
    except Exception:  # no ctypes, no executable memory, no such function, or an audit hook refuses
        return None
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)

    def openat2(folder: int | None, path: bytes, how: bytes) -> int:
        """A descriptor, or a negative number.

        A filter of system calls may kill a process for an unknown call, and a program may install one at any
        time, so each call asks first.
        """
        if prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) != 0:
            return -1
        return int(call(_OPENAT2, folder, path, how, len(how)))

    return openat2


def give(place: int | Path) -> None:
    """Give a new file to the user whom ``GPUCACHE_OWNER_UID`` names to the administrator; raises OSError."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return
    uid = os.environ.get("GPUCACHE_OWNER_UID", "")
    if uid.isdecimal() and isinstance(place, int):
        os.fchown(place, int(uid), -1)
    elif uid.isdecimal():  # never the target of a link, which that user may have put there meanwhile
        os.chown(place, int(uid), -1, follow_symlinks=False)


def is_own(status: os.stat_result) -> bool:
    """Whether a file belongs to this user, or to the one that ``GPUCACHE_OWNER_UID`` names to the
    administrator."""
    if not hasattr(os, "geteuid"):
        return True
    uid = os.geteuid()
    return status.st_uid == uid or (uid == 0 and str(status.st_uid) == os.environ.get("GPUCACHE_OWNER_UID"))


def for_its_owner(status: os.stat_result) -> str:
    """The beginning of a remedy if an administrator looks after another user's cache; else empty."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return ""
    return f"set GPUCACHE_OWNER_UID={status.st_uid} to look after it for that user, or "
