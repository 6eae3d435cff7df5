"""The caches that ``--cache`` means, opened."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from gpucache.cli.globals import given
from gpucache.errors import UsageError

if TYPE_CHECKING:
    from gpucache.caches.interface import Cache, Rebuildable
    from gpucache.settings import Settings
    from gpucache.store.interface import EntryStore

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class OwnOpened:
    """Our own cache, with the store that has its records."""

    cache: "Rebuildable"
    store: "EntryStore"


@dataclass(frozen=True, slots=True)
class Opened:
    """The caches that were named, and our own among them, with the settings that led to it."""

    settings: "Settings"
    caches: "tuple[Cache, ...]"
    own: OwnOpened | None

    def require_own(self, option: str) -> OwnOpened:
        """Our own cache; raises UsageError where an option that only it can answer meets others."""
        if self.own is None or len(self.caches) > 1:
            raise UsageError(f"{option} is for gpucache's own cache; leave --cache out, or name its root")
        return self.own


class CacheName(click.ParamType[str]):
    """A cache by the name of its system or by its place, completed from the names."""

    name = "cache"

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - Click's signature
        param: click.Parameter,  # noqa: ARG002 - Click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        """Names of systems, then folders and files."""
        from gpucache.caches.registry import ALL, NAMES

        names = [CompletionItem(name) for name in (*NAMES, ALL) if name.startswith(incomplete)]
        return names or [CompletionItem(incomplete, type="file")]


def cache_option(function: F) -> F:
    """Add the option that says which caches."""
    return click.option(
        "--cache", metavar="NAME|PLACE", type=CacheName(), multiple=True,
        help="Which caches: gpucache, sycl, futhark, rocfft, pyopencl, pocl, cuda.core, cuda, all, a folder "
        "or file, or NAME:PLACE; may be given again; default our own.",
    )(function)  # fmt: skip


def open_named(texts: Sequence[str]) -> Opened:
    """The caches of all names and places, our own for none; raises UsageError or CacheUnusableError."""
    opened = [_open_one(text) for text in texts or ("gpucache",)]
    own = next((one.own for one in opened if one.own is not None), None)
    return Opened(opened[0].settings, tuple(cache for one in opened for cache in one.caches), own)


def _open_one(text: str) -> Opened:
    from gpucache.caches.registry import ALL, OWN, is_own, split, system_at

    settings = given().settings()
    name, place = split(text)
    if name == OWN or (place is not None and name is None and is_own(place)):
        settings = settings if place is None else replace(settings, root=place, root_origin="--cache")
        own = _own(settings)
        return Opened(settings, (own.cache,), own)
    if name == ALL:
        own, others = open_all()
        return Opened(settings, (own.cache, *others), own)
    if name is None and place is not None:
        return _foreign(settings, system_at(place).name, place)
    return _foreign(settings, name or OWN, place)


def open_all() -> "tuple[OwnOpened, list[Cache]]":
    """Our own cache, and every cache of others that is here."""
    return _own(given().settings()), open_others()


def open_others() -> "list[Cache]":
    """Every cache of others that is here."""
    from gpucache.assembly import found_caches

    return found_caches(os.environ)


def _own(settings: "Settings") -> OwnOpened:
    from gpucache.assembly import open_cache, open_store

    settings.require_root()
    return OwnOpened(open_cache(settings), open_store(settings))


def _foreign(settings: "Settings", name: str, place: Path | None) -> Opened:
    from gpucache.assembly import open_places

    caches = open_places(name, place, os.environ)
    if not caches:
        from gpucache.caches.registry import load_system

        why = load_system(name).nowhere
        raise UsageError(f"{name} has no place of its own here: {why}, or ask for one: --cache {name}:PLACE")
    return Opened(settings, tuple(caches), None)
