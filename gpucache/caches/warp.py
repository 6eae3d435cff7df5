"""Warp's kernel cache: a folder for each module, with its source and its binaries.

Source: NVIDIA/warp, warp/_src/build.py and context.py.
"""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.places import Home, Place, Var


class Warp(OpaqueFormat):
    """What Warp compiled, below a folder for each of its versions."""

    name = "warp"
    title = "Warp kernel cache"
    owner = "Warp"
    place = Place(
        (Var("WARP_CACHE_PATH"), Var("XDG_CACHE_HOME", "warp"), Home(".cache/warp", expanded=True)),
        move="set WARP_CACHE_PATH",
        nowhere="Warp finds no home folder; set WARP_CACHE_PATH",
        opt_in=True,
    )
    signs = (r"wp_.+_[0-9a-f]{7}/wp_.+", r"[0-9].*/wp_.+_[0-9a-f]{7}/wp_.+")


SYSTEM = ForeignSystem(Warp)
