"""The compiler cache of Intel's GPU driver, for OpenCL and Level Zero.

Source: intel/compute-runtime, programmers-guide/COMPILER_CACHE.md. A place that the variable names has to be
there, or the driver caches nothing.
"""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.places import Home, Place, Var


class IntelNeo(OpaqueFormat):
    """What the driver's compiler made, a file for each program."""

    name = "intel-neo"
    title = "compiler cache of Intel's GPU driver"
    owner = "Intel's GPU driver"
    driver = True
    place = Place(
        (
            Var("NEO_CACHE_DIR"),
            Var("XDG_CACHE_HOME", "neo_compiler_cache"),
            Home(".cache/neo_compiler_cache"),
        ),
        move="set NEO_CACHE_DIR to a folder that is there",
        nowhere="Intel's GPU driver keeps nothing without a home folder; set NEO_CACHE_DIR",
        off={"NEO_CACHE_PERSISTENT": ("0",)},
        opt_in=True,
    )
    signs = (
        r"[0-9a-f]{16}\.(?:cl|l0|ocloc)_cache",
        r"[0-9a-f]/[0-9a-f]/[0-9a-f]{16}\.(?:cl|l0|ocloc)_cache",
    )


SYSTEM = ForeignSystem(IntelNeo)
