"""Futhark's cache files: see ``format``."""

from typing import TYPE_CHECKING

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.futhark.locations import FutharkPlaces

if TYPE_CHECKING:
    from gpucache.caches.futhark.format import Futhark

__all__ = ["SYSTEM"]


def _format() -> "type[Futhark]":
    from gpucache.caches.futhark.format import Futhark

    return Futhark


SYSTEM = ForeignSystem(FutharkPlaces, _format)
