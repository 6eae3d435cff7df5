"""PyOpenCL's compiler cache: see ``format``."""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.pyopencl.format import PyOpencl

__all__ = ["SYSTEM"]

SYSTEM = ForeignSystem(PyOpencl)
