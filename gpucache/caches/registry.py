"""The systems whose caches gpucache knows, by name.

Owns the names and the lookup of a system by name or path; a module is imported when its system is requested.
Third-party names are looked up among the entry points ``gpucache.caches``, and only if a name is not ours.
Must not open a cache.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.errors import CacheUnusableError, UsageError
from gpucache.host import os_errors

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from gpucache.caches.format import Format
    from gpucache.caches.places import Places

OWN = "gpucache"
ALL = "all"
GROUP = "gpucache.caches"
SYSTEMS = (
    "sycl", "futhark", "rocfft", "pyopencl", "pocl", "cuda.core", "cuda", "cupy", "jax", "triton",
    "intel-neo", "mesa", "nvidia-gl", "nvidia-optix", "amd-comgr", "miopen", "inductor", "torch-extensions",
    "torch-kernels", "helion", "tvm-ffi", "cute-dsl", "flash-attention", "torch-tensorrt",
    "onnxruntime-trt", "vllm", "tilelang", "flashinfer", "deep-gemm", "numba", "warp", "taichi", "hashcat",
    "darktable", "opencv", "ggml-opencl", "arrayfire", "cycles", "clesperanto", "openvino", "pytools",
    "dxvk", "vulkan", "adaptivecpp", "chromium", "steam", "tinygrad",
    "cutile", "pycuda", "aiter", "quack", "drjit", "flydsl", "tilus", "pyfr", "keops", "gstaichi",
    "quadrants", "unsloth", "b12x", "mlx", "hidet", "modular", "cudf", "hub-kernels", "tt-metal", "neuron",
    "tunableop", "tensorrt-rtx", "firefox", "mpv", "qt",
)  # fmt: skip
_BINARIES = (
    "adaptivecpp amd-comgr hashcat ggml-opencl cycles clesperanto intel-neo torch-kernels arrayfire pycuda "
    "mlx aiter drjit pyfr"
)
_MODULES = {
    **{name: f"{name}.format" for name in ("futhark", "rocfft", "pyopencl")},
    "cuda": "cuda_driver",
    **dict.fromkeys(_BINARIES.split(), "binaries"),
    "dxvk": "vulkan",
    **dict.fromkeys(("flash-attention", "quack"), "cute_dsl"),
    **dict.fromkeys(("keops", "flydsl", "hidet", "tilus"), "pickles"),
    **dict.fromkeys(("gstaichi", "quadrants"), "taichi"),
    **dict.fromkeys(("unsloth", "b12x"), "manifests"),
    **dict.fromkeys(("firefox", "hub-kernels", "modular", "mpv", "qt", "tunableop"), "sealed"),
    **dict.fromkeys(("onnxruntime-trt", "torch-tensorrt"), "tensorrt"),
    **dict.fromkeys(("torch-extensions", "tvm-ffi", "flashinfer"), "ninja"),
}
"""The modules of formats that are not named like their system."""
NAMES = (OWN, *SYSTEMS)
EXPORTERS = {
    "futhark": "gpucache.caches.futhark.export",
    **dict.fromkeys(("rocfft", "rocfft-image", "rocfft-restore"), "gpucache.caches.rocfft.export"),
}
"""For each form of ``gpucache export`` the module whose ``FORMS`` has it."""


def systems() -> "Iterator[Places]":
    yield from map(load_system, SYSTEMS)
    for point in _of_others():
        with suppress(Exception):  # the error of one that does not load comes where it is named
            yield point.load()


def load_system(name: str) -> "Places":
    """The system of a name; raises UsageError for an unknown one."""
    if name == OWN:
        from gpucache.caches.own import SYSTEM

        return SYSTEM
    if name in SYSTEMS:
        return of_others(name)
    for point in _of_others(name):
        foreign: Places = point.load()
        return foreign
    raise _unknown(name)


def of_others(name: str) -> "Places":
    from gpucache.caches.systems import PLACES

    return PLACES[name]()


def module_of(name: str) -> str:
    return f"gpucache.caches.{_MODULES.get(name) or name.replace('-', '_').replace('.', '_')}"


@cache
def format_of(name: str) -> "type[Format]":
    """The format of one of ``SYSTEMS``, whose module is imported now."""
    from gpucache.caches.systems import PLACES

    if PLACES[name].signs:
        from gpucache.caches.opaque import OpaqueFormat

        row = PLACES[name]
        return type(row.__name__, (row, OpaqueFormat), {"__module__": row.__module__})
    module = import_module(module_of(name))
    made = (one for one in vars(module).values() if getattr(one, "__module__", "") == module.__name__)
    found: type[Format] = next(one for one in made if getattr(one, "name", "") == name)
    return found


def described(name: str) -> str:
    from gpucache.caches.systems import PLACES

    return PLACES[name].described()


def moves(name: str) -> str:
    """Whether and how the entries of one of ``SYSTEMS`` move to other machines, in sentences for people."""
    moving = format_of(name).moving
    if moving.why_not:
        return f"No: {moving.why_not}."
    told = "Yes."
    if moving.tells:
        told += f" They reveal {moving.tells}" + (", so push needs --sources." if moving.sources else ".")
    if moving.note:
        told += f" {moving.note}"
    if moving.untold:
        told += f" Must be equal on both machines, but is not compared: {', '.join(moving.untold)}."
    return told


def is_own(path: Path) -> bool:
    """Whether a directory is a root of our own store."""
    return is_there(path / "v1")


def is_there(path: Path) -> bool:
    """Whether a visible path exists. Raises nothing."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def system_at(path: Path) -> "Places":
    """The system whose cache is at a path; raises UsageError if no system recognises it."""
    for system in systems():
        if system.recognises(path):
            return system
    example = f"{next(iter(SYSTEMS))}:{path}"
    raise UsageError(
        f"{path} has no cache that gpucache knows; name its system with it, such as {example} "
        "('man gpucache-caches' lists the systems)"
    )


