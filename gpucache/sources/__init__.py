"""Programs read from disk or memory with their include closure, for the cache key.

Owns what a compiler could read of a program: ``scan`` finds directives in text, ``rules`` says where
an implementation looks, ``closure`` walks, ``sweep`` lists folders, ``disk`` is asked by both, ``memo``
and ``scans`` keep what they found for the next process, ``discover`` finds programs.
Must not know any compiler or GPU: a backend passes its search rule.
"""

from gpucache.sources.closure import read_closure
from gpucache.sources.discover import discover, load_program
from gpucache.sources.memo import Memos
from gpucache.sources.rules import Limits, Place, SearchRule

__all__ = ["Limits", "Memos", "Place", "SearchRule", "discover", "load_program", "read_closure"]
