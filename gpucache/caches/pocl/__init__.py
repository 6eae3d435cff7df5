"""PoCL's kernel cache: see ``format``."""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.pocl.format import Pocl

__all__ = ["SYSTEM"]

SYSTEM = ForeignSystem(Pocl)
