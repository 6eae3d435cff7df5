"""Every known cache of an environment: the variables that move it, its content, and its owner.

Owns the definition of an entry: the entries of known systems and, for programs that gpucache does not know,
files. Entries are identified by name, size and write time, so that a cache which is emptied and filled again
at each start is noticed. Among the files of unknown programs empty ones do not count, as several owners leave
one at each start. Neither do logs and text other than PTX (settings, lists of recent files), which are marked
as text, or SQLite's files for open databases, which every program writes again. A cache that is off until a
variable is set is turned on when it is moved.

It opens caches at their systems' places or at a given place, and loads only the requested systems. An
existing cache that cannot be opened is ``Unusable``, so that it does not hide the others. Must not run
anything, or know any system, our own cache, or the purpose of comparing two snapshots.
"""

import os
from codecs import getincrementaldecoder
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, NoReturn

from gpucache.answers.entries import FindingKind, Held, Location, Snapshot, entries
from gpucache.answers.verify import Checked, Finding
from gpucache.caches.interface import Cache
from gpucache.caches.places import XDG, Places
from gpucache.caches.portable import Moving
from gpucache.caches.registry import ALL, NAMES, SYSTEMS, is_there, load_system, systems
from gpucache.errors import CacheUnusableError, GpucacheError
from gpucache.payload import PayloadKind, describe

OTHERS = "others"
"""Files below the cache directory that belong to no known cache."""

_DEEPEST = 6
"""The maximum depth of a known cache's entry below its root."""
_FILES = 200_000
_HEAD_BYTES = 4096
# The last is SQLite's index of its log, https://sqlite.org/walformat.html
_NO_ENTRIES = (".log", ".lock", "-shm")


