"""Programs read from disk or memory with their include closure, for the cache key.

Owns the search for all that a compiler could read of a program: ``scan`` finds directives in text, ``rules``
says where an implementation searches for headers, ``reading`` returns the closures known without a walk, and
``closure`` follows includes from the program to all headers. For an include through a macro ``macro_names``
finds possible names, and ``headers`` their files. ``closure_memos`` and ``scan_memos`` store the results for
later processes; ``discover`` finds programs. Must not know compilers or GPUs: a backend passes its rule.
"""

from gpucache.sources.closure_memos import Memos, is_settled, still_closure
from gpucache.sources.reading import read_closure
from gpucache.sources.rules import Limits, Place, SearchRule, Wanted

__all__ = [
    "Limits",
    "Memos",
    "Place",
    "SearchRule",
    "Wanted",
    "is_settled",
    "read_closure",
    "still_closure",
]
