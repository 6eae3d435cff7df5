"""Every third-party system, composed of its places and its format.

The format and the engine of its caches (``foreign_cache``) are loaded only to open a cache. Must not know any
system.
"""

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpucache.answers.entries import Location
from gpucache.caches.interface import Isolation, Wanted
from gpucache.caches.places import Places
from gpucache.model import BuildRequest, Toolchain

if TYPE_CHECKING:
    from gpucache.caches.foreign_cache import ForeignCache
    from gpucache.caches.format import Clock, Format


class ForeignSystem:
    """A kind of cache: a ``gpucache.caches.interface.System``.

    It is made from its places, and the name of the module that has its ``FORMAT``.
    """

    def __init__(self, found: type[Places], module: str) -> None:
        self._places = found
        self._module = module
        self.name, self.title = found.name, found.title
        self.nowhere = found.place.nowhere
        self.tracing: Mapping[str, str] = found.tracing
        self.driver = found.driver
        self.below: Mapping[str, str] = found.below

    @cached_property
    def _format(self) -> "type[Format[Any]]":
        found: type[Format[Any]] = import_module(self._module).FORMAT
        return found

    @property
    def wanted(self) -> Mapping[str, str]:
        """The fields that ``explain`` accepts, each with its meaning."""
        return self._format.wanted

    def question(self, request: BuildRequest, toolchain: Toolchain) -> Wanted:
        """The question for ``explain`` that shows whether the cache would serve a build."""
        return self._format.question(request, toolchain)

    def locations(self, environ: Mapping[str, str]) -> Sequence[Location]:
        """The places where its programs would look in this environment, in their order, existing or not."""
        return tuple(self._places.locations(environ))

    def recognises(self, path: Path) -> bool:
        """Whether a file or directory looks like one of its caches. Raises nothing."""
        from gpucache.caches.layout import Whose

        try:
            return self._format.whose(path) is Whose.OWN
        except (OSError, ValueError):
            return False

    def open(self, location: Location, clock: "Clock" = time.time_ns) -> "ForeignCache[Any]":
        """The cache at a location, existing or not; raises CacheUnusableError if it cannot be one."""
        from gpucache.caches.foreign_cache import ForeignCache

        self._format.require(Path(location.root))
        return ForeignCache(self._format(self._format.opened(location), clock))

    def isolation(self, folder: Path) -> Isolation:
        """The environment that moves its programs' cache below a directory."""
        return self._places.place.isolation(folder, self.name)
