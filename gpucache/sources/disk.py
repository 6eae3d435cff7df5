"""The questions that a walk asks of the disk, recorded so that they can be asked again later.

A closure depends only on these questions and their answers. So a remembered closure is valid as long
as every question still has the same answer, see ``closure_memos``. Paths of one file are recognised by a
number, assigned in the order in which files are seen, not by the inode: a copied tree has the same numbers.

Also reads one program, or finds all sources below directories by their suffixes.
"""

# Paths are bytes, as names in sources are, and pathlib accepts only text.
# ruff: noqa: PTH115, PTH116, PTH118, PTH120, PTH208

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import AnyStr, Literal, NamedTuple

from gpucache.errors import SourceError, UnreadSourceError
from gpucache.host import os_errors
from gpucache.host.file_stamps import stamp_of
from gpucache.keys import Asked, digest
from gpucache.model import Language, Program
from gpucache.units import format_size

NO_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL})
_CHUNK = 64 * 1024
# Without O_NONBLOCK opening a FIFO would wait for its other end.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)

Question = Literal["look", "read", "list", "real", "watch"]


class Look(NamedTuple):
    """The kind of file at a path, after following links."""

    kind: Literal["", "folder", "file", "other"] = ""
    """Empty if this user can see nothing there."""
    number: int = 0
    """A number that all paths of one file or directory share."""
    error: OSError | None = None
    """Why nothing is known about it."""


