"""The build options that enter the key, as each backend of Futhark puts them together. Pure.

Source: Futhark, rts/c/backends/{cuda,hip,opencl}.h and rts/c/gpu_prototypes.h. CUDA and HIP add each
option by itself, OpenCL one string with all of them. Not in the key: driver, compiler and device, but
for what these lists say of them.

Must not read the environment itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucache.caches.futhark.keys import key_of
from gpucache.errors import OptionError

__all__ = [
    "CUDA_ARCHITECTURES",
    "CUDA_VARIABLES",
    "HIP_VARIABLE",
    "TR_OPTIONS",
    "CudaSettings",
    "HipSettings",
    "OpenclSettings",
    "cuda_architecture",
    "cuda_options",
    "hip_options",
    "key_of",
    "opencl_options",
]

Named = tuple[tuple[str, int], ...]

CUDA_ARCHITECTURES = {
    **{(3, minor): f"compute_3{minor}" for minor in (0, 2, 5, 7)},
    **{(5, minor): f"compute_5{minor}" for minor in (0, 2, 3)},
    **{(6, minor): f"compute_6{minor}" for minor in (0, 1, 2)},
    **{(7, minor): f"compute_7{minor}" for minor in (0, 2, 5)},
    **{(8, minor): "compute_80" for minor in (0, 6, 7, 9)},
    (9, 0): "compute_90",
    (10, 0): "compute_100",
    (10, 1): "compute_101",
    (12, 0): "compute_120",
    (12, 1): "compute_121",
}
"""What Futhark has NVRTC build for, by compute capability, in rising order."""
CUDA_VARIABLES = ("CUDA_HOME", "CUDA_ROOT", "CUDA_PATH")
HIP_VARIABLE = "HIP_PATH"
TR_OPTIONS = ("-DTR_BLOCK_DIM=16", "-DTR_TILE_DIM=32", "-DTR_ELEMS_PER_THREAD=8")
_FIXED_INCLUDES = ("-I/usr/local/cuda/include", "-I/usr/include")
_LAST = "-cl-fp32-correctly-rounded-divide-sqrt"
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the largest shared
# memory per block in KiB that a program can opt in to.
_SHARED_KIB = {(7, 0): 96, (7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99}
_SHARED_KIB_SINCE = ((12, 99), (9, 227))
_RESERVED_BYTES = 1024  # of each block since 8.0, which Futhark takes off


@dataclass(frozen=True, slots=True)
class CudaSettings:
    """What the options of a CUDA program are made from; sizes are those of the device it runs on.

    ``max_shared_memory`` in bytes: None takes what devices of the capability have, less what the
    driver reserves. Macros and tuning parameters are the program's own, see a log of ``-L``.
    """

    capability: tuple[int, int]
    debugging: bool = False
    max_thread_block_size: int = 1024
    max_shared_memory: int | None = None
    max_registers: int = 65_536
    lockstep_width: int = 32
    macros: Named = ()
    tuning: tuple[tuple[str, int, int], ...] = ()
    """Per parameter its variable, 1 where it was set by the user and else 0, and its value."""
    extra: tuple[str, ...] = ()
    """What ``--nvrtc-option`` was given."""


@dataclass(frozen=True, slots=True)
class HipSettings:
    """What the options of a HIP program are made from."""

    architecture: str
    """``gcnArchName``, such as ``gfx90a:sramecc+:xnack-``."""
    max_shared_memory: int
    debugging: bool = False
    max_thread_block_size: int = 1024
    max_registers: int = 65_536
    lockstep_width: int = 64
    macros: Named = ()
    tuning: tuple[tuple[str, int, int], ...] = ()
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenclSettings:
    """What the options of an OpenCL program are made from."""

    max_thread_block_size: int
    max_shared_memory: int
    max_registers: int
    lockstep_width: int
    macros: Named = ()
    tuning: tuple[tuple[str, int, int], ...] = ()
    extra: tuple[str, ...] = ()
    platform_name: str = ""
    device_name: str = ""


def cuda_architecture(capability: tuple[int, int]) -> str:
    """What Futhark builds for on a device: the last of its table that is not above it; raises OptionError."""
    known = [name for number, name in CUDA_ARCHITECTURES.items() if number <= capability]
    if not known:
        major, minor = capability
        raise OptionError(f"Futhark does not build for compute capability {major}.{minor}; the lowest is 3.0")
    return known[-1]


def cuda_options(settings: CudaSettings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The options that Futhark gives NVRTC, in its order; raises OptionError."""
    return tuple(_cuda(settings, environ))


