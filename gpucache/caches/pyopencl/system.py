"""PyOpenCL's caches as a ``gpucache.caches.interface.System``."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpucache.caches import places
from gpucache.caches.interface import Isolation
from gpucache.caches.pyopencl import names
from gpucache.caches.pyopencl.asking import FIELDS
from gpucache.caches.pyopencl.cache import PyOpenclCache
from gpucache.outcomes import Location

_SHARED = "XDG_CACHE_HOME moves every cache that follows it, as PyOpenCL has no variable of its own"
_NONE = "no variable moves PyOpenCL's cache here; PYOPENCL_NO_CACHE=1 turns it off"


class PyOpenclSystem:
    """What programs keep that build OpenCL sources with PyOpenCL, but for PoCL and NVIDIA."""

    name = names.NAME
    title = "PyOpenCL compiler cache"
    nowhere = "PyOpenCL names no place without a home folder; set XDG_CACHE_HOME"
    wanted: Mapping[str, str] = FIELDS
    tracing: Mapping[str, str] = {}
    """None: hits and misses go to Python's logging at DEBUG, which no variable turns on."""

    def locations(self, environ: Mapping[str, str]) -> Sequence[Location]:
        """A folder for each version of Python that has one, this Python's first; else the folder of all."""
        named, decided_by = names.place(environ)
        root = _absolute(named)
        enabled, problem = names.switched(environ)
        relative = "" if named.is_absolute() else _relative(decided_by, named)
        general = tuple(filter(None, (problem, relative, *_problems(root))))
        found = names.version_folders(root)
        if not found:
            return (Location(self.name, str(root), decided_by, enabled=enabled, problems=general),)
        return tuple(_location(root / name, decided_by, enabled, general) for name in found)

    def recognises(self, path: Path) -> bool:
        """Whether a folder is one Python's, holds entries, or holds such folders. Raises nothing."""
        try:
            if not path.is_dir():
                return False
        except (OSError, ValueError):  # a folder above may not be entered
            return False
        return bool(names.python_of(path.name) or names.version_folders(path)) or names.holds_entries(path)

    def open(self, location: Location) -> PyOpenclCache:
        """The cache of a folder, there or not; raises CacheUnusableError for what is no folder."""
        root = Path(location.root)
        places.require_folder(root, f"name one of PyOpenCL's, or {names.MOVE}")
        own = location.problems or _problems(root)
        return PyOpenclCache(replace(location, problems=own))

    def isolation(self, folder: Path) -> Isolation:
        """The only variable that moves it; it moves others with it."""
        if sys.platform == "win32":
            return Isolation(lacking=_NONE)
        return Isolation((("XDG_CACHE_HOME", str(folder)),), _SHARED)


def _problems(root: Path) -> tuple[str, ...]:
    return tuple(filter(None, (*places.problems(root, move=names.MOVE), names.unread(root))))


def _relative(decided_by: str, root: Path) -> str:
    return f"{decided_by} makes it {root}, another place for every current directory; set an absolute path"


def _absolute(path: Path) -> Path:
    """A path from the root; as it stands where the current directory is gone."""
    try:
        return path.absolute()
    except OSError:
        return path


def _location(root: Path, decided_by: str, enabled: bool, general: tuple[str, ...]) -> Location:
    """One Python's folder; what is wrong with the folder of all is wrong with it, too."""
    python = names.python_of(root.name)
    own = filter(None, (names.unread(root),))
    return Location(
        names.NAME, str(root), decided_by, enabled=enabled, problems=(*general, *own), role=f"Python {python}"
    )
