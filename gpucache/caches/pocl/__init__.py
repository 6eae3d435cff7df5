"""PoCL's kernel cache: a folder for each program, with its bitcode and its compiled kernels.

A program's folder is named by the SHA-1 of its preprocessed source, its options, and PoCL's version, build
time, LLVM and device; nothing of these is stored. PoCL keeps no checksum, has no limit, evicts nothing and
takes no locks; files come by renaming. Tried with PoCL 3.0 and 3.1; PoCL 7 keeps the same tree. Source:
PoCL, lib/CL/pocl_cache.c.
"""

from gpucache.caches.pocl.system import PoclSystem

SYSTEM = PoclSystem()

__all__ = ["SYSTEM", "PoclSystem"]
