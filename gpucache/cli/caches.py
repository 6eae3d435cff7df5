"""The caches that ``--cache`` means, opened."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpucache.caches.registry import ALL, NAMES, OWN, is_name, is_own, load_system, split, system_at
from gpucache.cli.globals import given, in_folder, leave
from gpucache.cli.parameters import Name, Number
from gpucache.cli.streams import complain
from gpucache.engine.selection import Opened, no_store
from gpucache.errors import CacheUnusableError, ExitCode, RemoteError, UsageError

if TYPE_CHECKING:
    from gpucache.caches.interface import Cache
    from gpucache.remote.objects import Objects
    from gpucache.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
_TIMEOUT = "gpucache.timeout"


def finish(opened: Opened, code: int) -> None:
    """End a verb. Unreadable parts of a cache are reported, and make any exit code 5."""
    for sentence in opened.unread:
        complain(f"gpucache: {sentence}; entries in it are not counted")
    leave(ExitCode.CACHE_UNUSABLE if opened.unread else code)


def stopped(error: BaseException, done: int | None, rest: str) -> BaseException:
    """An interrupt, or the failure of a store, that says how many entries were done; not in a dry run."""
    if isinstance(error, RemoteError):
        return RemoteError(f"{error.message} ({done} {rest})") if done else error
    return KeyboardInterrupt("" if done is None else f"{done} {rest}")


class CacheName(Name):
    """A cache by the name of its system or by its place, completed from the names."""

    name = "cache"
    paths = ("file",)

    def names(self, ctx: click.Context, typed: str) -> Iterable[str]:  # noqa: ARG002 - all are few
        return (*NAMES, ALL)


def cache_option(function: F) -> F:
    return click.option(
        "--cache", metavar="NAME|PLACE", type=CacheName(), multiple=True,
        help=f"A cache by its name or place, or '{ALL}'; repeatable.\f"
        "A cache by name (gpucache-caches(7) lists them), directory, file or NAME:PLACE; "
        f"'{ALL}' for every cache; repeatable; default our own.",
    )(function)  # fmt: skip


def timeout_option(function: F) -> F:
    """Add the option for the time that a store may take, which ``open_store`` reads."""
    return click.option(
        "--timeout", metavar="S", type=Number(0.1), default=60.0, show_default=True, expose_value=False,
        callback=lambda context, _, value: context.meta.update({_TIMEOUT: value}),
        help="Seconds per request to a store.\f"
        "Seconds allowed per request to a store, plus one per MiB transferred; and in all for everything "
        "that is slower than 4 objects or 1 MiB a second.",
    )(function)  # fmt: skip


def open_store(url: str, *, shared: bool = False) -> "Objects":
    """The store of a URL, with the time of ``timeout_option``; raises UsageError.

    A new directory with ``shared`` may be read by other users.
    """
    from gpucache.remote.objects import Limits, Paced, is_folder, open_objects

    usual = Limits()
    timeout_s = click.get_current_context().meta.get(_TIMEOUT, usual.request_s)
    store = open_objects(url, Limits(min(usual.connect_s, timeout_s), timeout_s, shared=shared))
    return store if is_folder(store) else Paced(store, timeout_s)


def open_named(texts: Sequence[str], *, systems: bool = True) -> Opened:
    """The caches of all names and places, or our own without any; raises UsageError or CacheUnusableError.

    Our own cache has the user's root and, with ``systems``, the system roots, which are only read.
    """
    opened = [_open_one(text, systems=systems) for text in texts or (OWN,)]
    caches: dict[tuple[str, str], Cache] = {}
    for one in opened:
        for cache in one.caches:  # a cache that is named twice is opened once
            caches.setdefault((cache.name, cache.location().root), cache)
    return Opened(opened[0].settings, tuple(caches.values()))


def require_named(opened: Opened, texts: Sequence[str], *, may_begin: bool = False) -> None:
    """Raise UsageError for a system or a root that was named, if none of its places exists.

    Our own root is named by --root and GPUCACHE_DIR where it is among the caches, also among all. With
    ``may_begin`` that of GPUCACHE_DIR may be one that no program has filled yet, and a line says so.
    """
    origin = opened.settings.root_origin
    own = (OWN,) * (origin in ("--root", "GPUCACHE_DIR") and (not texts or ALL in texts))
    for name in dict.fromkeys((*own, *(text for text in texts if text != ALL and is_name(text)))):
        places = [cache.location().root for cache in opened.caches if cache.name == name]
        if places and not any(map(os.path.lexists, places)):
            if may_begin and name in own and origin == "GPUCACHE_DIR":
                given().say(f"gpucache: {places[0]} (GPUCACHE_DIR) does not exist yet, like an empty cache")
                continue
            remedy = f"check {origin}" if name in own else f"name its place, as in --cache {name}:PLACE"
            raise UsageError(f"there is no cache of {name} here: {places[0]} does not exist; {remedy}")


def stores_apart(words: Sequence[str], caches: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Move stores from the words to the caches; raises UsageError if both name some."""
    stores = tuple(word for word in words if is_store(word))
    if stores and caches:
        raise UsageError("--cache names caches of this machine; leave it out, or the store")
    return tuple(word for word in words if word not in stores), (*caches, *stores)


