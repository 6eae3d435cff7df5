"""Every system that is not ours, made from a format: where its caches are, and what opens one.

Of a system in several files only its places are loaded, and not the engine of its caches (``foreign_cache``),
until there is a cache to open. Must not know any system.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, cast, overload

from gpucache.caches.format import Clock, Format, Places, T
from gpucache.caches.interface import Isolation, Wanted
from gpucache.model import BuildRequest, Toolchain
from gpucache.outcomes import Location

if TYPE_CHECKING:
    from gpucache.caches.foreign_cache import ForeignCache


class ForeignSystem(Generic[T]):
    """A kind of cache: a ``gpucache.caches.interface.System``.

    It is made from a format; or from its places, and a function that imports its format when that is needed.
    """

    @overload
    def __init__(self, found: type[Format[T]]) -> None: ...

    @overload
    def __init__(self, found: type[Places], load: Callable[[], type[Format[T]]]) -> None: ...

    def __init__(self, found: type[Places], load: Callable[[], type[Format[T]]] | None = None) -> None:
        self._places = found
        self._load = load or (lambda: cast("type[Format[T]]", found))
        self.name, self.title = found.name, found.title
        self.nowhere = found.place.nowhere
        self.tracing: Mapping[str, str] = found.tracing
        self.driver = found.driver
        self.below: Mapping[str, str] = found.below

    @cached_property
    def _format(self) -> type[Format[T]]:
        return self._load()

    @property
    def wanted(self) -> Mapping[str, str]:
        """The fields that ``explain`` can be asked for, each with what it means."""
        return self._format.wanted

    def question(self, request: BuildRequest, toolchain: Toolchain) -> Wanted:
        """What ``explain`` is to be asked, to learn whether the cache would answer a build."""
        return self._format.question(request, toolchain)

    def locations(self, environ: Mapping[str, str]) -> Sequence[Location]:
        """Where its programs would look in this environment, in their order, there or not."""
        return tuple(self._places.locations(environ))

    def recognises(self, path: Path) -> bool:
        """Whether a file or folder looks like one of its caches. Raises nothing."""
        try:
            return self._format.recognises(path)
        except (OSError, ValueError):
            return False

    def open(self, location: Location, clock: Clock = time.time_ns) -> "ForeignCache[T]":
        """The cache at a location, there or not; raises CacheUnusableError for what can be none."""
        from gpucache.caches.foreign_cache import cache_of

        self._format.require(Path(location.root))
        made = self._format(self._format.opened(location), clock)
        return cache_of(made)

    def isolation(self, folder: Path) -> Isolation:
        """What makes its programs keep their cache below a folder."""
        return self._places.place.isolation(folder, self.name)
