"""Futhark's cache files: see ``format``."""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.futhark.format import Futhark

__all__ = ["SYSTEM"]

SYSTEM = ForeignSystem(Futhark)
