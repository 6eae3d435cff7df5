"""Header files as a tree that can be laid out anywhere, so that a compiler resolves each name as before.

Absolute paths are not kept: a file below an include directory keeps its path from there, and include
directories that are nested, or that a name such as ``../x.h`` climbs out of, keep their relative places.
"""

# Paths are text that may represent any bytes, and nothing else is done with them.
# ruff: noqa: PTH118, PTH120

import os
import posixpath
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from gpucache.recording.builds import Header, RecordedBuild
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
        """The path of a file or directory below the tree."""
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
    """How many directories a name leads up before it leads down."""
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