def _unknown(name: str) -> UsageError:
    """The error for a name that no system has, with the names nearest to it."""
    from difflib import get_close_matches

    near = get_close_matches(name, (*NAMES, ALL))
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return UsageError(f"there is no cache {name!r}; {meant}'man gpucache-caches' lists the names")


def is_name(text: str) -> bool:
    """Whether a text is the name of a system, ours or third-party."""
    return text in NAMES or (":" not in text and bool(_of_others(text)))


def _place(text: str, *, must_exist: bool) -> Path:
    """A path from the command line; raises UsageError if it must exist and does not."""
    try:
        path = Path(text).absolute()
    except OSError:
        raise UsageError("the current directory is gone; go to another one") from None
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        if must_exist:
            raise UsageError(f"{text} does not exist; check the path") from None
    except OSError as error:
        detail = f"{text} cannot be read ({os_errors.reason(error)}); {os_errors.remedy(error)}"
        raise CacheUnusableError(detail) from None
    return path


def _of_others(name: str = "") -> "EntryPoints":
    from importlib.metadata import entry_points

    found = entry_points(group=GROUP)
    return found.select(name=name) if name else found


def split(text: str, *, must_exist: bool = True) -> tuple[str | None, Path | None]:
    """System and path from the value of ``--cache``: ``NAME``, ``NAME:PATH`` or ``PATH``.

    Raises UsageError for any other text, and for a path that does not exist unless its system is named and it
    need not.
    """
    if text in (ALL, *NAMES):
        return text, None
    name, colon, rest = text.partition(":")
    if colon and rest and is_name(name):
        return name, _place(rest, must_exist=must_exist)
    try:
        Path(text).stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        if is_name(text):
            return text, None
        raise _unknown(text) from None
    except OSError:
        pass  # the next line says why
    return None, _place(text, must_exist=True)
