"""The headers that an entry was made with, held against the files that are there now.

Source: ``check_dependencies``, ``get_file_md5sum`` and ``get_dependencies`` in ``pyopencl/cache.py``. A
header is unchanged when its mtime is, or else when its MD5 is: recorded of its bytes, compared of its text,
so that CR LF becomes LF on the way and what is not UTF-8 raises. Paths come from a foreign file: only
regular files of bounded size are read.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from gpucache.caches import files
from gpucache.caches.pyopencl import sources
from gpucache.caches.pyopencl.pickled import Dependency
from gpucache.errors import FormatError
from gpucache.units import printable

_LARGEST_BYTES = 16 << 20
_MOST_BYTES = 128 << 20
_SEARCHES = 20_000


class State(Enum):
    """What became of a header since an entry was made, as PyOpenCL sees it."""

    SAME = "unchanged"
    CHANGED = "changed"
    MISSING = "missing"
    LINE_ENDS = "touched, and its CR LF line ends compare as changed"
    NOT_TEXT = "touched, and not UTF-8"
    UNREAD = "touched, and not read by gpucache"


@dataclass(frozen=True, slots=True)
class Compared:
    """A header of an entry, and what became of it."""

    dependency: Dependency
    state: State
    md5: str = ""
    """Of its bytes now, where they were read."""
    read_bytes: int = 0

    @property
    def path(self) -> str:
        """Its path, as it can be shown."""
        return printable(self.dependency.path, None)


def compare_all(dependencies: Sequence[Dependency]) -> Iterator[Compared]:
    """Every header held against its file, each once; those beyond 128 MiB in all are not read."""
    budget = _MOST_BYTES
    for dependency in dict.fromkeys(dependencies):
        one = compare(dependency) if budget > 0 else Compared(dependency, State.UNREAD)
        budget -= one.read_bytes
        yield one


def compare(dependency: Dependency) -> Compared:
    """A header held against its file. Raises nothing."""
    try:
        if Path(dependency.path).stat().st_mtime == dependency.mtime:
            return Compared(dependency, State.SAME, dependency.md5)
        data = _read(Path(dependency.path))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return Compared(dependency, State.MISSING)
    except (OSError, FormatError):
        return Compared(dependency, State.UNREAD)
    return Compared(dependency, _state(data, dependency.md5), _md5(data), len(data))


def resolved(source: bytes, folders: Sequence[str], cwd: Path) -> dict[str, str] | None:
    """The headers a build would record now, MD5 by path; None where they are more than are followed."""
    found: dict[str, str] = {}
    pending = [sources.followed(source)]
    budget = _MOST_BYTES
    for _ in range(_SEARCHES):
        if not pending:
            return found
        name = next(pending[-1], None)
        if name is None:
            pending.pop()
        elif new := _find(name, folders, cwd, found):
            path, data = new
            found[path] = _md5(data)
            budget -= len(data)
            pending.append(sources.followed(data))
        if budget < 0:
            return None
    return None


def _find(name: bytes, folders: Sequence[str], cwd: Path, known: dict[str, str]) -> tuple[str, bytes] | None:
    """Path and content of a header the first time it is met; None later, and where it is nowhere."""
    for folder in folders:
        try:
            path = (cwd / folder / name.decode()).resolve()
            if str(path) in known:
                continue  # PyOpenCL goes on to the next folder, too
            return str(path), _read(path)
        except (OSError, ValueError, FormatError, RuntimeError):
            continue
    return None


def _read(path: Path) -> bytes:
    with files.open_folder(path.parent) as folder:
        return files.read(folder, path.name, _LARGEST_BYTES)


def _state(data: bytes, recorded: str) -> State:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return State.NOT_TEXT
    if _md5(text.replace("\r\n", "\n").replace("\r", "\n").encode()) == recorded:
        return State.SAME
    return State.LINE_ENDS if _md5(data) == recorded else State.CHANGED


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
