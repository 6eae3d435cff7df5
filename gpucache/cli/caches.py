"""The caches that ``--cache`` means, opened."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from gpucache.caches.registry import ALL, NAMES, OWN, is_own, load_system, split, system_at
from gpucache.cli.globals import given, leave
from gpucache.cli.parameters import Name
from gpucache.cli.streams import complain
from gpucache.errors import CacheUnusableError, ExitCode, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from gpucache.answers.entries import CacheEntry
    from gpucache.caches.interface import Cache, Rebuildable
    from gpucache.settings import Settings
    from gpucache.store.directory import DirectoryStore

F = TypeVar("F", bound=Callable[..., Any])


class OwnOpened(NamedTuple):
    """A root of our own cache, with the store that has its records."""

    cache: "Rebuildable"
    store: "DirectoryStore"
    system: bool = False
    """Whether it is a system root, which is only read."""


class Opened(NamedTuple):
    """The caches that were named, and which of them are our own, with the settings that led to them."""

    settings: "Settings"
    caches: "tuple[Cache, ...]"
    owns: tuple[OwnOpened, ...] = ()

    @property
    def own(self) -> OwnOpened | None:
        """The root that has the records: the user's own, or else the first system root."""
        return next(iter(self.owns), None)

    @property
    def unread(self) -> tuple[str, ...]:
        """Why not all of the caches could be looked at or worked on so far, a sentence each."""
        return tuple(dict.fromkeys(sentence for cache in self.caches for sentence in cache.unread()))

    def select(
        self, words: "Sequence[str]", targets: "Sequence[str]" = ()
    ) -> "list[tuple[Cache, Iterable[CacheEntry]]]":
        """The entries of each cache that words name, for any of some targets; raises UsageError for none."""
        from gpucache.engine.inspect import select

        with found_or_unread(self):
            return select(self.caches, words, targets)

    def require_own(self, option: str) -> OwnOpened:
        """Our own cache; raises UsageError if others were named, for which the option does not exist."""
        named = sum(not one.system for one in self.owns)
        if self.own is None or named > 1 or len(self.owns) < len(self.caches):
            raise UsageError(f"{option} is for gpucache's own cache; leave --cache out, or name its root")
        return self.own


def finish(opened: Opened, code: int) -> None:
    """End a verb. Unreadable parts of a cache are reported, and make any exit code 5."""
    for sentence in opened.unread:
        complain(f"gpucache: {sentence}; entries in it are not counted")
    leave(ExitCode.CACHE_UNUSABLE if opened.unread else code)


@contextmanager
def found_or_unread(opened: Opened) -> Iterator[None]:
    """If a name is not found, blame directories of entries that could not be listed, if there are any."""
    try:
        yield
    except UsageError:
        if not opened.unread:
            raise
        raise CacheUnusableError(f"{'; '.join(opened.unread)}; it may have the entries you named") from None


