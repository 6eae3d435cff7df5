"""A store in a directory, on this machine or on a file system that several share.

An object is a file that is written in ``tmp/``, synced and linked into place, so that a reader sees all of it
or nothing, and of two writers one creates it. Everything below the directory is opened without following
links. Owns the temporary files: leftovers of killed writers go at the first write of a process, once they are
an hour old. Must not know the content of objects.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from gpucache.errors import RemoteError
from gpucache.folders import Folder, sync_all
from gpucache.host import os_errors
from gpucache.remote.objects import (
    MOST_OBJECTS,
    NO_FILES,
    Files,
    Limits,
    Listed,
    Objects,
    batches,
    bounded,
    in_parallel,
    require_object_name,
    require_removable,
)

_TEMPORARY = "tmp"
_TEMPORARY_NAME = re.compile(r"\d+-[0-9a-f]{32}")
_HOUR_NS = 3600 * 10**9
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV)
"""The errors for anything other than a file, such as a link or a socket."""
_FEW, _SLOW_S = 4, 0.002
"""How many files are read before it is known whether one takes long."""
_LARGEST_REPLACED = 1 << 30
_TOGETHER = 64
_DEEPEST = 8
"""How many directories deep objects are listed, more than any object of gpucache is."""
_Steps = Generator[BinaryIO | bool]


class _Opened(dict[str, Folder]):
    """The root, with an empty name, and the directories in it, opened once for several files."""

    def close(self) -> None:
        for one in self.values():
            one.close()


class FolderObjects(Objects):
    """See ``gpucache.remote.objects.Objects``."""

    def __init__(self, root: Path, *, shared: bool = False) -> None:
        self._root = root
        self.url = str(root)
        self._shared, self._mask = shared, 0o700
        self._swept = False

    def listed(self, prefix: str, expected: int = 0) -> Iterator[Listed]:
        """Every file, but temporary ones and links."""
        try:
            with Folder.at(self._root) as root, ExitStack() as opened:
                parts = prefix.strip("/").split("/")
                start = opened.enter_context(root.folder(*parts)) if prefix else root
                yield from bounded(_files(start, prefix, expected), prefix, expected, self.url)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failed("read", error) from None

    def read(self, names: Iterable[str], limit_bytes: int) -> Iterator[tuple[str, bytes | None]]:
        """Read files, each bounded by its size, without threads, which would cost more than they save."""
        left, began = iter(names), time.monotonic()
        yield from [(name, self._read(name, limit_bytes)) for name in islice(left, _FEW)]
        some = in_parallel if time.monotonic() - began > _FEW * _SLOW_S else map
        yield from some(lambda name: (name, self._read(name, limit_bytes)), left)

    def create(
        self,
        objects: Iterable[tuple[str, bytes]],
        files: Files = NO_FILES,  # noqa: ARG002 - all objects are files
    ) -> Iterator[tuple[str, bool]]:
        """Files, written and synced to disk several together, then linked into place."""
        try:
            with closing(_Opened()) as kept:
                for group in batches(objects, _TOGETHER, lambda pair: len(pair[1])):
                    with ExitStack() as opened:
                        made = [opened.enter_context(closing(self._creation(*one, kept))) for one in group]
                        begun = [next(steps) for steps in made]
                        sync_all([file.fileno() for file in begun if not isinstance(file, bool)])
                        for (name, _), steps in zip(group, made, strict=True):
                            yield name, bool(next(steps))
                            steps.close()
        except OSError as error:
            raise self._failed("written", error) from None

    def replace(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        """Rename over the old file; if two write at once, the last wins."""
        try:
            with self._folder_of(name) as (folder, last):
                data = change(self._read(name, _LARGEST_REPLACED))
                with self._written(data) as (temporary, partial, file):
                    os.fsync(file.fileno())
                    file.close()
                    temporary.move(partial, folder, last)
        except OSError as error:
            raise self._failed("written", error) from None

    def remove(self, names: Iterable[str]) -> None:
        try:
            for name in map(require_removable, names):
                with suppress(FileNotFoundError), self._folder_of(name, make=False) as (folder, last):
                    folder.unlink(last)
        except OSError as error:
            raise self._failed("changed", error) from None

    def _read(self, name: str, limit_bytes: int) -> bytes | None:
        parts = require_object_name(name).split("/")
        try:
            with Folder.at(self._root) as root:
                fd = root.open_file(*parts, flags=getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(fd, "rb") as file:  # a directory is an error here
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode) or status.st_size > limit_bytes:
                    return None
                return file.read(status.st_size)
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise self._failed("read", error) from None

    def _creation(self, name: str, data: bytes, kept: _Opened) -> _Steps:
        """The steps of creating a file: first to write it, which is to be synced then, or False if it exists;
        then to link it, with False if it exists by now."""
        with self._folder_of(name, kept) as (folder, last):
            with suppress(FileNotFoundError):
                folder.lstat(last)
                yield False
                yield False
            with self._written(data, kept) as (temporary, partial, file):
                yield file
                file.close()
                try:
                    temporary.link(partial, folder, last)
                except FileExistsError:
                    yield False
                except OSError:  # a file system without hard links
                    with suppress(FileNotFoundError):
                        folder.lstat(last)
                        yield False
                    temporary.move(partial, folder, last)
                yield True

    @contextmanager
    def _folder_of(
        self, name: str, kept: _Opened | None = None, *, make: bool = True
    ) -> Iterator[tuple[Folder, str]]:
        """The directory of an object with the name there."""
        *parts, last = require_object_name(name).split("/")
        with ExitStack() as opened:
            folders = opened.enter_context(closing(_Opened())) if kept is None else kept
            if "" not in folders:
                if make:
                    self._root.mkdir(0o755 if self._shared else 0o700, parents=True, exist_ok=True)
                folders[""] = Folder.at(self._root)
                self._find_modes(folders[""])
            folder = folders[""]
            for depth, part in enumerate(parts):
                if depth or part not in folders:
                    folder = folder.make(part, self._mask) if make else folder.folder(part)
                    if depth:
                        opened.enter_context(folder)
                folder = folder if depth else folders.setdefault(part, folder)
            yield folder, last

    def _find_modes(self, root: Folder) -> None:
        """Find the permissions of something new: this user's alone, or in a shared store as those of its
        root."""
        if not self._shared:
            for name in ("catalogues", "entries", "blobs"):
                with suppress(OSError):
                    self._shared = bool(root.lstat(name).st_mode & 0o077)
                    break
        self._mask = 0o700 | root.status().st_mode & 0o777 if self._shared else 0o700

    @contextmanager
    def _written(self, data: bytes, kept: _Opened | None = None) -> Iterator[tuple[Folder, str, BinaryIO]]:
        """A temporary file with some bytes, not synced yet, and its directory and name; gone afterwards."""
        with self._folder_of(f"{_TEMPORARY}/file", kept) as (temporary, _):
            partial = f"{os.getpid()}-{os.urandom(16).hex()}"
            try:
                fd = temporary.open_for_writing(partial, os.O_WRONLY | os.O_EXCL, self._mask & 0o666)
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                    file.flush()
                    if not self._swept:
                        self._swept = True
                        self._sweep(temporary, os.fstat(fd).st_mtime_ns)
                    yield temporary, partial, file
            finally:
                with suppress(FileNotFoundError):
                    temporary.unlink(partial)

    def _sweep(self, folder: Folder, now_ns: int) -> None:
        """Remove temporary files of writers that were killed, by the clock of the file system."""
        for one in list(folder.entries()):
            if _TEMPORARY_NAME.fullmatch(one.name):
                with suppress(OSError):
                    if folder.lstat(one.name).st_mtime_ns < now_ns - _HOUR_NS:
                        folder.unlink(one.name)

    def _failed(self, verb: str, error: OSError) -> RemoteError:
        why, otherwise = os_errors.reason(error), "check its path"
        if isinstance(error, NotADirectoryError):  # a link in the place of a directory, say
            why = f"{Path(error.filename).name} is not a directory" if error.filename else why
            otherwise = "move that elsewhere, or check the path"
        return RemoteError(f"{self.url} cannot be {verb} ({why}); {os_errors.remedy(error, otherwise)}")


def open_url(url: str, limits: Limits) -> FolderObjects:
    """The store of a path or of a ``file://`` URL; a directory takes no time limits."""
    root = Path(url.removeprefix("file://")).expanduser().absolute()
    return FolderObjects(root, shared=limits.shared)


def _files(folder: Folder, prefix: str, expected: int) -> Iterator[Listed]:
    for one in sorted(islice(folder.entries(), expected + MOST_OBJECTS + 1), key=lambda one: one.name):
        with suppress(FileNotFoundError):  # somebody removes it
            if one.is_dir(follow_symlinks=False):
                if (prefix or one.name != _TEMPORARY) and prefix.count("/") < _DEEPEST:
                    with folder.folder(one.name) as inner:
                        yield from _files(inner, f"{prefix}{one.name}/", expected)
            elif not one.name.startswith("."):
                status = folder.lstat(one.name)
                if stat.S_ISREG(status.st_mode):
                    yield Listed(f"{prefix}{one.name}", status.st_size, status.st_mtime_ns)
