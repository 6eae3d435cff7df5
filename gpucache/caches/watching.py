"""What all known caches of an environment hold at one moment, so that two moments can be compared.

Owns the walk over every system and every plain folder. Entries are told apart by key and size; files by
path, time and size, empty ones left out, as several owners leave an empty file at each start. Must not
know why somebody compares.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gpucache.caches.interface import Cache
from gpucache.caches.redirects import XDG, plain_places
from gpucache.caches.registry import OWN, systems
from gpucache.errors import GpucacheError

Snapshot = Mapping[str, Mapping[str, int]]
"""Entries of each cache, by name: what an entry is called, and its size in bytes."""

_OTHERS = "others"
_FILES = 200_000


def snapshot(environ: Mapping[str, str], *, private: bool) -> Snapshot:
    """What every known cache holds; with ``private`` whatever else lies below the cache folder, too."""
    held: dict[str, dict[str, int]] = {}
    roots: list[Path] = []
    for cache in _caches(environ):
        roots.append(Path(cache.location().root))
        held.setdefault(cache.name, {}).update(_entries(cache))
    for name, folder in plain_places(environ):
        roots.append(folder)
        # A hit of ours sets the time of an entry; of others a new time is a file written anew.
        held.setdefault(name, {}).update(_files(folder, (), timed=name != OWN))
    if private and environ.get(XDG):
        held[_OTHERS] = dict(_files(Path(environ[XDG]), tuple(roots), timed=True))
    return held


def _caches(environ: Mapping[str, str]) -> Iterator[Cache]:
    for system in systems():
        for location in system.locations(environ):
            if location.root and Path(location.root).exists():
                with suppress(GpucacheError):
                    yield system.open(location)


def _entries(cache: Cache) -> Iterator[tuple[str, int]]:
    with suppress(GpucacheError):
        for entry in cache.scan():
            yield f"{entry.program} {entry.key}".strip(), entry.size_bytes


def _files(folder: Path, without: tuple[Path, ...], *, timed: bool) -> Iterator[tuple[str, int]]:
    """Files below a folder that are not empty, links not followed, at most so many."""
    number = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(place, name) not in without]
        for name in names:
            path = Path(place, name)
            with suppress(OSError):
                status = path.lstat()
                if status.st_size and path not in without:
                    when = f" of {status.st_mtime_ns}" if timed else ""
                    yield f"{path.relative_to(folder)}{when}", status.st_size
            number += 1
            if number >= _FILES:
                return
