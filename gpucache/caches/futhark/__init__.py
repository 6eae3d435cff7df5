"""Futhark's cache files: one per program, named by whoever starts it with ``--cache-file``.

The system as others see it; the format is in ``header``, the key in ``keys`` and ``options``, what
explains a miss in ``explaining``. Nothing here knows of compilers or devices.
"""

from gpucache.caches.futhark.system import FutharkSystem

__all__ = ["SYSTEM", "FutharkSystem"]

SYSTEM = FutharkSystem()
