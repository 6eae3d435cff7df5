"""PoCL's kernel cache: see ``format``."""

from typing import TYPE_CHECKING

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.pocl.locations import PoclPlaces

if TYPE_CHECKING:
    from gpucache.caches.pocl.format import Pocl

__all__ = ["SYSTEM"]


def _format() -> "type[Pocl]":
    from gpucache.caches.pocl.format import Pocl

    return Pocl


SYSTEM = ForeignSystem(PoclPlaces, _format)
