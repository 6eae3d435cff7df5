"""MIOpen's kernel cache: databases of the kernels that it compiled.

Source: ROCm/MIOpen, src/binary_cache.cpp and src/include/miopen/kern_db.hpp.
"""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.places import Home, Place, Var


class Miopen(OpaqueFormat):
    """What MIOpen keeps for each of its versions and each kind of device."""

    name = "miopen"
    title = "MIOpen kernel cache"
    owner = "MIOpen"
    place = Place(
        (Var("MIOPEN_CUSTOM_CACHE_DIR"), Var("XDG_CACHE_HOME", "miopen"), Home(".cache/miopen")),
        move="set MIOPEN_CUSTOM_CACHE_DIR",
        nowhere="MIOpen names no place without a home folder; set MIOPEN_CUSTOM_CACHE_DIR",
        off={"MIOPEN_DISABLE_CACHE": ("1",)},
        opt_in=True,
    )
    signs = (r".+\.ukdb", r"[0-9.]+/.+\.ukdb")


SYSTEM = ForeignSystem(Miopen)
