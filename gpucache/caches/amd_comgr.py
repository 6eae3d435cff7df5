"""The cache of AMD's code object manager, which compiles for HIP's run-time compilation and for OpenCL.

Source: ROCm/llvm-project, amd/comgr/README.md and src/comgr-cache.cpp.
"""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.places import Home, Place, Var


class AmdComgr(OpaqueFormat):
    """What it compiled, a file for each step."""

    name = "amd-comgr"
    title = "AMD code object manager cache"
    owner = "AMD's code object manager"
    driver = True
    place = Place(
        (Var("AMD_COMGR_CACHE_DIR"), Var("XDG_CACHE_HOME", "comgr"), Home(".cache/comgr")),
        move="set AMD_COMGR_CACHE_DIR",
        nowhere="AMD's code object manager keeps nothing without a home folder; set AMD_COMGR_CACHE_DIR",
        off={"AMD_COMGR_CACHE": ("0",)},
        opt_in=True,
    )
    signs = ("llvmcache-[0-9A-F]+",)


SYSTEM = ForeignSystem(AmdComgr)
