"""Writing a recording: one file for this process, and blobs that all processes share.

A line is one write in append mode, so a process that is killed loses at most the line it was writing. A
failed write costs a line, never a program. Threads may write at the same time.

Header files are recorded as a tree that can be laid out anywhere, so that a compiler resolves each name as
before. Absolute paths are not kept: a file below an include directory keeps its path from there, and include
directories that are nested, or that a name such as ``../x.h`` climbs out of, keep their relative places.
"""

# Paths of a tree are text that may represent any bytes, and nothing else is done with them.
# ruff: noqa: PTH118, PTH120

import errno
import os
import posixpath
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from gpucache.errors import UsageError
from gpucache.host import os_errors
from gpucache.recording.builds import (
    DamagedLineError,
    Header,
    RecordedBuild,
    Seen,
    build_line,
    read_line,
    seen_line,
)
from gpucache.sources.disk import Disk
from gpucache.sources.rules import Limits

_LIMIT = Limits().file_bytes


class Tree:
    """Relative places of directories and files; ``spelled`` are the names that headers are included by."""

    def __init__(self, folders: Iterable[str], files: Iterable[str], spelled: Iterable[str]) -> None:
        files = list(files)
        climb = max(map(_climb, spelled), default=0)
        known = list(dict.fromkeys(map(_normal, folders)))
        strays = [os.path.dirname(file) for file in files if not any(_is_below(file, each) for each in known)]
        lifted = [_lifted(folder, climb) for folder in (*known, *strays)]
        self.roots = tuple(
            each
            for number, each in enumerate(lifted)
            if not any(
                _is_below(each, other) and (each != other or earlier < number)
                for earlier, other in enumerate(lifted)
            )
        )
        """The absolute directories that the numbers at the top of the tree refer to."""
        self.folders = tuple(
            self.place(folder) for folder in known if any(_is_below(file, folder) for file in files)
        )
        """The directories that contain a file, in search order."""

    def place(self, path: str) -> str:
        path = _normal(path)
        number, root = next(pair for pair in enumerate(self.roots) if _is_below(path, pair[1]))
        return posixpath.normpath(f"{number}/{os.path.relpath(path, root)}")


def read_headers(tree: Tree, files: Sequence[str]) -> tuple[tuple[Header, ...], dict[str, bytes]]:
    """The headers of some files, and their content by digest; a file that is gone is left out.

    Raises OSError.
    """
    disk = Disk()
    headers: list[Header] = []
    contents: dict[str, bytes] = {}
    for file in files:
        path = os.fsencode(file)
        number = disk.look(path).number
        read = disk.read(path, _LIMIT)
        if read is not None and len(read[0]) <= _LIMIT:
            headers.append(Header(tree.place(file), read[1], number))
            contents[read[1]] = read[0]
    numbers = {number: place for place, number in enumerate(dict.fromkeys(one.number for one in headers))}
    return tuple(Header(one.path, one.digest, numbers[one.number]) for one in headers), contents


def lay_out(build: RecordedBuild, content: Callable[[str], bytes], place: Path) -> tuple[str, ...]:
    """Write the headers of a build below a directory, and return its include directories there.

    ``content`` gives the bytes of a digest. Raises OSError, and the errors of ``content``.
    """
    for folder in build.folders:
        (place / folder).mkdir(parents=True, exist_ok=True)
    written: dict[int, Path] = {}
    for header in build.headers:
        file = place / header.path
        file.parent.mkdir(parents=True, exist_ok=True)
        if header.number in written:
            os.link(written[header.number], file)
        else:
            file.write_bytes(content(header.digest))
            written[header.number] = file
    return tuple(str(place / folder) for folder in build.folders)


def in_place(build: RecordedBuild, roots: Sequence[str]) -> tuple[str, ...] | None:
    """The include directories of a build where they were recorded; None if its headers no longer exist."""
    disk = Disk()
    try:
        for header in build.headers:
            read = disk.read(os.fsencode(_absolute(header.path, roots)), _LIMIT)
            if read is None or read[1] != header.digest:
                return None
        return placed(build.folders, roots)
    except (OSError, ValueError, IndexError):  # also a number that no root has
        return None