class Disk:
    """The disk as one walk sees it: every question is recorded with its answer."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        """The value of ``Closure.asked``."""
        self.stamps: list[tuple[str, tuple[int, ...]]] = []
        """Paths with their inode, size and times, taken before reading: they change with the file."""
        self.failed = False
        """Whether an answer was an error that may be gone next time."""
        self.seen: dict[bytes, os.stat_result | None] = {}
        """The status of each path that was looked at; None if nothing was there."""
        self.contents: dict[bytes, os.stat_result] = {}
        """The status of each file before it was read."""
        self.of_process = False
        """Whether a path leads through a link of /proc, where each process finds different files."""
        self.began_ns = time.time_ns()
        self._looks: dict[bytes, Look] = {}
        self._watched: tuple[bytes, ...] = ()
        self._passed: set[bytes] = set()
        self._numbers: dict[tuple[int, int], int] = {}

    def look(self, path: bytes) -> Look:
        """The kind of file at a path, looked at once; raises ValueError for a NUL in the path."""
        found = self._looks.get(path)
        if found is None:
            found = self._looks[path] = self._status(path)
            self._note("look", path, f"{found.kind}{found.number}")
            self._watch_way(path)
            if not found.number and path.startswith(self._watched):
                self._watch_nearest(path)
        return found

    def read(self, path: bytes, limit: int) -> tuple[bytes, str] | None:
        """The content of a file, at most ``limit + 1`` bytes, and its digest; None if it cannot be read.

        Raises OSError.
        """
        try:
            fd = os.open(path, _READ)
        except OSError as error:
            if error.errno not in NO_FILE:
                self.failed = True
                raise
            self._note("read", path, "")
            return None
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):  # it was replaced since it was looked at
                raise OSError(errno.EINVAL, "it is no longer a regular file")
            before = self.contents.setdefault(path, status)
            self.failed = self.failed or stamp_of(before) != stamp_of(status)
            self.stamps.append((os.fsdecode(path), stamp_of(status)))
            self._watch_way(path)
            data = _read_all(fd, status.st_size, limit)
        except OSError:
            self.failed = True
            raise
        finally:
            os.close(fd)
        content = digest(data)
        self._note("read", path, content)
        return data, content

    def names(self, folder: bytes) -> list[bytes]:
        """The names in a directory, sorted; empty if it is not a directory. Raises OSError."""
        try:
            found = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            found = []
        except OSError:
            self.failed = True
            raise
        self._note("list", folder, digest(b"\0".join(found)))
        return found

    def real(self, path: bytes) -> bytes:
        found = os.path.realpath(path)
        self._note("real", path, os.fsdecode(found))
        self._watch_way(os.path.join(path, b""))
        return found

    def watch(self, folder: bytes) -> None:
        """Add the stamp of a directory, which changes when names in it change.

        From now on directories below it in which a name was missing are added, too.
        """
        self._watched += (os.path.join(folder, b""),)
        self._watch_nearest(os.path.join(folder, b"."))
        self._watch_way(os.path.join(folder, b""))
        self._note("watch", folder, "")

    def _watch_nearest(self, path: bytes) -> None:
        """Add the stamp of the nearest existing directory above a path."""
        folder = os.path.join(os.path.dirname(path), b"")
        while folder.startswith(self._watched) and folder not in self._passed:
            with suppress(OSError):
                self.stamps.append((os.fsdecode(folder), stamp_of(os.stat(folder))))
                self._passed.add(folder)
                return
            folder = os.path.join(os.path.dirname(folder.rstrip(b"/")), b"")

    def _watch_way(self, path: bytes) -> None:
        """Add the stamps of the links and directories on the way to a path."""
        for place, status in on_the_way(path, self._passed):
            if stat.S_ISLNK(status.st_mode) and status.st_dev == _device_of_processes():
                self.of_process = True
            if instant := changed_itself_ns(status):
                name = place if place == path else os.path.join(place, b"")
                self.stamps.append((os.fsdecode(name), (status.st_ino, instant)))

    def answers(self, asked: Iterable[Asked], limit: int) -> bool:
        """Whether every question still has its answer; asks in order and stops at the first that differs.

        Raises OSError, ValueError, and KeyError for an unknown question.
        """
        ask: dict[str, Callable[[bytes], object]] = {
            "look": self.look,
            "read": lambda path: self.read(path, limit),
            "list": self.names,
            "real": self.real,
            "watch": self.watch,
        }
        for question, path, answer in asked:
            ask[question](os.fsencode(path))
            if self.asked[-1][2] != answer:
                return False
        return not self.failed

    def _status(self, path: bytes) -> Look:
        try:
            status = os.stat(path)
        except OSError as error:
            if error.errno in NO_FILE:
                self.seen[path] = None
                return Look()
            self.failed = True
            return Look(error=error)
        self.seen[path] = status
        # Numbered in the order of being seen, so that the same questions give the same numbers.
        number = self._numbers.setdefault((status.st_dev, status.st_ino), len(self._numbers) + 1)
        if stat.S_ISDIR(status.st_mode):
            return Look("folder", number)
        return Look("file" if stat.S_ISREG(status.st_mode) else "other", number)

    def _note(self, question: Question, path: bytes, answer: str) -> None:
        self.asked.append((question, os.fsdecode(path), answer))


@cache
def _device_of_processes() -> int:
    """The device number of /proc, which no other file has; -1 where there is none."""
    try:
        return os.lstat("/proc/self").st_dev
    except OSError:
        return -1


def on_the_way(path: AnyStr, passed: set[AnyStr]) -> Iterator[tuple[AnyStr, os.stat_result]]:
    """The links and directories on the way to a path, and the path, each with its own status.

    Paths in ``passed`` are left out, and every path returned is added to it.
    """
    pending = [path]
    for place in pending:
        while place and place not in passed:
            passed.add(place)
            above = os.path.dirname(place)
            with suppress(OSError):
                status = os.lstat(place)
                yield place, status
                if stat.S_ISLNK(status.st_mode):
                    pending.append(os.path.join(above, os.readlink(place)))
            place = above


def changed_itself_ns(status: os.stat_result) -> int:
    """When a link was made, or a directory moved, in nanoseconds since 1970; 0 if only its content changed.

    When a name is added or removed, a directory gets both times at once; when it is moved, only one.
    """
    if stat.S_ISLNK(status.st_mode) or (
        stat.S_ISDIR(status.st_mode) and status.st_ctime_ns != status.st_mtime_ns
    ):
        return status.st_ctime_ns
    return 0


def _read_all(fd: int, size: int, limit: int) -> bytes:
    # The size is only a hint: some file systems report 0 for all files.
    parts, left = [], limit + 1
    while left and (part := os.read(fd, min(max(size + 1, _CHUNK), left))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


SUFFIXES = (".cl", ".cu", ".hip", ".spv")
_LARGEST_BYTES = 64 * 1024**2


def load_program(path: Path, name: str, language: Language) -> Program:
    """Read one source; raises SourceError, and UnreadSourceError if it is over 64 MiB."""
    try:
        if path.is_dir():
            raise SourceError(f"{str(path)!r} is a directory; name a source file in it")
        if path.exists() and not path.is_file():
            raise SourceError(f"{str(path)!r} is not a regular file; save the source to a file first")
        with path.open("rb") as file:
            source = file.read(_LARGEST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise SourceError(f"there is no source {str(path)!r}; check its path") from None
    except OSError as error:
        raise os_errors.unreadable(f"the source {str(path)!r}", error, "check its path") from None
    except ValueError as error:
        raise SourceError(f"the source {str(path)!r} cannot be read ({error}); check its path") from None
    if len(source) > _LARGEST_BYTES:
        raise UnreadSourceError(
            f"the source {str(path)!r} is larger than {format_size(_LARGEST_BYTES)}; "
            "check that it is a program, or split it"
        )
    return Program(name, language, source, path)


def discover(paths: Sequence[Path]) -> list[Path]:
    """The sources that files and directories mean, each once, in the order given.

    A file means itself, with any suffix; a directory means its files of ``SUFFIXES`` at any depth,
    sorted, without hidden directories and links to directories. Raises SourceError for a missing path,
    for a directory that cannot be listed, and for a directory without sources.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            try:
                path.stat()
            except (FileNotFoundError, NotADirectoryError, ValueError):
                raise SourceError(f"there is no source {str(path)!r}; check its path") from None
            except OSError as error:
                raise os_errors.unreadable(f"the source {str(path)!r}", error, "check its path") from None
            found[path] = None
            continue
        try:
            below = sorted(_below(path))
        except RecursionError:
            raise SourceError(
                f"the directory {str(path)!r} is too deep; name the directory of its sources"
            ) from None
        if not below:
            raise SourceError(
                f"the directory {str(path)!r} has no sources; name one with {' or '.join(SUFFIXES)} files"
            )
        found.update(dict.fromkeys(below))
    return list(found)


def _below(root: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        place, otherwise = f"the directory {str(error.filename)!r}", "name the sources one by one"
        raise os_errors.unreadable(place, error, otherwise, "listed")

    for folder, folders, files in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(folder, name)
            if path.suffix in SUFFIXES and path.is_file():
                yield path
