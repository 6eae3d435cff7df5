"""rocFFT's runtime-compilation cache: see ``format``."""

from typing import TYPE_CHECKING

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.rocfft.locations import RocfftPlaces

if TYPE_CHECKING:
    from gpucache.caches.rocfft.format import Rocfft

__all__ = ["SYSTEM"]


def _format() -> "type[Rocfft]":
    from gpucache.caches.rocfft.format import Rocfft

    return Rocfft


SYSTEM = ForeignSystem(RocfftPlaces, _format)
