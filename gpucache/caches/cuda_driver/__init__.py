"""The CUDA driver's compute cache, also that of NVIDIA's OpenCL and of NVRTC from 12.9 on.

The format is not documented, and no part of this was written from a cache that a driver made: where
it lies and which variables bound it is from the CUDA Programming Guide (environment variables), the
layout from listings that people published. So the whole cache is one opaque entry. Nothing here
imports cuda.
"""

from gpucache.caches.cuda_driver.system import CudaDriverSystem

__all__ = ["SYSTEM", "CudaDriverSystem"]

SYSTEM = CudaDriverSystem()
