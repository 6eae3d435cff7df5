"""What a command of somebody else's runs among: every known cache, looked at and kept below a folder.

Puts the systems' own knowledge together for warm and bench. Must not run anything.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gpucache.caches import watching
from gpucache.caches.redirects import make_folders, plain_places, redirects
from gpucache.caches.registry import systems
from gpucache.engine.bench_command import Surroundings
from gpucache.engine.watch import Snapshot, entries

_TURNED_ON = {
    "sycl": ("SYCL_CACHE_PERSISTENT", "SYCL's persistent cache"),
    "jax": ("JAX_COMPILATION_CACHE_DIR", "JAX's compilation cache"),
}
_DEEPEST = 6
"""How far below its root an entry of a known cache lies at most."""


def surroundings(environ: Mapping[str, str], load: Callable[[], Callable[[], float]]) -> Surroundings:
    """The caches of an environment for a benchmark."""
    return Surroundings(
        environ=environ,
        isolate=lambda folder: isolate(folder, environ),
        look=look,
        load=load,
        root_of=lambda folder: root_of(folder, environ),
        off=frozenset(_off(environ)),
        notes=lambda written: notes(written, environ),
    )


def isolate(folder: Path, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The variables that keep every known cache below a folder, which is made; raises OSError."""
    own = _variables(folder, environ)
    make_folders(folder, own)
    return own


def used(folder: Path, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables of the caches below a folder that hold entries."""
    held = look({**environ, **_variables(folder, environ)}, True)
    full = {name for name, found in held.items() if entries({name: found})}
    groups = redirects(folder, environ)
    return tuple(pair for group in groups if full & set(group.caches) for pair in group.variables)


def remove_unused(folder: Path, environ: Mapping[str, str]) -> None:
    """Remove what was made below a folder for caches that nobody filled."""
    for value in _variables(folder, environ).values():
        if Path(value).is_relative_to(folder):
            with suppress(OSError):
                Path(value).rmdir()


def look(environ: Mapping[str, str], private: bool) -> Snapshot:
    """What every known cache of an environment holds now."""
    return watching.snapshot(environ, private=private)


def root_of(path: Path, environ: Mapping[str, str]) -> Path | None:
    """The root of the known cache that a folder lies in; None for any other folder."""
    plain = next((root for _, root in plain_places(environ) if path.is_relative_to(root)), None)
    candidates = (path, *path.parents[:_DEEPEST])
    return plain or next((at for at in candidates if any(one.recognises(at) for one in systems())), None)


def notes(written: Collection[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """What was turned on for a command, of the caches that it wrote into, and this environment does not."""
    return tuple(
        f"{title} was turned on; in your environment it is off, as {variable} is not set"
        for cache, (variable, title) in _TURNED_ON.items()
        if cache in written and cache in _off(environ)
    )


def _off(environ: Mapping[str, str]) -> Iterator[str]:
    return (cache for cache, (variable, _) in _TURNED_ON.items() if not environ.get(variable))


def _variables(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for group in redirects(folder, environ) for name, value in group.variables}