def is_store(text: str) -> bool:
    """Whether a text names a store: a URL, or a directory to which a push or a program sent entries."""
    from gpucache.caches.registry import is_there

    if "://" in text or not text:
        return bool(text)
    sent = Path(text, "entries")
    return is_there(Path(text, "catalogues")) or (is_there(sent) and any(sent.glob("??/*-*")))


def require_store(url: str) -> None:
    """Raise UsageError for a directory that is not a store, or does not exist yet."""
    from gpucache.remote.objects import public

    if not is_store(url):
        raise UsageError(f"{no_store(public(url))}; check its path, or push there first")


def open_everywhere() -> "list[Cache]":
    """Our own cache, if it has a place, and every place in which a system's programs keep theirs, existing
    or not."""
    from gpucache.caches.known_caches import every_cache

    try:
        own = open_named(()).caches
    except CacheUnusableError:
        own = ()
    return [*own, *every_cache(os.environ)]


def _open_one(text: str, *, systems: bool) -> Opened:
    settings = given().settings()
    if is_store(text):
        return Opened(settings, _opened_store(text, settings))
    name, place = split(text)
    if place is not None and (name == OWN or (name is None and (is_own(place) or _is_own_file(place)))):
        name, systems = OWN, False
        settings = in_folder(
            settings._replace(root=place, root_origin="--cache", folder=None, system_dirs=())
        )
    if name == OWN:
        from gpucache.assembly import open_roots

        return Opened(settings, tuple(open_roots(settings, systems=systems)))
    if name == ALL:
        from gpucache.caches.known_caches import found_caches

        return Opened(settings, (*_roots_or_why(settings, systems=systems), *found_caches(os.environ)))
    from gpucache.caches.known_caches import open_places

    name = name or system_at(place or Path()).name
    caches = open_places(name, place, os.environ)
    if not caches:
        why = load_system(name).nowhere()
        raise UsageError(
            f"{name} has no own place on this machine: {why}, or ask for one: --cache {name}:PLACE"
        )
    return Opened(settings, tuple(caches))


def _is_own_file(place: Path) -> bool:
    if not place.is_file():
        return False
    from gpucache.store.root_file import is_root_file

    return is_root_file(place)


def _opened_store(url: str, settings: "Settings") -> "tuple[Cache, ...]":
    from gpucache.remote.contents import stored_caches
    from gpucache.remote.signing import read_trusted

    store = open_store(url)
    click.get_current_context().call_on_close(store.close)
    return stored_caches(store, read_trusted(settings.trusted_keys, settings.signing_key))


def _roots_or_why(settings: "Settings", *, systems: bool) -> "Sequence[Cache]":
    """The roots of our own cache, or a stand-in with the reason, so that the others are still shown."""
    from gpucache.answers.entries import Location
    from gpucache.assembly import open_roots
    from gpucache.caches.known_caches import Unusable

    try:
        roots = open_roots(settings, systems=systems)
        for cache in roots:
            next(iter(cache.scan()), None)
    except CacheUnusableError as error:
        place = Location(OWN, str(settings.root or ""), settings.root_origin, enabled=True)
        return (Unusable(place, str(error)),)
    return roots
