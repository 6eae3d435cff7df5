"""Compile GPU kernels once: a cache of compiled OpenCL, CUDA and HIP programs.

For PyOpenCL programs, ``gpucache.install()`` at their start serves every build from the cache, and
``gpucache.opencl.build_program(context, source)`` a single one. ``gpucache.cuda.compile_program(source,
target="sm_90")`` compiles CUDA C++ with NVRTC, without a GPU, and ``gpucache.hip`` HIP C++ with hipRTC.
``gpucache.bundle()`` gives the builds of this process as bytes, and ``gpucache.restore`` lets another process
hit them. ``gpucache.errors`` has the exceptions, and the command ``gpucache --help`` everything else.
"""

# Must not import a GPU stack, numpy or rich: the lazy names are imported on first use. Imports nothing
# itself: until the command line is entered, Ctrl-C prints a traceback.

TYPE_CHECKING = False  # typing's, which type checkers recognize by its name
__version__ = "0.1.0"
__all__ = ["__version__", "bundle", "cuda", "errors", "hip", "install", "opencl", "restore"]

_LAZY = frozenset({"cuda", "errors", "hip", "opencl"})
_OF_BUNDLES = frozenset({"bundle", "restore"})

if TYPE_CHECKING:
    import os

    from . import cuda, errors, hip, opencl
    from .library.bundle import bundle, restore


def __getattr__(name: str) -> object:
    if name in _LAZY:
        from importlib import import_module

        return import_module(f"gpucache.{name}")
    if name in _OF_BUNDLES:
        from importlib import import_module

        return getattr(import_module("gpucache.library.bundle"), name)
    raise AttributeError(f"module 'gpucache' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_OF_BUNDLES})


def install(*, cache_file: "str | os.PathLike[str] | None" = None) -> None:
    """Serve this process from the cache: ``gpucache.opencl.install()`` where there is PyOpenCL.

    With ``cache_file`` the cache of this process is that file, for ``gpucache.cuda`` as well. It is read at
    once, need not exist, and is written anew when the process ends or calls ``flush``, if anything changed.
    A process that is killed loses its own news and no more. A file that cannot be used is never an error of
    the program: the log says so, and programs are compiled uncached.
    """
    from importlib import import_module

    if cache_file is not None:
        import_module("gpucache.library.process").keep_in(cache_file)
    try:
        opencl = import_module("gpucache.opencl")
    except ImportError:
        return
    opencl.install()
