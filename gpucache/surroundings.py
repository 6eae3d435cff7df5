"""What a command of somebody else's runs among: every known cache, looked at and kept below a folder.

Puts the systems' own knowledge together for warm and bench. Must not run anything.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from gpucache.caches import watching
from gpucache.caches.redirects import make_folders, redirects
from gpucache.engine.bench_command import Surroundings
from gpucache.engine.watch import Snapshot

_TURNED_ON = {"SYCL_CACHE_PERSISTENT": "SYCL's persistent cache"}


def surroundings(environ: Mapping[str, str], load: Callable[[], Callable[[], float]]) -> Surroundings:
    """The caches of an environment for a benchmark."""
    return Surroundings(
        environ=environ,
        isolate=lambda folder: isolate(folder, environ),
        look=look,
        load=load,
        lacking=notes(environ),
    )


def isolate(folder: Path, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The variables that keep every known cache below a folder, which is made; raises OSError."""
    own = dict(redirects(folder, environ).environment)
    make_folders(folder, own)
    return own


def used(folder: Path, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables of the caches below a folder that hold something."""
    groups = redirects(folder, environ).groups
    return tuple(pair for group in groups if any(_holds(value) for _, value in group) for pair in group)


def _holds(value: str) -> bool:
    place = Path(value)
    if not place.is_absolute():
        return False
    return place.is_file() or any(files for _, _, files in os.walk(place))


def look(environ: Mapping[str, str], private: bool) -> Snapshot:
    """What every known cache of an environment holds now."""
    return watching.snapshot(environ, private=private)


def notes(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What cannot be redirected, and what a redirected command uses and this environment does not."""
    turned_on = (
        f"{what} is turned on by {name}=1, which your environment does not set"
        for name, what in _TURNED_ON.items()
        if environ.get(name) != "1"
    )
    return (*redirects(Path("DIR"), environ).lacking, *turned_on)
