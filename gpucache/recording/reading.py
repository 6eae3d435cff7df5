"""Reading a recording that anyone may have written: bounded, checked, and nothing in it trusted.

Damaged parts are reported as problems; the rest is read.

Also makes the builds for ``warm``: sources in memory, headers laid out below a scratch directory.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from gpucache.answers.record import PassedOver
from gpucache.errors import SourceError
from gpucache.host import os_errors
from gpucache.keys import digest as digest_of
from gpucache.recording.builds import (
    LINE_CAP,
    DamagedLineError,
    Line,
    RecordedBuild,
    Recording,
    Seen,
    read_line,
    union,
)
from gpucache.recording.kernels import Kernels, read_kernels
from gpucache.recording.writing import BLOBS, in_place, lay_out, placed
from gpucache.sources.rules import Limits

SUFFIX = ".jsonl"
FILES_CAP = 10_000
BYTES_CAP = 256 << 20
"""The most bytes that are read of all lines together."""
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RecordingFolder:
    """A recording that was read from a directory."""

    folder: Path
    recording: Recording
    damage: tuple[PassedOver, ...] = ()
    blobs: frozenset[str] = frozenset()
    kernels: Kernels = field(default_factory=Kernels)

    def has_sources(self, build: RecordedBuild) -> bool:
        return self.blobs.issuperset(build.blobs())

    def content(self, digest: str) -> bytes:
        """The bytes of a digest; raises SourceError if they are missing or were changed."""
        limit = Limits().file_bytes
        try:
            with _opened(self.folder / BLOBS / digest) as file:
                data = file.read(limit + 1)
        except OSError as error:
            raise SourceError(
                f"the recording has no blob {digest[:12]} that can be read ({error.strerror}); record again"
            ) from None
        if digest_of(data) != digest:
            raise SourceError(f"the blob {digest[:12]} of the recording is damaged; record again")
        return data


def read_recording(folder: Path) -> RecordingFolder:
    """The content of a directory; raises SourceError if it is not a recording."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))  # noqa: PTH208
    except OSError as error:
        otherwise = "name the directory of 'gpucache record -o'"
        raise os_errors.unreadable(f"the recording {str(folder)!r}", error, otherwise) from None
    kernels = read_kernels(folder)
    # A command that built nothing leaves an empty directory.
    if not (names or kernels.anything or (folder / BLOBS).is_dir()):
        raise SourceError(f"{str(folder)!r} is not a recording; name the directory of 'gpucache record -o'")
    reader = _Reader(folder)
    recordings = [reader.recording(name) for name in names[:FILES_CAP]]
    if len(names) > FILES_CAP:
        reader.damage.append(PassedOver(names[FILES_CAP], 0, f"only {FILES_CAP} files are read"))
    damage = (*reader.damage, *kernels.damage)
    return RecordingFolder(folder, union(recordings), damage, _blobs(folder), kernels)


class _Reader:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._left = BYTES_CAP
        self.damage: list[PassedOver] = []

    def recording(self, name: str) -> Recording:
        builds: dict[str, RecordedBuild] = {}
        seen: dict[str, Seen] = {}
        try:
            with _opened(self._folder / name) as file:
                for number, line in self._lines(name, file):
                    if line.build is not None:
                        builds[line.of] = line.build
                    elif line.of not in builds:
                        self.damage.append(PassedOver(name, number, "it adds to a build that was not read"))
                        continue
                    seen[line.of] = seen.get(line.of, Seen()).union(line.seen)
        except OSError as error:
            self.damage.append(PassedOver(name, 0, f"it cannot be read ({error.strerror})"))
        return Recording(builds, seen)

    def _lines(self, name: str, file: BinaryIO) -> Iterator[tuple[int, Line]]:
        number = 0
        while data := file.readline(LINE_CAP + 1):
            number += 1
            self._left -= len(data)
            if self._left < 0:
                self.damage.append(PassedOver(name, number, f"more than {BYTES_CAP >> 20} MiB of lines"))
                return
            try:
                if len(data) > LINE_CAP:
                    self._skip(file)
                yield number, read_line(data)
            except DamagedLineError as error:
                self.damage.append(PassedOver(name, number, str(error)))

    def _skip(self, file: BinaryIO) -> None:
        while (data := file.readline(1 << 20)) and not data.endswith(b"\n") and self._left >= 0:
            self._left -= len(data)


