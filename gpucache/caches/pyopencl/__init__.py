"""PyOpenCL's compiler cache: a folder per Python version, in it a folder for each program and device.

Source: PyOpenCL, ``pyopencl/cache.py`` and ``pyopencl/__init__.py`` of 2026.1. ``names`` owns where the
folders lie, ``entries`` the three files of an entry, ``pickled`` the reading of ``info`` without
unpickling it, ``keys`` the MD5 that names an entry, ``headers`` the files it was made with, ``locking``
the global lock, ``checks`` what can be wrong, ``explaining`` what a build would meet.

PyOpenCL does not use this cache for PoCL and NVIDIA. The SQLite dictionaries of pytools, where PyOpenCL
keeps the invokers it generates, are another cache and are not read. PyOpenCL itself is never imported.
"""

from gpucache.caches.pyopencl.system import PyOpenclSystem

__all__ = ["SYSTEM", "PyOpenclSystem"]

SYSTEM = PyOpenclSystem()
