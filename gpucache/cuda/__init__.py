"""The interface for CUDA programs: ``compile_program``, ``Batch``, ``CheckedStream``, ``ProgramCache``.

Compiles with NVRTC in the caller's process after a miss; needs no driver and no GPU for a named
architecture. A program never fails because of the cache. Loads cuda.bindings and cuda.core.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuda.core import ObjectCode

    from gpucache.backends.cuda.checked import CheckedStream
    from gpucache.cuda.batch import Batch
    from gpucache.cuda.program_cache import ProgramCache
    from gpucache.library.missing import flush

__all__ = ["Batch", "CheckedStream", "ProgramCache", "compile_program", "flush"]

_HOMES = {
    "Batch": "gpucache.cuda.batch",
    "CheckedStream": "gpucache.backends.cuda.checked",
    "ProgramCache": "gpucache.cuda.program_cache",
    "flush": "gpucache.library.missing",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'gpucache.cuda' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def compile_program(
    source: str | bytes,
    *,
    target: str | None = None,
    options: str | Sequence[str] = (),
    name: str | None = None,
    name_expressions: Sequence[str] = (),
    include_path: Sequence[str | Path] = (),
    artifact_kind: str | None = None,
    headers: Sequence[str | Path] = (),
    checks: str = "none",
) -> "ObjectCode":
    """A ``cuda.core.ObjectCode`` of CUDA C++, from the cache if it has one.

    ``target`` is ``sm_90``, ``compute_90`` or such with ``cuda:`` before it; without one it is the current
    device's architecture. ``name_expressions`` are C++ names, such as ``"scale<float>"``, that
    ``ObjectCode.get_kernel`` then takes. ``include_path`` are the directories searched for headers; the
    current directory is not among them unless it is named. ``headers`` are headers included through a macro,
    named by hand. ``artifact_kind`` is ``cubin``, ``ptx`` or ``ltoir``; without one the target decides.
    ``checks`` turns on the checks that kernels make with ``gpucache/check.h``: ``none``, ``sync`` or
    ``async``. Such kernels are launched by a ``CheckedStream``. The directory of that header is searched if
    the source names it.

    After a miss a thread logs the reason and publishes the code while the program goes on; ``flush`` waits
    for it.

    Raises TypeError or ValueError for an invalid argument, CompileError with NVRTC's log, SourceError for a
    check whose message does not fit its operands, TargetError, NoDeviceError, and CacheMissError where
    GPUCACHE_REQUIRE is set and the cache misses.
    """
    from gpucache.cuda.questions import ask  # which ProgramCache does not need

    given = (source, target, options, name, name_expressions, include_path, artifact_kind, headers, checks)
    asked = ask(*given)
    if asked.code is not None:
        return asked.code
    from gpucache.cuda.compiling import compiled

    return compiled(given, asked.question)
