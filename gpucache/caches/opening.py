"""The third-party caches on this machine, opened at their systems' places or at a given place.

An existing cache that cannot be opened is ``Unusable``, so that it does not hide the others. Loads only the
requested systems. Must not know our own cache.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from gpucache.answers.entries import FindingKind, Location
from gpucache.answers.verify import Checked, Finding
from gpucache.caches.interface import Cache, System
from gpucache.caches.places import XDG
from gpucache.caches.portable import Moving
from gpucache.caches.registry import ALL, SYSTEMS, is_there, load_system, systems
from gpucache.errors import CacheUnusableError


def found_caches(environ: Mapping[str, str]) -> list[Cache]:
    """Every other cache that exists, and the missing ones that their owner will not create."""
    return [
        _opened(system, location)
        for system in systems()
        for location in system.locations(environ)
        if is_there(Path(location.root)) or (location.enabled and location.problems)
    ]


def every_cache(environ: Mapping[str, str]) -> list[Cache]:
    """The cache of every place where programs look, existing or not."""
    return [
        _opened(system, location)
        for system in systems()
        for location in system.locations(environ)
        if location.root and location.enabled
    ]


def first_places(names: Iterable[str], environ: Mapping[str, str]) -> Iterator[Cache]:
    """The cache of each system at the first place where its programs write, existing or not; none for a
    system without a place."""
    for system in map(load_system, names):
        for location in system.locations(environ):
            if location.root and location.role != "system":
                yield _opened(system, location)
                break


def make_folder_of_all(environ: Mapping[str, str], names: Collection[str]) -> None:
    """Create the user's directory of all caches, as filling several would, or if programs of one look
    elsewhere until it exists; so its place is asked for afterwards. Raises nothing."""
    from gpucache.caches.systems import PLACES

    of_some = any(PLACES[name].needs_folder_of_all for name in names if name in PLACES)
    if of_some or len(names) > 1 or ALL in names:
        above = environ.get(XDG) or str(Path(environ.get("HOME") or os.devnull, ".cache"))
        with suppress(OSError):
            Path(above).mkdir(0o700, parents=True, exist_ok=True)


def unused_caches(environ: Mapping[str, str], names: Collection[str] | None = None) -> list[Cache]:
    """Caches at the default places of systems, all or those named, that no program uses now.

    A variable sends their programs elsewhere; the earlier entries are still on disk.
    """
    found: list[Cache] = []
    for system in [load_system(name) for name in SYSTEMS if names is None or name in names]:
        named = {XDG, *(name for name, _ in system.isolation(Path(os.sep)).environment)}
        plain = {name: value for name, value in environ.items() if name not in named}
        known = system.locations(environ) if len(plain) < len(environ) else ()
        for location in system.locations(plain) if known else ():
            root = Path(location.root)
            if is_there(root) and not any(_is_same(root, Path(one.root)) for one in known):
                why = f"programs do not use it now, as {known[0].decided_by} sends them to {known[0].root}"
                found.append(_opened(system, location._replace(enabled=False, problems=(why,))))
    return found


def present_caches(name: str) -> Sequence[Cache]:
    """The existing caches of one system in this environment."""
    return [cache for cache in open_places(name, None, os.environ) if is_there(Path(cache.location().root))]


def open_places(name: str, place: Path | None, environ: Mapping[str, str]) -> list[Cache]:
    """The caches of one system: at a place, or where the environment puts them; none if it has no place.

    Raises UsageError for an unknown system.
    """
    system = load_system(name)
    known = system.locations(environ)
    if place is None:
        return [system.open(location) for location in known]
    same = next((one for one in known if _is_same(Path(one.root), place)), None)
    return [system.open(same or Location(name, str(place), "--cache", enabled=True))]


class Unusable(Cache):
    """A cache that cannot be opened: it returns the reason, and refuses operations that need the cache."""

    def __init__(self, location: Location, reason: str) -> None:
        self.name = location.cache
        self._location = location
        self._reason = reason
        self.moving = Moving(reason)

    def location(self) -> Location:
        problems = self._location.problems
        more = () if self._reason in problems else (self._reason,)
        return self._location._replace(problems=(*problems, *more))

    def unread(self) -> Sequence[str]:
        return (self._reason,)

    def leftovers(self) -> Iterator[Checked]:
        finding = Finding(self.name, self._location.root, FindingKind.UNTRUSTED, self._reason)
        yield Checked(self._location.root, (finding,), counts=False)

    def _refused(self, *_: object, **__: object) -> NoReturn:
        raise CacheUnusableError(self._reason)

    report = extract = check = remove = explain = _refused


def _opened(system: System, location: Location) -> Cache:
    """A cache, or an ``Unusable`` with the reason if it cannot be opened."""
    try:
        return system.open(location)
    except CacheUnusableError as error:
        return Unusable(location, str(error))


def _is_same(left: Path, right: Path) -> bool:
    try:
        return left.samefile(right)
    except OSError:
        return left == right
