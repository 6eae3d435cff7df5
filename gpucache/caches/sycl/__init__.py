"""The persistent device code cache of libsycl, the runtime of SYCL programs: see ``format``."""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.sycl.format import Sycl

__all__ = ["SYSTEM"]

SYSTEM = ForeignSystem(Sycl)