def _opened(path: Path) -> BinaryIO:
    """A regular file, no link and nothing that would be waited for; raises OSError."""
    descriptor = os.open(path, _READ | getattr(os, "O_NOFOLLOW", 0))
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        with closing(file):
            raise OSError(None, "it is not a regular file")
    return file


def _blobs(folder: Path) -> frozenset[str]:
    try:
        return frozenset(name for name in os.listdir(folder / BLOBS) if _DIGEST.fullmatch(name))  # noqa: PTH208
    except OSError:
        return frozenset()


@dataclass(frozen=True, slots=True)
class Replayed:
    """A recorded build that can be requested again on this machine."""

    build: RecordedBuild
    local_sizes: tuple[tuple[int, ...], ...]
    source: bytes | None
    """The source; None if the recording has only its digest."""
    include_dirs: tuple[str, ...] = ()
    """The recorded include directories as laid out, or as given by its program if that calls NVRTC itself."""
    in_place: bool = False
    """Whether its include directories are where they were recorded, with equal headers."""
    directory: str = ""
    """Where its program called NVRTC, if it is built in place; empty for OpenCL."""
    memory_headers: tuple[tuple[str, bytes], ...] = ()
    files: tuple[str, ...] = ()
    """The paths of its headers as recorded, if the headers were not read."""
    problem: str = ""
    """Why it cannot be laid out."""


def replay(folder: RecordingFolder, place: Path) -> Iterator[Replayed]:
    """Every build that did not fail where it was recorded.

    Headers that have gone or changed are written below ``place``.
    """
    laid: dict[tuple[object, ...], tuple[str, ...]] = {}
    for build, seen in folder.recording.rows():
        if seen.failed:
            continue
        if not folder.has_sources(build):
            problem = "a source or header of it is not in the recording" if folder.blobs else ""
            yield Replayed(build, seen.sizes, None, problem=problem)
            continue
        try:
            memory = tuple((name, folder.content(digest)) for name, digest in build.memory_headers)
            dirs, directory = _in_place(build, seen)
            tree = build.folders, build.headers
            if dirs is None and tree not in laid:
                laid[tree] = lay_out(build, folder.content, place / str(len(laid)))
            source, there = folder.content(build.source), dirs is not None
            found = laid[tree] if dirs is None else dirs
            yield Replayed(build, seen.sizes, source, found, there, directory, memory)
        except SourceError as error:
            yield Replayed(build, seen.sizes, None, problem=str(error))
        except OSError as error:
            yield Replayed(
                build, seen.sizes, None, problem=f"its headers cannot be laid out ({error.strerror or error})"
            )


def as_recorded(folder: RecordingFolder) -> Iterator[Replayed]:
    """Every build that did not fail, without its source, as on a machine with its files in the same places.

    Reads nothing.
    """
    for build, seen in folder.recording.rows():
        if seen.failed:
            continue
        call = min(seen.calls, default=None)
        roots = min(seen.roots, default=()) if call is None else call.roots
        try:
            dirs = placed(build.folders, roots) if call is None else call.folders
            found = {include.digest for include in build.includes}
            files = placed((one.path for one in build.headers if one.digest in found), roots)
        except (ValueError, IndexError):  # a number that no root has
            dirs = files = ()
        directory = "" if call is None else call.directory
        yield Replayed(build, seen.sizes, None, dirs, bool(roots), directory, files=files)


def _in_place(build: RecordedBuild, seen: Seen) -> tuple[tuple[str, ...] | None, str]:
    """The include directories of a build where it was recorded, and the directory of its call if it had one.

    None if its headers no longer exist or have changed.
    """
    for call in sorted(seen.calls):
        if in_place(build, call.roots) is not None and Path(call.directory).is_dir():
            return call.folders, call.directory
    return next(filter(None, (in_place(build, roots) for roots in sorted(seen.roots))), None), ""
