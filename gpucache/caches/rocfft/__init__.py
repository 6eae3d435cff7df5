"""rocFFT's cache of kernels compiled at run time: SQLite files with one table, a row for each kernel.

Source: rocFFT, ``rtc_cache.cpp``. ``schema`` owns the table, ``anatomy`` the file around it,
``connecting`` how it is opened without leaving a trace, ``rows`` what is read of it, ``checks`` what can be
wrong, ``mending`` every write to it, ``reaching`` explanations, ``transfer`` and ``images`` databases made
of others, ``places`` where the files lie. A foreign file is data: no view, trigger or virtual table in it
is ever used, and its kernels are never loaded.
"""

from gpucache.caches.rocfft.system import RocfftSystem

SYSTEM = RocfftSystem()

__all__ = ["SYSTEM", "RocfftSystem"]
