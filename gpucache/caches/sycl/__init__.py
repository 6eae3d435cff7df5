"""The persistent device code cache of libsycl, the runtime of SYCL programs: see ``format``."""

from typing import TYPE_CHECKING

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.sycl.locations import SyclPlaces

if TYPE_CHECKING:
    from gpucache.caches.sycl.format import Sycl

__all__ = ["SYSTEM"]


def _format() -> "type[Sycl]":
    from gpucache.caches.sycl.format import Sycl

    return Sycl


SYSTEM = ForeignSystem(SyclPlaces, _format)