class Group(NamedTuple):
    """Variables that belong together: they set the places of caches, and turn caching on there."""

    caches: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class KnownCaches:
    """The known caches around a program that runs in an environment."""

    environ: Mapping[str, str]
    only: frozenset[str] | None = None
    """The names of the caches that are moved and examined; None for all of them."""

    @classmethod
    def of_drivers(cls, environ: Mapping[str, str], *others: str) -> "KnownCaches":
        return cls(environ, frozenset({*others, *(system.name for system in systems() if system.driver)}))

    def groups(self, folder: Path) -> Iterator[Group]:
        """The variables that put every cache below a directory."""
        shared = [OTHERS]
        groups = []
        for system in self._systems():
            isolation = system.isolation(folder)
            found = isolation.environment
            own = tuple(pair for pair in found if pair[0] != XDG)
            if isolation.turn_on and not system.locations(self.environ):
                own = (*own, *isolation.turn_on)
            if own:
                groups.append(Group((system.name,), own))
            elif found:
                shared.append(system.name)
        for group in (Group(tuple(shared), ((XDG, str(folder / "xdg")),)), *groups):
            if self.only is None or self.only & set(group.caches):
                yield group

    def variables(self, folder: Path) -> dict[str, str]:
        return dict(pair for group in self.groups(folder) for pair in group.variables)

    def isolate(self, folder: Path) -> Mapping[str, str]:
        """The variables that isolate every cache below a directory. Creates the directories that drivers do
        not make, and the parent of unknown programs' caches; raises OSError. Asks no store elsewhere."""
        drivers = {OTHERS, *(system.name for system in self._systems() if system.driver)}
        for group in self.groups(folder):
            if drivers & {*group.caches}:
                for _, value in group.variables:
                    if Path(value).is_relative_to(folder):
                        Path(value).mkdir(parents=True, exist_ok=True)
        return {**self.variables(folder), "GPUCACHE_REMOTE": ""}

    def used(self, folder: Path) -> tuple[tuple[str, str], ...]:
        """The variables of the caches below a directory that have entries."""
        held = self.look({**self.environ, **self.variables(folder)}, private=True)
        full = {name for name, found in held.items() if entries({name: found})}
        return tuple(
            pair for group in self.groups(folder) if full & set(group.caches) for pair in group.variables
        )

    def remove_unused(self, folder: Path) -> None:
        """Remove the directories that were created below a directory for caches and are still empty."""
        for value in self.variables(folder).values():
            if Path(value).is_relative_to(folder):
                with suppress(OSError):
                    Path(value).rmdir()

    def look(self, environ: Mapping[str, str], *, private: bool) -> Snapshot:
        """The entries of the caches in an environment; ``private`` means that the caches were moved: includes
        other files below the cache directory, and omits the user's caches, which no variable moves."""
        moved = frozenset(self.variables(Path(os.sep)) if private else ())
        held: dict[str, dict[str, Held]] = {}
        roots: list[Path] = []
        for cache in self._opened(environ):
            location = cache.location()
            if private and location.decided_by not in moved:
                continue
            roots.append(Path(location.root))
            held.setdefault(cache.name, {}).update(_entries(cache))
        if private and environ.get(XDG):
            below = Path(environ[XDG])
            strangers = _files(below, tuple(roots))
            held[OTHERS] = {
                name: one._replace(text=_is_text(below / name))
                for name, one in strangers
                if not name.endswith(_NO_ENTRIES)
            }
        return held

    def place_of(self, name: str, environ: Mapping[str, str]) -> str:
        """The place of a system's cache in an environment; empty if it has none."""
        return next((location.root for location in load_system(name).locations(environ)), "")

    def root_of(self, path: Path) -> Path | None:
        """The root of the known cache that contains a directory; None for any other directory."""
        known = next((root for root in self._roots if path.is_relative_to(root)), None)
        candidates = (path, *path.parents[:_DEEPEST])
        return known or next((at for at in candidates if any(one.recognises(at) for one in systems())), None)

    @property
    def off(self) -> frozenset[str]:
        """Caches that are off in the environment, and turned on when they are moved."""
        return frozenset(system.name for system, _ in self._turned_on())

    def notes(self, written: Collection[str]) -> tuple[str, ...]:
        """A sentence for each cache that was written and that is off in the environment."""
        told = []
        for system, variable in self._turned_on():
            if system.name in written:
                value = self.environ.get(variable)
                why = f"{variable} is {value}" if value else f"{variable} is not set"
                told.append(f"the {system.title} was turned on; in your environment it is off, as {why}")
        return tuple(told)

    def _turned_on(self) -> Iterator[tuple[Places, str]]:
        """The systems that do not cache in the environment, each with the variable that changes that."""
        for system in self._systems():
            if not _keeps(system, self.environ):
                for name, value in system.isolation(Path(os.sep)).environment:
                    if _keeps(system, {**self.environ, name: value}):
                        yield system, name
                        break

    def _systems(self) -> Iterator[Places]:
        return (load_system(name) for name in NAMES if self.only is None or name in self.only)

    @cached_property
    def _roots(self) -> tuple[Path, ...]:
        every = (one for name in NAMES for one in load_system(name).locations(self.environ))
        return tuple(Path(location.root) for location in every)

    def _opened(self, environ: Mapping[str, str]) -> Iterator[Cache]:
        for system in self._systems():
            for location in system.locations(environ):
                if location.root and Path(location.root).exists():
                    with suppress(GpucacheError):
                        yield system.open(location)


def _keeps(system: Places, environ: Mapping[str, str]) -> bool:
    """Whether its programs store compiled code; they only read a place shared by all users."""
    return any(one.enabled and one.role != "system" for one in system.locations(environ))


def _entries(cache: Cache) -> Iterator[tuple[str, Held]]:
    with suppress(GpucacheError):
        for entry in cache.scan():
            if not entry.renewed:
                yield f"{entry.program} {entry.key}".strip(), Held(entry.size_bytes, entry.created_ns)


def _files(folder: Path, without: tuple[Path, ...]) -> Iterator[tuple[str, Held]]:
    """Files below a directory that are not empty, up to a limit; links are not followed."""
    number = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(place, name) not in without]
        for name in names:
            path = Path(place, name)
            with suppress(OSError):
                status = path.lstat()
                if status.st_size and path not in without:
                    yield str(path.relative_to(folder)), Held(status.st_size, status.st_mtime_ns)
            number += 1
            if number >= _FILES:
                return


def _is_text(path: Path) -> bool:
    """Whether a file begins as text does, and as nothing compiled does; PTX is text, and compiled."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        getincrementaldecoder("utf-8")().decode(head)
    except (OSError, UnicodeDecodeError):
        return False
    return b"\0" not in head and describe(head).kind is not PayloadKind.PTX


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


def _opened(system: Places, location: Location) -> Cache:
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
