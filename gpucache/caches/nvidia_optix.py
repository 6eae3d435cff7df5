"""OptiX's disk cache of ray tracing programs: a database, which is opaque.

Source: NVIDIA's ``optix_host.h`` of OptiX 7 and 8 (``optixDeviceContextSetCacheLocation`` and
``...SetCacheDatabaseSizes``), and published directory listings and logs; no cache of an NVIDIA GPU was
available. ``optix7cache.db`` is an SQLite database, with its log and index next to it while a program runs;
its tables are not documented. OptiX evicts by itself, and replaces a broken database with a new one.
"""

from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.systems import OptixPlaces


class Optix(OptixPlaces, OpaqueFormat):
    """The programs that OptiX, a part of NVIDIA's driver, compiled for ray tracing."""

    signs = (r"optix\d*cache\.db",)
    rewritten = r".*-(?:wal|shm)"
