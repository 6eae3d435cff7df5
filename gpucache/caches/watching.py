"""What all known caches of an environment hold at one moment, so that two moments can be compared.

Owns the walk over every system and every plain folder, and what counts as an entry: what a system says is
one, else a file. Entries are told apart by name, size and the time they were written, so that a cache which
is emptied and filled again at each start is seen. Empty files are none, as several owners leave one at each
start, nor are those that an owner rewrites at a hit. Of programs that gpucache does not know neither are logs
and text that is no PTX (settings, lists of recent files), which are marked as text, nor what SQLite keeps for
those that have a database open, which each of them writes anew. Must not know why somebody compares.
"""

import os
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from gpucache.caches.interface import Cache
from gpucache.caches.redirects import OTHERS, XDG, plain_places
from gpucache.caches.registry import OWN, systems
from gpucache.errors import GpucacheError
from gpucache.outcomes import Held
from gpucache.payload import PayloadKind, describe

Snapshot = Mapping[str, Mapping[str, Held]]
"""Entries of each cache, by name: what an entry is called, and what tells it from another."""

_FILES = 200_000
_HEAD_BYTES = 4096
_NO_ENTRIES = (
    ".log",
    ".lock",
    "-shm",
)  # the last is SQLite's index of its log, https://sqlite.org/walformat.html


def snapshot(environ: Mapping[str, str], *, private: bool) -> Snapshot:
    """What every known cache holds; with ``private`` whatever else lies below the cache folder, too."""
    held: dict[str, dict[str, Held]] = {}
    roots: list[Path] = []
    for cache in _caches(environ):
        roots.append(Path(cache.location().root))
        held.setdefault(cache.name, {}).update(_entries(cache))
    for plain, folder in plain_places(environ):
        roots.append(folder)
        # A hit of ours sets the time of an entry; of others a new time is a file written anew.
        files = _files(folder, (), timed=plain.name != OWN)
        entries = ((name, one) for name, one in files if not fnmatch(name, plain.rewritten))
        held.setdefault(plain.name, {}).update(entries)
    if private and environ.get(XDG):
        below = Path(environ[XDG])
        strangers = _files(below, tuple(roots), timed=True)
        held[OTHERS] = {
            name: one._replace(text=_is_text(below / name))
            for name, one in strangers
            if not name.endswith(_NO_ENTRIES)
        }
    return held


def _caches(environ: Mapping[str, str]) -> Iterator[Cache]:
    for system in systems():
        for location in system.locations(environ):
            if location.root and Path(location.root).exists():
                with suppress(GpucacheError):
                    yield system.open(location)


def _entries(cache: Cache) -> Iterator[tuple[str, Held]]:
    with suppress(GpucacheError):
        for entry in cache.scan():
            yield f"{entry.program} {entry.key}".strip(), Held(entry.size_bytes, entry.created_ns)


def _files(folder: Path, without: tuple[Path, ...], *, timed: bool) -> Iterator[tuple[str, Held]]:
    """Files below a folder that are not empty, links not followed, at most so many."""
    number = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(place, name) not in without]
        for name in names:
            path = Path(place, name)
            with suppress(OSError):
                status = path.lstat()
                if status.st_size and path not in without:
                    made_ns = status.st_mtime_ns if timed else 0
                    yield str(path.relative_to(folder)), Held(status.st_size, made_ns)
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
