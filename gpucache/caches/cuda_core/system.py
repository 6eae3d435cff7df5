"""cuda.core's program cache as a ``gpucache.caches.interface.System``."""

import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from gpucache.caches import files, places
from gpucache.caches.cuda_core import checks, explaining, layout
from gpucache.caches.cuda_core.cache import CudaCoreCache
from gpucache.caches.interface import Isolation
from gpucache.folders import Folder
from gpucache.outcomes import Location

_NAMES_LOOKED_AT = 300
"""There are 256 groups."""
_LACKING = (
    "a program that gives FileStreamProgramCache a path keeps its cache there, whatever the environment says"
)


class CudaCoreSystem:
    """Caches that programs ask for by ``Program.compile(cache=FileStreamProgramCache())``.

    No program uses one unless it is written to, and no variable turns it off or bounds it; so a
    location counts as enabled where its folder is there.
    """

    name = layout.NAME
    title = "cuda.core program cache"
    nowhere = "cuda.core names no place without a home folder or XDG_CACHE_HOME; set XDG_CACHE_HOME"
    wanted: Mapping[str, str] = explaining.FIELDS
    tracing: Mapping[str, str] = {}

    def locations(self, environ: Mapping[str, str]) -> Sequence[Location]:
        """The default place, for a cache that is given no path; none where there is no home."""
        default = layout.default_root(environ)
        if default is None:
            return ()
        named, decided_by = default
        root = _absolute(named)
        told = () if named.is_absolute() else (_relative(decided_by, named),)
        problems = (*told, *_problems(root))
        return (Location(self.name, str(root), decided_by, enabled=_is_folder(root), problems=problems),)

    def recognises(self, path: Path) -> bool:
        """Whether a folder has ``entries`` of the right names, and ``tmp``. Raises nothing."""
        try:
            if not _is_folder(path / layout.TMP):
                return False
            with files.open_folder(path, layout.ENTRIES) as entries, Folder.at(path) as root:
                return _holds_entry(entries) or (_is_new(entries) and _holds_no_more(root))
        except (OSError, ValueError):
            return False

    def open(self, location: Location) -> CudaCoreCache:
        """The cache at a location, there or not; raises CacheUnusableError for what is no folder."""
        root = Path(location.root)
        places.require_folder(root, "name the folder of a cuda.core cache")
        return CudaCoreCache(replace(location, problems=location.problems or _problems(root)))

    def isolation(self, folder: Path) -> Isolation:
        """The variable that moves the default place, and with it every other cache that follows it."""
        return Isolation(((layout.VARIABLE, str(folder)),), _LACKING)


def _absolute(path: Path) -> Path:
    """A path from the root; as it stands where the current directory is gone."""
    try:
        return path.absolute()
    except OSError:
        return path


def _relative(variable: str, root: Path) -> str:
    return f"{variable} makes it {root}, another place for every current directory; set an absolute path"


def _problems(root: Path) -> tuple[str, ...]:
    return tuple(filter(None, (*places.problems(root, move=layout.MOVE), checks.unread(root))))


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def _names(folder: Folder) -> list[str]:
    return [found.name for found in islice(folder.entries(), _NAMES_LOOKED_AT)]


def _holds_entry(entries: Folder) -> bool:
    for name in filter(layout.is_group, _names(entries)):
        with entries.folder(name) as group:
            if any(map(layout.is_rest, _names(group))):
                return True
    return False


def _is_new(entries: Folder) -> bool:
    return all(map(layout.is_group, _names(entries)))


def _holds_no_more(root: Folder) -> bool:
    return set(_names(root)) == {layout.ENTRIES, layout.TMP}
