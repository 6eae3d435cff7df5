"""gpucache: warms, explains, checks and bounds the compile caches of OpenCL and CUDA programs.

Owns the version and the public names. Must not import a GPU stack, numpy or rich:
``gpucache.opencl`` and ``gpucache.cuda`` are imported on first use. Imports nothing itself: until the
command line is entered, Ctrl-C prints a traceback.
"""

TYPE_CHECKING = False  # typing's, which type checkers recognize by its name
__version__ = "0.1.0"
__all__ = ["__version__", "cuda", "errors", "opencl"]

_LAZY = frozenset({"cuda", "errors", "opencl"})

if TYPE_CHECKING:
    from . import cuda, errors, opencl


def __getattr__(name: str) -> object:
    if name in _LAZY:
        from importlib import import_module

        return import_module(f"gpucache.{name}")
    raise AttributeError(f"module 'gpucache' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
