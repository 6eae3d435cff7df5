"""PyOpenCL's compiler cache: see ``format``."""

from typing import TYPE_CHECKING

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.pyopencl.locations import PyOpenclPlaces

if TYPE_CHECKING:
    from gpucache.caches.pyopencl.format import PyOpencl

__all__ = ["SYSTEM"]


def _format() -> "type[PyOpencl]":
    from gpucache.caches.pyopencl.format import PyOpencl

    return PyOpencl


SYSTEM = ForeignSystem(PyOpenclPlaces, _format)