def placed(paths: Iterable[str], roots: Sequence[str]) -> tuple[str, ...]:
    """Paths below a tree where it was recorded; raises ValueError or IndexError without their root."""
    return tuple(_absolute(path, roots) for path in paths)


def _absolute(path: str, roots: Sequence[str]) -> str:
    number, _, rest = path.partition("/")
    return os.path.join(roots[int(number)], rest) if rest else roots[int(number)]


def _normal(path: str) -> str:
    return os.path.realpath(path) if ".." in path else os.path.normpath(path)


def _climb(name: str) -> int:
    depth = lowest = 0
    for part in name.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        lowest = min(lowest, depth)
    return -lowest


def _lifted(folder: str, levels: int) -> str:
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


BLOBS = "blobs"
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600


class Writer:
    """The part of a recording that this process writes. ``sources`` says whether blobs are kept."""

    def __init__(self, folder: Path, *, sources: bool = True) -> None:
        """Raises UsageError if the directory cannot be used, or others may read it."""
        self._folder = folder
        self.keeps_sources = sources
        """Whether anything is written but names and digests."""
        self._name = f"{time.time_ns()}-{os.getpid()}-{token_hex(4)}.jsonl"
        self._lock = threading.Lock()
        self._written: dict[str, Seen] = {}
        self._torn = False
        try:
            folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
            if os.name == "posix" and folder.stat().st_mode & 0o077:
                raise UsageError(
                    f"a recording contains sources, and others may enter {str(folder)!r}; "
                    f"run chmod 700 on it, or name a new directory with -o"
                )
            if sources:
                (folder / BLOBS).mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
        except OSError as error:
            otherwise = "name another directory with -o"
            raise os_errors.unwritable(repr(str(folder)), error, otherwise, "made a recording") from None

    @property
    def builds(self) -> int:
        return len(self._written)

    @property
    def failed(self) -> int:
        return sum(seen.failed for seen in self._written.values())

    def build(self, build: RecordedBuild, seen: Seen, contents: Mapping[str, bytes]) -> str:
        """Write a build and its files by their digests; return why not, or nothing if it is written."""
        with self._lock:
            is_known = build.digest in self._written
            line = b"" if is_known else build_line(build, seen)
            try:
                if line:
                    read_line(line)  # a file that could not be read is not written
                blobs = (*(() if is_known else build.blobs()), *seen.blobs())
                for digest in dict.fromkeys(blobs) if self.keeps_sources else ():
                    if digest in contents:
                        self._keep(digest, contents[digest])
                if is_known:
                    return self._add(build.digest, seen)
                self._append(line)
            except DamagedLineError as error:
                return f"it is larger than a recording keeps: {error}"
            except OSError as error:
                return _unwritten(error)
            self._written[build.digest] = seen
            return ""

    def seen(self, digest: str, seen: Seen) -> None:
        """Write the observations of a build that this process wrote."""
        with self._lock:
            if digest in self._written:
                self._add(digest, seen)

    def _add(self, digest: str, seen: Seen) -> str:
        before = self._written[digest]
        now = before.union(seen)
        if now != before:
            try:
                self._append(seen_line(digest, seen))
            except OSError as error:
                return _unwritten(error)
            self._written[digest] = now
        return ""

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._folder / self._name, flags, _PRIVATE_FILE)
        try:
            # Half a line, as on a full disk, costs the line that follows nothing.
            written = os.write(descriptor, b"\n" + line if self._torn else line)
            self._torn = written < len(line)
            if self._torn:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)

    def _keep(self, digest: str, content: bytes) -> None:
        blob = self._folder / BLOBS / digest
        with suppress(OSError):
            if blob.stat().st_size == len(content):
                return
        new = blob.with_name(f".{digest[:16]}-{self._name}")
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE_FILE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            new.replace(blob)
        finally:
            new.unlink(missing_ok=True)


def _unwritten(error: OSError) -> str:
    return os_errors.unwritable("the recording", error, "name another directory with -o").message