class CacheName(Name):
    """A cache by the name of its system or by its place, completed from the names."""

    name = "cache"

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - Click's signature
        param: click.Parameter,  # noqa: ARG002 - Click's signature
        incomplete: str,
    ) -> "list[CompletionItem]":
        """Names of systems, then directories and files."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name) for name in (*NAMES, ALL) if name.startswith(incomplete)]
        return names or [CompletionItem(incomplete, type="file")]


def cache_option(function: F) -> F:
    """Add the option that names the caches."""
    return click.option(
        "--cache", metavar="NAME|PLACE", type=CacheName(), multiple=True,
        help=f"Which caches: {', '.join((*NAMES, ALL))}, a folder or file, or NAME:PLACE; may be given "
        "again; default our own.",
    )(function)  # fmt: skip


def open_named(texts: Sequence[str], *, systems: bool = True) -> Opened:
    """The caches of all names and places, or our own without any; raises UsageError or CacheUnusableError.

    Our own cache has the user's root and, with ``systems``, the system roots, which are only read.
    """
    opened = [_open_one(text, systems=systems) for text in texts or (OWN,)]
    caches: dict[tuple[str, str], Cache] = {}
    for one in opened:
        for cache in one.caches:  # a cache that is named twice is opened once
            caches.setdefault((cache.name, cache.location().root), cache)
    once = tuple(caches.values())
    owns = tuple(own for one in opened for own in one.owns if own.cache in once)
    return Opened(opened[0].settings, once, owns)


def open_others() -> "list[Cache]":
    """Every cache of another system on this machine."""
    from gpucache.caches.opening import found_caches

    return found_caches(os.environ)


def open_everywhere() -> "list[Cache]":
    """Our own cache, if it has a place, and every place in which a system's programs keep theirs, existing
    or not."""
    from gpucache.caches.opening import every_cache

    try:
        own = open_named(()).caches
    except CacheUnusableError:
        own = ()
    return [*own, *every_cache(os.environ)]


def open_unused(names: "Collection[str] | None" = None) -> "list[Cache]":
    """Caches in default places that programs do not use because a variable redirects them.

    They are the caches of all systems, or of the systems that are named.
    """
    if names is not None and not names:
        return []
    from gpucache.caches.opening import unused_caches

    return unused_caches(os.environ, names)


def _open_one(text: str, *, systems: bool) -> Opened:
    settings = given().settings()
    name, place = split(text)
    if place is not None and (name == OWN or (name is None and is_own(place))):
        settings = settings._replace(root=place, root_origin="--cache", system_dirs=())
        return _ours(settings, systems=False)
    if name == OWN:
        return _ours(settings, systems=systems)
    if name == ALL:
        ours = _ours_apart(settings, systems=systems)
        return ours._replace(caches=(*ours.caches, *open_others()))
    if name is None and place is not None:
        return _foreign(settings, _system_at(place), place)
    return _foreign(settings, name or OWN, place)


def _system_at(place: Path) -> str:
    """The system that keeps a cache at a place; raises UsageError if there is none."""
    try:
        return system_at(place).name
    except UsageError:
        from gpucache.intercept.layer import is_layer

        if not is_layer(place):
            raise
        raise UsageError(
            f"{place} is a layer that 'gpucache export layer' wrote, and read by programs alone; what it "
            "was written of is in gpucache's own cache, and GPUCACHE_LAYER_TELL=1 tells what a program hits"
        ) from None


def _ours(settings: "Settings", *, systems: bool) -> Opened:
    """The user's root and the system roots; only the system roots if there is no home."""
    from gpucache.assembly import open_cache, open_store, open_system_roots, system_problems

    roots = open_system_roots(settings) if systems else []
    owns = [OwnOpened(cache, store, system=True) for cache, store in roots]
    wrong = system_problems(settings) if systems and not owns else []
    if settings.root is None and wrong:
        raise CacheUnusableError("; ".join(wrong))
    if settings.root is not None or not owns:
        owns.insert(0, OwnOpened(open_cache(settings), open_store(settings)))
    return Opened(settings, tuple(own.cache for own in owns), tuple(owns))


def _ours_apart(settings: "Settings", *, systems: bool) -> Opened:
    """The same; if it cannot be used, a stand-in with the reason, so that the others are still shown."""
    from gpucache.answers.entries import Location
    from gpucache.caches.opening import Unusable

    try:
        ours = _ours(settings, systems=systems)
        for cache in ours.caches:
            next(iter(cache.scan()), None)
    except CacheUnusableError as error:
        place = Location(OWN, str(settings.root or ""), settings.root_origin, enabled=True)
        return Opened(settings, (Unusable(place, str(error)),))
    return ours


def _foreign(settings: "Settings", name: str, place: Path | None) -> Opened:
    from gpucache.caches.opening import open_places

    caches = open_places(name, place, os.environ)
    if not caches:
        why = load_system(name).nowhere
        raise UsageError(f"{name} has no place of its own here: {why}, or ask for one: --cache {name}:PLACE")
    return Opened(settings, tuple(caches))
