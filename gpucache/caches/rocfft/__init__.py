"""rocFFT's runtime-compilation cache: see ``format``."""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.rocfft.format import Rocfft

__all__ = ["SYSTEM"]

SYSTEM = ForeignSystem(Rocfft)
