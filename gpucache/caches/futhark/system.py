"""Futhark's cache files as a ``gpucache.caches.interface.System``."""

import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpucache.caches import files, places
from gpucache.caches.futhark import entries
from gpucache.caches.futhark.asking import FIELDS
from gpucache.caches.futhark.cache import FutharkCache
from gpucache.caches.futhark.checks import MOVE
from gpucache.caches.interface import Isolation
from gpucache.errors import CacheUnusableError
from gpucache.outcomes import Location

_NAMES_LOOKED_AT = 2000
_LACKING = (
    "Futhark names its cache file by --cache-file alone; give the program a file of its own there, or none"
)


class FutharkSystem:
    """The files that programs made by ``futhark cuda``, ``hip`` and ``opencl`` leave where they are told."""

    name = entries.NAME
    title = "Futhark cache files"
    nowhere = "Futhark keeps a cache only where --cache-file names one; give that file"
    wanted: Mapping[str, str] = FIELDS
    tracing: Mapping[str, str] = {}

    def locations(self, environ: Mapping[str, str]) -> Sequence[Location]:  # noqa: ARG002 - none decides
        """None: only who starts a program knows the file."""
        return ()

    def recognises(self, path: Path) -> bool:
        """Whether a path is a cache file, or a folder that directly holds one. Raises nothing."""
        try:
            with files.open_folder(path if path.is_dir() else path.parent) as folder:
                if path.is_dir():
                    return any(entries.cache_files(folder, _NAMES_LOOKED_AT))
                return entries.is_cache_file(folder, path.name)
        except (OSError, ValueError):
            return False

    def open(self, location: Location) -> FutharkCache:
        """The file or folder of a location, there or not; raises CacheUnusableError for anything else."""
        root = Path(location.root)
        try:
            mode = root.lstat().st_mode
        except (FileNotFoundError, PermissionError):  # the second is a problem of the location
            mode = stat.S_IFREG
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise CacheUnusableError(
                f"{location.root!r} cannot be looked at ({why}); name a Futhark cache file or its folder"
            ) from error
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            raise CacheUnusableError(
                f"{root} is neither a file nor a folder; name a Futhark cache file or its folder"
            )
        return FutharkCache(replace(location, problems=location.problems or _problems(root)))

    def isolation(self, folder: Path) -> Isolation:  # noqa: ARG002 - no variable reads it
        """Not to be had: no environment variable moves the file."""
        return Isolation(lacking=_LACKING)


def _problems(root: Path) -> tuple[str, ...]:
    """Of the folder, which Futhark does not make: it fails to write without a word but in its log."""
    folder = entries.folder_of(root)
    told = (*places.problems(folder, move=MOVE, makes=False), entries.unread(root))
    return tuple(filter(None, told))
