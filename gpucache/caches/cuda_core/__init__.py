"""The program cache of cuda.core, ``FileStreamProgramCache``: opt-in, a file per compiled program.

The system as others see it; where files lie is in ``layout``, what a scan reads in ``entries``, what
is wrong in ``checks``. Nothing here imports cuda.
"""

from gpucache.caches.cuda_core.system import CudaCoreSystem

__all__ = ["SYSTEM", "CudaCoreSystem"]

SYSTEM = CudaCoreSystem()
