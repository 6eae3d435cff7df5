"""Taichi's offline cache: ``format`` is what the engine asks, ``index`` the rows that make files count."""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.taichi.format import Taichi

SYSTEM = ForeignSystem(Taichi)
