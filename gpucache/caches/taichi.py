"""Taichi's offline cache: a file for each kernel, and an index.

Source: Taichi 1.7, taichi/util/offline_cache.h.
"""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.places import Home, Place, Var


class Taichi(OpaqueFormat):
    """What Taichi compiled for any of its backends."""

    name = "taichi"
    title = "Taichi offline cache"
    owner = "Taichi"
    place = Place(
        (
            Var("TI_OFFLINE_CACHE_FILE_PATH"),
            Var("XDG_CACHE_HOME", "taichi/ticache"),
            Home(".cache/taichi/ticache"),
        ),
        move="set TI_OFFLINE_CACHE_FILE_PATH",
        nowhere="Taichi finds no home folder; set TI_OFFLINE_CACHE_FILE_PATH",
        off={"TI_OFFLINE_CACHE": ("0",)},
        opt_in=True,
    )
    signs = (r"ticache\.tcb", r"T[0-9a-f]{64}\.tic", r"kernel_compilation_manager/T[0-9a-f]{64}\.tic")


SYSTEM = ForeignSystem(Taichi)
