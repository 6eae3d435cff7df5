"""The CUDA driver's compute cache as a ``gpucache.caches.interface.System``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpucache.caches import places
from gpucache.caches.cuda_driver import findings, settings
from gpucache.caches.cuda_driver.cache import CudaDriverCache
from gpucache.caches.cuda_driver.tree import looks_like_one
from gpucache.caches.interface import Isolation
from gpucache.caches.mounts import Ground, mount_of, mounts
from gpucache.outcomes import Location


class CudaDriverSystem:
    """The cache of what the driver compiles: PTX, NVIDIA's OpenCL programs, NVRTC's from 12.9 on.

    It lies under the caches of all frameworks, so one that was emptied may still be served from here.
    """

    name = settings.NAME
    title = "CUDA driver compute cache"
    nowhere = "the driver keeps nothing without a home folder; set CUDA_CACHE_PATH"
    wanted: Mapping[str, str] = {}
    tracing: Mapping[str, str] = {}

    def locations(self, environ: Mapping[str, str]) -> Sequence[Location]:
        """``CUDA_CACHE_PATH``, else below the home; none where there is neither."""
        place = settings.root(environ)
        if place is None:
            return ()
        named, decided_by = place
        root = _absolute(named)
        found = Location(
            self.name,
            str(root),
            decided_by,
            enabled=settings.enabled(environ),
            limit_bytes=settings.limit(environ).size_bytes,
            problems=(*settings.problems(environ, named, decided_by), *_problems(root)),
        )
        return (found,)

    def recognises(self, path: Path) -> bool:
        """Whether a folder has the layout that published listings show. Raises nothing."""
        try:
            return looks_like_one(path)
        except (OSError, ValueError):
            return False

    def open(self, location: Location) -> CudaDriverCache:
        """The cache at a location, there or not; raises CacheUnusableError for what is no folder."""
        root = Path(location.root)
        places.require_folder(root, "name the folder of a driver's cache")
        return CudaDriverCache(replace(location, problems=location.problems or _problems(root)))

    def isolation(self, folder: Path) -> Isolation:
        """A folder of its own, as large as the driver allows, so that nothing is evicted meanwhile."""
        return Isolation(
            (
                (settings.PATH, str(folder / "ComputeCache")),
                (settings.MAXSIZE, str(settings.MOST_BYTES)),
            )
        )


def _absolute(path: Path) -> Path:
    """A path from the root; as it stands where the current directory is gone."""
    try:
        return path.absolute()
    except OSError:
        return path


def _problems(root: Path) -> tuple[str, ...]:
    told = (*places.problems(root, move=settings.MOVE), findings.unread(root), *_shared(root))
    return tuple(filter(None, told))


def _shared(root: Path) -> Iterator[str]:
    """Published reports have jobs on shared NFS hang on the index."""
    try:
        mount = mount_of(root.resolve(), mounts())
    except (OSError, ValueError, RuntimeError):  # a ring of links
        return
    if mount is not None and mount.ground is Ground.NETWORK:
        yield f"jobs that share it wait, and have hung, at its file 'index'; {settings.MOVE} of each node"
