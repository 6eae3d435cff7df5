"""Where PoCL keeps its cache, what decided that, and what is wrong with it: PoCL needs the place to start."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpucache.answers.entries import Location
from gpucache.caches import places
from gpucache.caches.places import Place, Places, Var

NAME = "pocl"
VARIABLE = "POCL_CACHE_DIR"
SWITCH = "POCL_KERNEL_CACHE"
_MOVE = f"set {VARIABLE}"
_EMPTY = f"{VARIABLE} is set and empty, at which PoCL shows 0 devices or dies; unset it"
_IN_TMP = (
    "neither XDG_CACHE_HOME nor HOME is set, so it lies in /tmp, which all users share: for all but the "
    f"first PoCL shows 0 devices; {_MOVE}"
)
_NOT_MADE = (
    f"PoCL makes it at its start and shows 0 devices where it cannot; {_MOVE} to a place that can be written"
)
_NOT_WRITTEN = f"PoCL builds no program where it cannot write, not even one that is here; {_MOVE}"


class PoclPlaces(Places):
    """The one place that PoCL looks in."""

    name = NAME
    title = "PoCL kernel cache"
    owner = "PoCL"
    driver = True
    place = Place(
        (Var(VARIABLE),),
        move=_MOVE,
        nowhere="PoCL finds no place; set POCL_CACHE_DIR",
        along=((SWITCH, "1"),),
        runs=True,
    )
    below = {"pocl": ""}
    tracing = {"POCL_DEBUG": "general,cache,llvm"}
    """``general`` tells each kernel that is taken from the cache or compiled, also in PoCL 3."""

    @classmethod
    def locations(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """The one place that PoCL looks in; while it is off, the one where it builds."""
        named, decided_by = _place(environ, windows=sys.platform == "win32")
        root = places.absolute(named)
        problems = (*_of_setting(environ, named, decided_by), *cls.at_place(root))
        yield Location(cls.name, str(root), decided_by, _enabled(environ), problems=problems)

    @classmethod
    def at_place(cls, root: Path) -> Iterator[str]:
        """Where PoCL cannot make or write it, it shows no devices or builds nothing."""
        yield from super().at_place(root)
        try:
            nearest = next((path for path in (root, *root.parents) if path.exists()), root)
            folder = nearest.is_dir()
        except (OSError, ValueError):
            yield _NOT_MADE
            return
        if not (folder and os.access(nearest, os.W_OK)):
            yield _NOT_WRITTEN if nearest == root and folder else _NOT_MADE


def _enabled(environ: Mapping[str, str]) -> bool:
    """PoCL takes every value that does not begin with 1 for off."""
    return environ.get(SWITCH, "1").startswith("1")


def _place(environ: Mapping[str, str], *, windows: bool) -> tuple[Path, str]:
    if environ.get(VARIABLE):
        return Path(environ[VARIABLE]), VARIABLE
    if windows:
        variable = "LOCALAPPDATA" if "LOCALAPPDATA" in environ else "TEMP"
        return Path(environ.get(variable, ""), NAME), variable
    last = Path(NAME, "kcache" if _enabled(environ) else "uncached")
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]) / last, "XDG_CACHE_HOME"
    if "HOME" in environ:
        return Path(f"{environ['HOME']}/.cache") / last, "HOME"
    return Path("/tmp") / last, "the default"  # as PoCL does


def _of_setting(environ: Mapping[str, str], root: Path, decided_by: str) -> Iterator[str]:
    if not _enabled(environ):
        yield (
            f"{SWITCH}={environ.get(SWITCH, '')} turns the cache off, as PoCL takes every value for off that "
            f"does not begin with 1, so every start compiles; unset {SWITCH}"
        )
    if environ.get(VARIABLE) == "":
        yield _EMPTY
    if relative := PoclPlaces.place.relative(root, decided_by):
        yield relative
    named = any(map(environ.get, (VARIABLE, "XDG_CACHE_HOME"))) or "HOME" in environ
    if sys.platform != "win32" and not named:
        yield _IN_TMP
