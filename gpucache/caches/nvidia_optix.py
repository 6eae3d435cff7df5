"""OptiX' disk cache of what it compiled for ray tracing: a database, which is opaque.

Source: NVIDIA's ``optix_host.h`` of OptiX 7 and 8 (``optixDeviceContextSetCacheLocation`` and
``...SetCacheDatabaseSizes``), and what people published of their folders and logs; no cache of an NVIDIA GPU
was seen. ``optix7cache.db`` is SQLite's, with its log and index beside it while a program runs; its tables
are not documented. OptiX evicts by itself, and throws a broken database away and begins anew.
"""

from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.systems import OptixPlaces


class Optix(OptixPlaces, OpaqueFormat):
    """What OptiX, a part of NVIDIA's driver, compiled for programs that trace rays."""

    signs = (r"optix\d*cache\.db",)
    rewritten = r".*-(?:wal|shm)"


FORMAT = Optix
