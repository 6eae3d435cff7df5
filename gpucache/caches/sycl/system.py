"""libsycl as a system that keeps caches: where they are, what they look like, how to redirect them.

Must not read entries.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpucache.caches import places
from gpucache.caches.interface import Isolation
from gpucache.caches.sycl import environment, roots
from gpucache.caches.sycl.cache import SyclCache
from gpucache.caches.sycl.entries import CACHE
from gpucache.caches.sycl.environment import SyclLocation
from gpucache.caches.sycl.explain import WANTED
from gpucache.errors import CacheUnusableError
from gpucache.outcomes import Location

_TRACE_ALL = "7"


class SyclSystem:
    """The persistent cache of SYCL programs built with oneAPI DPC++."""

    name = CACHE
    title = "SYCL persistent device code cache"
    nowhere = "the cache is off without a home folder; set SYCL_CACHE_DIR"

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
        problems = (*environment.problems(environ), *_problems(root, environ))
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
        return roots.recognises(path)

    def open(self, location: Location) -> SyclCache:
        """The cache at a location; raises CacheUnusableError for a place that can be none.

        A place that was named by hand and holds other things alone is none, either; where programs will
        make their cache in such a place, it has no entries yet.
        """
        root = Path(location.root)
        foreign = roots.foreign(root)
        by_hand = not isinstance(location, SyclLocation)
        refusal = roots.refusal(root, os.environ) or (foreign if by_hand else "")
        if refusal:
            raise CacheUnusableError(refusal)
        if isinstance(location, SyclLocation):
            return SyclCache(location, location.bounds, foreign)
        problems = location.problems or _problems(root, os.environ)
        return SyclCache(replace(location, problems=problems), environment.bounds(os.environ))

    def isolation(self, folder: Path) -> Isolation:
        """A private cache, turned on."""
        private = str(folder / environment.FOLDER)
        return Isolation(((environment.PERSISTENT, "1"), (environment.DIRECTORY, private)))


def _problems(root: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What is wrong with a place: that it is none, that it is closed, or all that can be seen of it."""
    closed = roots.refusal(root, environ) or roots.unreadable(root)
    if closed:
        return (closed,)
    foreign = roots.foreign(root)
    return (*filter(None, (foreign,)), *places.problems(root, move=environment.MOVE))