def _cuda(settings: CudaSettings, environ: Mapping[str, str]) -> Iterator[str]:
    if not any(option.startswith(("-arch", "--gpu-architecture")) for option in settings.extra):
        yield from ("-arch", cuda_architecture(settings.capability))
    yield "-default-device"
    yield from ("-G", "-lineinfo") if settings.debugging else ("--disable-warnings",)
    yield from _defines(settings, _shared_memory(settings))
    yield from (f"-I{environ[name]}/include" for name in CUDA_VARIABLES if name in environ)
    yield from (*_FIXED_INCLUDES, *settings.extra, *TR_OPTIONS)


def hip_options(settings: HipSettings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The options that Futhark gives HIPRTC, in its order."""
    return tuple(_hip(settings, environ))


def _hip(settings: HipSettings, environ: Mapping[str, str]) -> Iterator[str]:
    if not any(option.startswith("--gpu-architecture") for option in settings.extra):
        yield f"--gpu-architecture={settings.architecture}"
    if settings.debugging:
        yield from ("-G", "-lineinfo")
    yield from _defines(settings, settings.max_shared_memory)
    if HIP_VARIABLE in environ:
        yield f"-I{environ[HIP_VARIABLE]}/include"
    yield from (*settings.extra, *TR_OPTIONS)


def opencl_options(settings: OpenclSettings) -> str:
    """The one string of options that Futhark gives an OpenCL platform."""
    return " ".join(_opencl(settings))


def _opencl(settings: OpenclSettings) -> Iterator[str]:
    yield f"-DLOCKSTEP_WIDTH={settings.lockstep_width}"
    chosen = any(option.startswith("-cl-std=") for option in settings.extra)
    if settings.platform_name == "rusticl" and settings.device_name.startswith("Apple M") and not chosen:
        yield "-cl-std=CL2.0"
    yield from _sizes(settings.max_thread_block_size, settings.max_shared_memory, settings.max_registers)
    yield from _tuned(settings.tuning)
    yield from settings.extra
    yield from (f"-D{name}={value % 2**64}" for name, value in settings.macros)
    yield from TR_OPTIONS
    if settings.platform_name == "Oclgrind":
        yield "-DEMULATE_F16"
    yield _LAST


def _defines(settings: CudaSettings | HipSettings, shared_memory: int) -> Iterator[str]:
    yield from _sizes(settings.max_thread_block_size, shared_memory, settings.max_registers)
    # %zu of an int64: a negative value comes out as a very large one.
    yield from (f"-D{name}={value % 2**64}" for name, value in settings.macros)
    yield from _tuned(settings.tuning)
    yield f"-DLOCKSTEP_WIDTH={settings.lockstep_width}"
    yield f"-DMAX_THREADS_PER_BLOCK={settings.max_thread_block_size}"


def _sizes(block: int, shared_memory: int, registers: int) -> Iterator[str]:
    yield f"-Dmax_thread_block_size={block}"
    yield f"-Dmax_shared_memory={shared_memory}"
    yield f"-Dmax_registers={registers}"


def _tuned(tuning: tuple[tuple[str, int, int], ...]) -> Iterator[str]:
    for name, given, value in tuning:
        yield f"-Dset_{name}={given}"
        yield f"-Dval_{name}={(value + 2**31) % 2**32 - 2**31}"  # cast to a C int


def _shared_memory(settings: CudaSettings) -> int:
    if settings.max_shared_memory is not None:
        return settings.max_shared_memory
    since = next((kib for major, kib in _SHARED_KIB_SINCE if settings.capability[0] >= major), 48)
    kib = _SHARED_KIB.get(settings.capability, since)
    return kib * 1024 - (_RESERVED_BYTES if settings.capability >= (8, 0) else 0)
