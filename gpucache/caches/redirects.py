"""Which variables move every known cache, and where each lies when none of them is set.

Owns the caches that have no module of their own: a variable, and a place below the home folder. Those
with a module answer for themselves. Source: each project's documentation of its variable. Must not look
into a cache.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpucache.caches.registry import OWN, systems


@dataclass(frozen=True, slots=True)
class Plain:
    """A cache known by its folder alone."""

    name: str
    variable: str
    default: str
    """Below the home folder, or below the cache folder where it begins with ``~cache``; empty for none."""
    below: str = ""
    """The part of the folder that holds entries."""


PLAIN = (
    Plain(OWN, "GPUCACHE_DIR", "~cache/gpucache", "v1/entries"),
    Plain("intel-neo", "NEO_CACHE_DIR", "~cache/neo_compiler_cache"),
    Plain("mesa", "MESA_SHADER_CACHE_DIR", "~cache/mesa_shader_cache"),
    Plain("amd-comgr", "AMD_COMGR_CACHE_DIR", "~cache/comgr"),
    Plain("miopen", "MIOPEN_CUSTOM_CACHE_DIR", "~cache/miopen"),
    Plain("triton", "TRITON_CACHE_DIR", ".triton/cache"),
    Plain("inductor", "TORCHINDUCTOR_CACHE_DIR", ""),
    Plain("vllm", "VLLM_CACHE_ROOT", "~cache/vllm"),
    Plain("cupy", "CUPY_CACHE_DIR", ".cupy/kernel_cache"),
    Plain("numba", "NUMBA_CACHE_DIR", ""),
    Plain("warp", "WARP_CACHE_PATH", "~cache/warp"),
    Plain("taichi", "TI_OFFLINE_CACHE_FILE_PATH", "~cache/taichi/ticache"),
)
# A cache that is off until its variable is set is moved only where it is on.
_OPT_IN = (Plain("jax", "JAX_COMPILATION_CACHE_DIR", ""),)
XDG = "XDG_CACHE_HOME"


@dataclass(frozen=True, slots=True)
class Redirects:
    """What keeps a program's caches below one folder, and what cannot be kept there."""

    groups: tuple[tuple[tuple[str, str], ...], ...]
    """The variables of each cache: where it is, and what turns it on there."""
    lacking: tuple[str, ...]

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """All variables."""
        return tuple(pair for group in self.groups for pair in group)


def redirects(folder: Path, environ: Mapping[str, str]) -> Redirects:
    """The variables that put every known cache below a folder, and make those folders that must be there."""
    groups: list[tuple[tuple[str, str], ...]] = [((XDG, str(folder / "xdg")),)]
    groups += [((plain.variable, str(folder / plain.name)),) for plain in _plains(environ)]
    lacking = []
    for system in systems():
        isolation = system.isolation(folder)
        groups.append(tuple(pair for pair in isolation.environment if pair[0] != XDG))
        if isolation.lacking and not isolation.environment:
            lacking.append(f"{system.name}: {isolation.lacking}")
    return Redirects(tuple(filter(None, groups)), tuple(lacking))


def make_folders(folder: Path, environment: Mapping[str, str]) -> None:
    """Make what some owners do not make themselves (NEO, Mesa); raises OSError."""
    (folder / "xdg").mkdir(parents=True, exist_ok=True)
    for plain in PLAIN:
        if plain.variable in environment:
            Path(environment[plain.variable]).mkdir(parents=True, exist_ok=True)


def plain_places(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Name and folder of the entries of every cache without a module, in an environment."""
    for plain in _plains(environ):
        place = environ.get(plain.variable) or _default(plain, environ)
        if place:
            yield plain.name, Path(place) / plain.below


def _plains(environ: Mapping[str, str]) -> Iterator[Plain]:
    yield from PLAIN
    yield from (plain for plain in _OPT_IN if environ.get(plain.variable))


def _default(plain: Plain, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "")
    if not plain.default or not home:
        return ""
    if plain.default.startswith("~cache/"):
        caches = environ.get(XDG) or f"{home}/.cache"
        return f"{caches}/{plain.default.removeprefix('~cache/')}"
    return f"{home}/{plain.default}"
