"""libsycl as a system that keeps caches: where they are, what they look like, how to redirect them.

Must not read entries.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from gpucache.caches import places
from gpucache.caches.interface import Isolation
from gpucache.caches.sycl import environment, naming
from gpucache.caches.sycl.cache import SyclCache
from gpucache.caches.sycl.entries import CACHE
from gpucache.caches.sycl.environment import SyclLocation
from gpucache.caches.sycl.explain import WANTED
from gpucache.errors import CacheUnusableError
from gpucache.outcomes import Location

_LOOKED_AT = 32
"""How many names of a folder are looked at before it counts as none of ours."""
_WAYS_TRIED = 4
_SURE = frozenset({naming.KERNELS, naming.SIZE_FILE})
_TRACE_ALL = "7"


class SyclSystem:
    """The persistent cache of SYCL programs built with oneAPI DPC++."""

    name = CACHE
    title = "SYCL persistent device code cache"

    @property
    def wanted(self) -> Mapping[str, str]:
        """What an explanation can be asked for."""
        return WANTED

    @property
    def tracing(self) -> Mapping[str, str]:
        """The disk cache, the cache in memory, and that of kernel_compiler."""
        return {environment.TRACE: _TRACE_ALL}

    def locations(self, environ: Mapping[str, str]) -> Sequence[Location]:
        """The one place of this environment; none without a home."""
        found = environment.root_of(environ)
        if found is None:
            return ()
        root, decided_by = found
        problems = (*environment.problems(environ), *places.problems(root, move=environment.MOVE))
        return (
            SyclLocation(
                CACHE,
                str(root),
                decided_by,
                enabled=environment.enabled(environ),
                limit_bytes=environment.limit_bytes(environ),
                problems=problems,
                bounds=environment.bounds(environ),
            ),
        )

    def recognises(self, path: Path) -> bool:
        """Whether a folder holds entries under hashes, or is an empty one of the cache's name."""
        with suppress(OSError, ValueError):
            if not path.is_dir():
                return False
            first = _names(path)
            if not first:
                return path.name == environment.FOLDER
            return not _SURE.isdisjoint(first) or _leads_to_entries(path, 0, first)
        return False

    def open(self, location: Location) -> SyclCache:
        """The cache at a location; raises CacheUnusableError for what is no folder."""
        root = Path(location.root)
        with suppress(OSError, ValueError):
            if root.exists() and not root.is_dir():
                raise CacheUnusableError(f"{root} is no folder, and a cache of libsycl is one; name another")
        if isinstance(location, SyclLocation):
            return SyclCache(location, location.bounds)
        return SyclCache(location, environment.bounds(os.environ))

    def isolation(self, folder: Path) -> Isolation:
        """A private cache, turned on."""
        private = str(folder / environment.FOLDER)
        return Isolation(((environment.PERSISTENT, "1"), (environment.DIRECTORY, private)))


def _names(path: Path) -> list[str]:
    with os.scandir(path) as found:
        return [item.name for item in islice(found, _LOOKED_AT)]


def _leads_to_entries(path: Path, depth: int, names: Sequence[str]) -> bool:
    if depth == naming.LEVELS:
        return any(naming.split_file(name) for name in names)
    inner = (path / name for name in islice(filter(naming.is_hash, names), _WAYS_TRIED))
    return any(
        _leads_to_entries(one, depth + 1, _names(one))
        for one in inner
        if one.is_dir() and not one.is_symlink()
    )
