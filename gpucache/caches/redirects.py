"""Which variables move every known cache, and where each lies when none of them is set.

Owns the caches that have no module of their own: a variable, and a place below the home folder. Those
with a module answer for themselves. A cache that is off until a variable is set is turned on, too. Source:
each project's documentation of its variables. Must not look into a cache.
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
    turn_on: tuple[tuple[str, str], ...] = ()
    """What else makes its programs keep all they compile, where the variable is not set."""
    rewritten: str = ""
    """A pattern of the files that a hit rewrites, which are no entries."""


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
    Plain(
        "jax",
        "JAX_COMPILATION_CACHE_DIR",
        "",
        turn_on=(
            ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0"),
            ("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1"),
        ),
        rewritten="*-atime",
    ),
)
XDG = "XDG_CACHE_HOME"
OTHERS = "others"
"""What lies below the cache folder and belongs to no known cache."""


@dataclass(frozen=True, slots=True)
class Group:
    """The variables that belong together: where caches are, and what turns them on there."""

    caches: tuple[str, ...]
    """The names of the caches that they move."""
    variables: tuple[tuple[str, str], ...]


def redirects(folder: Path, environ: Mapping[str, str]) -> tuple[Group, ...]:
    """The variables that put every known cache below a folder."""
    shared = [OTHERS]
    groups = []
    for system in systems():
        found = system.isolation(folder).environment
        own = tuple(pair for pair in found if pair[0] != XDG)
        if own:
            groups.append(Group((system.name,), own))
        elif found:
            shared.append(system.name)
    for plain in PLAIN:
        turn_on = () if environ.get(plain.variable) else plain.turn_on
        groups.append(Group((plain.name,), ((plain.variable, str(folder / plain.name)), *turn_on)))
    return (Group(tuple(shared), ((XDG, str(folder / "xdg")),)), *groups)


def make_folders(folder: Path, environment: Mapping[str, str]) -> None:
    """Make what some owners do not make themselves (NEO, Mesa); raises OSError."""
    (folder / "xdg").mkdir(parents=True, exist_ok=True)
    for plain in PLAIN:
        if plain.variable in environment:
            Path(environment[plain.variable]).mkdir(parents=True, exist_ok=True)


def plain_places(environ: Mapping[str, str]) -> Iterator[tuple[Plain, Path]]:
    """Every cache without a module, with the folder of its entries in an environment."""
    for plain in PLAIN:
        place = environ.get(plain.variable) or _default(plain, environ)
        if place:
            yield plain, Path(place) / plain.below


def _default(plain: Plain, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "")
    if not plain.default or not home:
        return ""
    if plain.default.startswith("~cache/"):
        caches = environ.get(XDG) or f"{home}/.cache"
        return f"{caches}/{plain.default.removeprefix('~cache/')}"
    return f"{home}/{plain.default}"
