"""The store elsewhere that a URL names, and the caches that pull fills from it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpucache.caches.registry import ALL, OWN, SYSTEMS, split
from gpucache.cli.caches import cache_option, is_store, open_named, timeout_option
from gpucache.cli.globals import given, in_folder
from gpucache.cli.parameters import StoreName
from gpucache.engine.selection import Opened
from gpucache.errors import UsageError

if TYPE_CHECKING:
    from gpucache.caches.interface import Cache

F = TypeVar("F", bound=Callable[..., Any])


def store_options(function: F) -> F:
    """Add the argument that names a store, the time that it may take, and the option that names caches."""
    return click.argument("url", metavar="URL", type=StoreName())(timeout_option(cache_option(function)))


def refuse_stores(caches: Sequence[str]) -> None:
    """Raises UsageError for a store among the values of ``--cache``, which other verbs take."""
    from gpucache.remote.objects import public

    for one in filter(is_store, caches):
        raise UsageError(f"--cache {public(one)} is a store, too; name caches of this machine")


def open_to_fill(texts: Sequence[str], folder: Path | None, *, dry_run: bool) -> Opened:
    """The caches of some names and places, our own without any, whether they exist or not.

    A name means the first place where its programs look; with a directory, where they look with the variables
    of ``KnownCaches`` for it. Raises UsageError or CacheUnusableError.
    """
    from gpucache.assembly import open_roots
    from gpucache.caches.known_caches import KnownCaches, first_places, make_folder_of_all, open_places
    from gpucache.settings import read_settings

    refuse_stores(texts)
    settings, environ = given().settings(), given().environment()
    if folder is not None:
        environ |= KnownCaches(environ).variables(folder.absolute())
        settings = read_settings(environ)
    elif not dry_run:
        make_folder_of_all(environ, texts)
    caches: dict[str, Cache] = {}
    for text in texts or (OWN,):
        name, place = split(text, must_exist=False)
        if folder is not None and place is not None:
            raise UsageError(f"--to says where each cache is; leave it out, or the place in --cache {text}")
        found: Sequence[Cache]
        if name == OWN:
            root = (
                settings
                if place is None
                else settings._replace(root=place, root_origin="--cache", folder=None)
            )
            found = open_roots(in_folder(root), systems=False)
        elif name == ALL:
            found = [*open_roots(settings, systems=False), *first_places(SYSTEMS, environ)]
        elif place is None and name is not None:
            found = list(first_places([name], environ)) or open_named([text]).caches
        elif name is not None:
            found = open_places(name, place, environ)
        else:
            found = open_named([text], systems=False).caches
        caches.update((cache.location().root, cache) for cache in found)
    return Opened(settings, tuple(caches.values()))


def write_environment(folder: Path, opened: Opened) -> None:
    """Write the variables that lead programs to caches below a directory, for those that have entries.

    Raises UsageError if the file cannot be written.
    """
    from gpucache.caches.known_caches import KnownCaches
    from gpucache.engine.warm.command import write_variables

    around = KnownCaches(given().environment(), frozenset(cache.name for cache in opened.caches))
    write_variables(folder, around.used(folder.absolute()))
