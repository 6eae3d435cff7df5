"""The cache that ``--cache`` means, opened."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpucache.cli.globals import given

if TYPE_CHECKING:
    from gpucache.caches.interface import Cache
    from gpucache.settings import Settings
    from gpucache.store.interface import EntryStore


@dataclass(frozen=True, slots=True)
class Opened:
    """A cache with the settings that led to it."""

    settings: "Settings"
    cache: "Cache"
    store: "EntryStore"


def open_named(name: str | None) -> Opened:
    """The cache of a name or root; raises UsageError or CacheUnusableError."""
    from gpucache.assembly import open_cache, open_store
    from gpucache.caches.registry import resolve

    settings = given().settings()
    root = settings.require_root()
    chosen = resolve(name, root)
    if chosen != root:
        settings = replace(settings, root=chosen, root_origin="--cache")
    return Opened(settings, open_cache(settings), open_store(settings))
