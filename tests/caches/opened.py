"""Caches of others opened at a place, and what tests of all systems ask of them."""

from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Location
from gpucache.answers.verify import Checked
from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.interface import Cache

PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry scale()\n{\n ret;\n}\n"
HOUR_NS = 3600 * 10**9


def opened(system: ForeignSystem, root: Path, now_ns: int | None = None) -> Cache:
    """The cache at a root, as ``--cache`` opens it, at some time of day."""
    location = Location(system.name, str(root), "--cache", enabled=True)
    return system.open(location) if now_ns is None else system.open(location, lambda: now_ns)


def only(cache: Cache) -> CacheEntry:
    """The one entry of a cache."""
    (entry,) = cache.scan()
    return entry


def kinds(checked: Checked) -> list[FindingKind]:
    """The kinds of what was found."""
    return [finding.kind for finding in checked.findings]
