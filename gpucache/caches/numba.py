"""Numba's cache of functions that ask for one: an index of each function, and its compiled versions.

Source: numba-cuda, numba_cuda/numba/cuda/core/caching.py. Without the variable it lies beside each source.
"""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.places import Place, Var


class Numba(OpaqueFormat):
    """What functions with ``cache=True`` leave."""

    name = "numba"
    title = "Numba cache"
    owner = "Numba"
    place = Place(
        (Var("NUMBA_CACHE_DIR"),),
        move="set NUMBA_CACHE_DIR",
        nowhere="Numba keeps its files beside each source until NUMBA_CACHE_DIR names a folder; set it",
        opt_in=True,
    )
    signs = (r".*_[0-9a-f]{40}/.+\.nbi", r".+\.nbi")


SYSTEM = ForeignSystem(Numba)
