"""Where PoCL keeps its cache; PoCL needs the place to start."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpucache.caches.places import WINDOWS, Place, Places, Temporary, Var

_VARIABLE, _SWITCH = "POCL_CACHE_DIR", "POCL_KERNEL_CACHE"


class PoclPlaces(Places):
    """PoCL needs the place to start. Source: PoCL, lib/CL/pocl_cache.c (``pocl_cache_init_topdir``)."""

    name = "pocl"
    title = "PoCL kernel cache"
    owner = "PoCL"
    driver = True
    unseen = "a changed byte inside a kernel, or, before a launch, the bitcode of another program"
    place = Place(
        (
            Var(_VARIABLE),
            *(
                [Var("LOCALAPPDATA", "pocl"), Var("TEMP", "pocl")]
                if WINDOWS
                else [
                    Var("XDG_CACHE_HOME", "pocl/kcache"),
                    Var("HOME", ".cache/pocl/kcache", top=True),
                    Temporary("pocl", user=False, folder="/tmp", inside="kcache"),
                ]
            ),
        ),
        along=((_SWITCH, "1"),),
        runs=True,
        opt_in=False,
    )
    below = {"pocl": ""}
    tracing = {"POCL_DEBUG": "general,cache,llvm"}
    """``general`` logs each kernel that is taken from the cache or compiled, also in PoCL 3."""

    @classmethod
    def off(cls, environ: Mapping[str, str]) -> str:
        """PoCL takes every value that does not begin with 1 as off."""
        if environ.get(_SWITCH, "1").startswith("1"):
            return ""
        return (
            f"{_SWITCH}={environ[_SWITCH]} turns the cache off, as PoCL treats every value as off "
            f"that does not begin with 1, so every start compiles; unset {_SWITCH}"
        )

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        if environ.get(_VARIABLE) == "":
            yield f"{_VARIABLE} is set and empty, at which PoCL shows 0 devices or dies; unset it"
        named = any(map(environ.get, (_VARIABLE, "XDG_CACHE_HOME"))) or "HOME" in environ
        if not (WINDOWS or named):
            yield (
                "XDG_CACHE_HOME and HOME are not set, so it is in /tmp, which all users share: for all "
                f"but the first PoCL shows 0 devices; {cls.place.move}"
            )

    @classmethod
    def at_place(cls, root: Path) -> Iterator[str]:
        """PoCL shows no devices or builds nothing if it cannot create or write it."""
        yield from super().at_place(root)
        try:
            nearest = next((path for path in (root, *root.parents) if path.exists()), root)
            folder = nearest.is_dir()
        except (OSError, ValueError):
            folder = False
            nearest = root.parent
        if folder and os.access(nearest, os.W_OK):
            return
        if nearest == root and folder:
            yield f"PoCL builds no program where it cannot write, not even a cached one; {cls.place.move}"
        else:
            yield (
                f"PoCL makes it at its start and shows 0 devices where it cannot; {cls.place.move} to a "
                "place that can be written"
            )
