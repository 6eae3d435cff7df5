"""OptiX' disk cache of what it compiled for ray tracing: a database, which is opaque.

Source: NVIDIA's ``optix_host.h`` of OptiX 7 and 8 (``optixDeviceContextSetCacheLocation`` and
``...SetCacheDatabaseSizes``), and what people published of their folders and logs; no cache of an NVIDIA GPU
was seen. ``optix7cache.db`` is SQLite's, with its log and index beside it while a program runs; its tables
are not documented. OptiX evicts by itself, and throws a broken database away and begins anew.
"""

from collections.abc import Mapping

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.places import WINDOWS, Place, Temporary, Var

_SIZE = "OPTIX_CACHE_MAXSIZE"


class Optix(OpaqueFormat):
    """What OptiX, a part of NVIDIA's driver, compiled for programs that trace rays."""

    name = "nvidia-optix"
    title = "OptiX disk cache"
    owner = "OptiX"
    driver = True
    place = Place(
        (
            Var("OPTIX_CACHE_PATH"),
            Var("LOCALAPPDATA", "NVIDIA/OptixCache")
            if WINDOWS
            else Temporary("OptixCache_", folder="/var/tmp"),
        ),
        move="set OPTIX_CACHE_PATH",
        nowhere="OptiX names no place for a user without a name; set OPTIX_CACHE_PATH",
        off={_SIZE: ("0",)},
        opt_in=True,
    )
    signs = (r"optix\d*cache\.db",)
    rewritten = r".*-(?:wal|shm)"

    @classmethod
    def limit_bytes(cls, environ: Mapping[str, str]) -> int | None:
        """The size above which OptiX evicts down to half of it; its own is not documented."""
        size = environ.get(_SIZE, "")
        return int(size) if size.isascii() and size.isdecimal() and len(size) < 20 else None


SYSTEM = ForeignSystem(Optix)
