"""The persistent device code cache of libsycl, the runtime of SYCL programs built with oneAPI DPC++.

A folder for each combination of device, images, specialisation constants and build options, and in it
numbered pairs of files: what was asked for, and the binary. Read and changed by the owner's own lock
protocol, which ``locks`` describes; ``naming`` has the layout and ``shapes`` the two files.
"""

from gpucache.caches.sycl.system import SyclSystem

__all__ = ["SYSTEM", "SyclSystem"]

SYSTEM = SyclSystem()
