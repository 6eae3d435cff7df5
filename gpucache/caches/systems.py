"""The places of every third-party system's caches: a row for each system.

A row is facts: names, variables, directories, switches and limits. Other behaviour of an owner is a method of
its row. Must not know any format: that is imported when there is a cache to open.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gpucache.answers.entries import Location
from gpucache.caches import desktop_places, places, recent_places  # noqa: F401 - two with rows
from gpucache.caches.futhark import locations as _futhark  # noqa: F401 - a row, as the next four
from gpucache.caches.places import (
    ANY_BINARY,
    WINDOWS,
    Home,
    Medium,
    Place,
    Places,
    Temporary,
    Var,
    cached,
    mount_of,
    mounts,
    user_cached,
)
from gpucache.caches.pocl import locations as _pocl  # noqa: F401
from gpucache.caches.pyopencl import locations as _pyopencl  # noqa: F401
from gpucache.caches.rocfft import locations as _rocfft  # noqa: F401
from gpucache.caches.sycl import locations as _sycl  # noqa: F401


class InductorPlaces(Places):
    name = "inductor"
    title = "TorchInductor cache"
    owner = "TorchInductor"
    unseen = "a changed byte inside a library, or a changed module of a kernel"
    place = Place(
        (Var("TORCHINDUCTOR_CACHE_DIR"), Temporary("torchinductor_")),
        off={
            "TORCHINDUCTOR_FX_GRAPH_CACHE": ("0",),
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": ("1",),
            "TORCH_COMPILE_FORCE_DISABLE_CACHES": ("1",),
        },
        runs=True,
    )
    tracing = {"TORCH_LOGS": "+inductor"}


class TorchExtensionsPlaces(Places):
    name = "torch-extensions"
    title = "PyTorch extensions"
    owner = "PyTorch"
    unseen = "a changed byte inside a library, as ninja goes by times"
    place = Place(
        (Var("TORCH_EXTENSIONS_DIR"), *cached("torch_extensions", expanded=True)),
        runs=True,
    )


class TorchKernelsPlaces(Places):
    name = "torch-kernels"
    title = "PyTorch jiterator kernels"
    owner = "PyTorch"
    unseen = "a changed byte inside a binary, or that of another kernel"
    place = Place(
        (Var("PYTORCH_KERNEL_CACHE_PATH"), *cached("torch/kernels")),
        off={"USE_PYTORCH_KERNEL_CACHE": ("0",)},
    )


class HelionPlaces(Places):
    name = "helion"
    title = "Helion autotuning records"
    owner = "Helion"
    unseen = "the record of another kernel"
    place = Place(
        (
            Var("HELION_CACHE_DIR"),
            Var("TORCHINDUCTOR_CACHE_DIR", "helion"),
            Temporary("torchinductor_", inside="helion"),
        ),
        off={"HELION_FORCE_AUTOTUNE": ("1",)},
    )


class TvmFfiPlaces(Places):
    name = "tvm-ffi"
    title = "TVM-FFI inline modules"
    owner = "TVM-FFI"
    unseen = "a changed byte in a library, or the library of another module"
    place = Place((Var("TVM_FFI_CACHE_DIR"), Home(".cache/tvm-ffi", expanded=True)), runs=True)


class CuteDslPlaces(Places):
    name = "cute-dsl"
    title = "CuTe DSL cache"
    owner = "the CuTe DSL"
    place = Place(
        (Var("CUTE_DSL_CACHE_DIR"), Temporary("", inside="cutlass_python_cache")),
        off={
            "CUTE_DSL_NO_CACHE": ("1", "true", "on"),
            "CUTE_DSL_DISABLE_FILE_CACHING": ("1", "true", "on"),
        },
    )


class FlashAttentionPlaces(Places):
    name = "flash-attention"
    title = "FlashAttention 4 kernel cache"
    owner = "FlashAttention"
    unseen = "a changed byte in an object, or the object of another kernel"
    place = Place(
        (Var("FLASH_ATTENTION_CUTE_DSL_CACHE_DIR"), Temporary("", inside="flash_attention_cute_dsl_cache")),
        turn_on=(("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1"),),
        runs=True,
    )


class _File(Var):
    def find(self, environ: Mapping[str, str]) -> tuple[Path, str] | None:
        found = super().find(environ)
        return found and (found[0].parent, found[1])


_ON_MACOS = sys.platform == "darwin"
_TINYGRAD = Home("Library/Caches/tinygrad", expanded=True)


class TinygradPlaces(Places):
    name = "tinygrad"
    title = "tinygrad cache"
    owner = "tinygrad"
    unseen = ANY_BINARY
    place = Place(
        (
            _File("CACHEDB"),
            *((_TINYGRAD,) if _ON_MACOS else cached("tinygrad", expanded=True)),
        ),
        remedy="set CACHEDB to a file elsewhere",
        off={"CACHELEVEL": ("0",), "CCACHE": ("0",)},
        leaf="tinygrad/cache.db",
    )
    tracing = {"DEBUG": "8"}

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        name = Path(environ.get("CACHEDB", "")).name
        if name and not re.fullmatch(r"cache[\w-]*\.db", name):
            yield f"CACHEDB names {name}, which gpucache takes for no cache; name it cache.db"


class OnnxRuntimeTrtPlaces(Places):
    name = "onnxruntime-trt"
    title = "ONNX Runtime TensorRT engines"
    owner = "ONNX Runtime"
    unseen = "damage behind the beginning of an engine or a timing cache"
    place = Place(
        (Var("ORT_TENSORRT_CACHE_PATH"), Var("ORT_TENSORRT_ENGINE_CACHE_PATH")),
        nowhere="ONNX Runtime uses the current directory until ORT_TENSORRT_CACHE_PATH names one; set it",
        off={"ORT_TENSORRT_ENGINE_CACHE_ENABLE": ("0",)},
        turn_on=(("ORT_TENSORRT_ENGINE_CACHE_ENABLE", "1"),),
        lacking="programs that pass options to the TensorRT provider name its place there, not by variables",
    )


class TorchTensorrtPlaces(Places):
    name = "torch-tensorrt"
    title = "Torch-TensorRT engine cache"
    owner = "Torch-TensorRT"
    unseen = "damage behind the beginning of an engine or a timing cache"
    place = Place(
        (Temporary("torch_tensorrt_engine_cache", user=False),),
        remedy="name another directory with engine_cache_dir and timing_cache_path",
        limit=("", 5 << 30),  # unless a program sets another
        lacking="Torch-TensorRT has no variable but TMPDIR; a program names a place with engine_cache_dir",
    )


_CUDA_CORE_BELOW = "cuda-python/program-cache"
_CUDA_CORE_VARIABLE = "LOCALAPPDATA" if WINDOWS else "XDG_CACHE_HOME"


class CudaCorePlaces(Places):
    name = "cuda.core"
    title = "cuda.core program cache"
    owner = "cuda.core"
    unseen = ANY_BINARY
    place = Place(
        (
            Var(_CUDA_CORE_VARIABLE, _CUDA_CORE_BELOW),
            Home(f"{'AppData/Local' if WINDOWS else '.cache'}/{_CUDA_CORE_BELOW}", expanded=True),
        ),
        remedy=f"set {_CUDA_CORE_VARIABLE}, or give FileStreamProgramCache another path",
        lacking=(
            "a program that passes a path to FileStreamProgramCache keeps its cache there, whatever the "
            "environment says"
        ),
    )
    below = {"nvrtc": ""}


CUDA_PATH, _CUDA_DISABLE, CUDA_MAXSIZE = "CUDA_CACHE_PATH", "CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE"
CUDA_MOVE = "set CUDA_CACHE_PATH to a directory on a local disk"
CUDA_MOST_BYTES = 4_294_967_296
_CUDA_DEFAULT_BYTES = 1 << 30  # of desktops and servers; 256 MiB on embedded ones and with older drivers
_CUDA_NUMBER = re.compile(r"[0-9]{1,19}")


class CudaDriverPlaces(Places):
    name = "cuda"
    title = "CUDA driver compute cache"
    owner = "the CUDA driver"
    driver = True
    below = {"nvidia": "", "nvrtc": ""}
    place = Place(
        (Var(CUDA_PATH), Var("APPDATA", "NVIDIA/ComputeCache") if WINDOWS else Home(".nv/ComputeCache")),
        remedy=CUDA_MOVE,
        off={_CUDA_DISABLE: ("1",)},
        along=((CUDA_MAXSIZE, str(CUDA_MOST_BYTES)),),  # so that nothing is evicted meanwhile
        leaf="ComputeCache",
        opt_in=False,
    )

    @classmethod
    def limit_bytes(cls, environ: Mapping[str, str]) -> int | None:
        text = environ.get(CUDA_MAXSIZE) or str(_CUDA_DEFAULT_BYTES)
        return min(int(text), CUDA_MOST_BYTES) if _CUDA_NUMBER.fullmatch(text) else None

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        text = environ.get(CUDA_MAXSIZE) or str(_CUDA_DEFAULT_BYTES)
        if not _CUDA_NUMBER.fullmatch(text):
            yield (
                f"{CUDA_MAXSIZE}={text} is not a number of bytes, and the driver's use of it is not "
                f"documented; write the digits alone, such as {CUDA_MAXSIZE}={CUDA_MOST_BYTES}"
            )
        elif int(text) > CUDA_MOST_BYTES:
            yield f"{CUDA_MAXSIZE}={text} is over the {CUDA_MOST_BYTES} that the driver allows; set that"
        elif int(text) == 0:
            yield f"{CUDA_MAXSIZE}=0 leaves no room, so every start compiles; unset it"
        if environ.get(_CUDA_DISABLE, "") not in ("", "0", "1"):
            yield (
                f"{_CUDA_DISABLE}={environ[_CUDA_DISABLE]} is not 0 or 1, and the driver's use of "
                "it is not documented; set 1 to turn the cache off, or unset it"
            )

    @classmethod
    def at_place(cls, root: Path) -> Iterator[str]:
        """Published reports have jobs on shared NFS hang on the index."""
        yield from super().at_place(root)
        with suppress(OSError, ValueError, RuntimeError):  # a ring of links
            mount = mount_of(root.resolve(), mounts())
            if mount is not None and mount.medium is Medium.NETWORK:
                yield (
                    f"jobs that share it wait, and have hung, at its file 'index'; {CUDA_MOVE} of each node"
                )


_CUPY_VARIABLE = "CUPY_CACHE_DIR"


class CupyPlaces(Places):
    name = "cupy"
    title = "CuPy kernel cache"
    owner = "CuPy"
    unseen = "the module of another key, as a file has a checksum of its content alone"
    place = Place(
        (Var(_CUPY_VARIABLE), Home(".cupy/kernel_cache", expanded=True)),
        off={"CUPY_CACHE_IN_MEMORY": ("1",)},
        opt_in=False,
    )

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        if environ.get(_CUPY_VARIABLE) == "":
            yield f"{_CUPY_VARIABLE} is set and empty, so CuPy cannot be imported; unset it"


_JAX_VARIABLE, _JAX_SWITCH = "JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"
JAX_MAX_SIZE = "JAX_COMPILATION_CACHE_MAX_SIZE"
_JAX_OFF = ("n", "no", "f", "false", "off", "0")
_JAX_ON = ("y", "yes", "t", "true", "on", "1")


class JaxPlaces(Places):
    name = "jax"
    title = "JAX compilation cache"
    owner = "JAX"
    place = Place(
        (Var(_JAX_VARIABLE),),
        nowhere=f"JAX keeps no executables on disk until {_JAX_VARIABLE} names a directory; set it",
        off={_JAX_SWITCH: _JAX_OFF, JAX_MAX_SIZE: ("0",)},
        limit=(JAX_MAX_SIZE, None),
        turn_on=(
            ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0"),
            ("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1"),
        ),
        # Otherwise the place is in every key, as that of XLA's own caches, and a copy is never hit.
        along=(("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none"),),
        opt_in=False,
    )
    tracing = {"JAX_EXPLAIN_CACHE_MISSES": "1"}

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        switch, size = environ.get(_JAX_SWITCH, "yes"), environ.get(JAX_MAX_SIZE, "0")
        if switch.lower() not in (*_JAX_OFF, *_JAX_ON):
            yield f"{_JAX_SWITCH}={switch} is not true or false, so JAX cannot be imported; unset it"
        if not (size.isascii() and size.removeprefix("-").isdecimal()):
            yield f"{JAX_MAX_SIZE}={size} is not a number of bytes, so JAX cannot be imported; unset it"

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """The configured directory, unless it is in a cloud's store (``gs://``), which is not local."""
        return iter(()) if "://" in environ.get(_JAX_VARIABLE, "") else super().found(environ)


_TRITON_OF_DEVICES = tuple(f"triton/{device}" for device in range(16))
"""The places of each GPU's kernels of ``torch.compile``, below its own cache."""


class TritonPlaces(Places):
    name = "triton"
    title = "Triton kernel cache"
    owner = "Triton"
    place = Place(
        (Var("TRITON_CACHE_DIR"), Var("TRITON_HOME", ".triton/cache"), Home(".triton/cache", expanded=True)),
        also=(
            *(Var("TORCHINDUCTOR_CACHE_DIR", folder) for folder in _TRITON_OF_DEVICES),
            *(Temporary("torchinductor_", inside=folder) for folder in _TRITON_OF_DEVICES),
        ),
        off={"TRITON_ALWAYS_COMPILE": ("1", "true", "yes", "on", "y")},
        runs=True,
        opt_in=False,
    )


class IntelNeoPlaces(Places):
    name = "intel-neo"
    title = "compiler cache of Intel's GPU driver"
    owner = "Intel's GPU driver"
    driver = True
    unseen = ANY_BINARY
    place = Place(
        (Var("NEO_CACHE_DIR"), *cached("neo_compiler_cache")),
        remedy="set NEO_CACHE_DIR to an existing directory",
        off={"NEO_CACHE_PERSISTENT": ("0",)},
        limit=("NEO_CACHE_MAX_SIZE", 1 << 30),
    )

    @classmethod
    def limit_bytes(cls, environ: Mapping[str, str]) -> int | None:
        return super().limit_bytes(environ) or None


_MESA_FOLDER = "mesa_shader_cache"
_MESA_FORMS = ("", "_db", "_sf")
_MESA_SHIFTS = {"": 30, "K": 10, "M": 20, "G": 30}


class MesaPlaces(Places):
    name = "mesa"
    title = "Mesa shader cache"
    owner = "Mesa"
    driver = True
    place = Place(
        (Var("MESA_SHADER_CACHE_DIR", _MESA_FOLDER), *cached(_MESA_FOLDER, recorded=True)),
        remedy="set MESA_SHADER_CACHE_DIR to an existing directory",
        off={"MESA_SHADER_CACHE_DISABLE": ("1", "true")},
    )
    tracing = {"MESA_SHADER_CACHE_SHOW_STATS": "true"}
    unseen = "an entry that was exchanged with another, as it does not contain its key"

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        for location in super().found(environ):
            named = [location.root + form for form in _MESA_FORMS]
            found = [place for place in named if places.is_folder(Path(place))]
            for place in found or named[:1]:
                at = location if place == location.root else location._replace(problems=())
                yield at._replace(root=place, enabled=bool(found) and location.enabled)

    @classmethod
    def limit_bytes(cls, environ: Mapping[str, str]) -> int | None:
        """The size above which Mesa evicts, 1 GiB unless it is set; a number without a unit is of GiB."""
        text = environ.get("MESA_SHADER_CACHE_MAX_SIZE", "1")
        match = re.fullmatch(r"(\d{1,9})([KMG]?)", text, re.IGNORECASE)
        return int(match[1]) << _MESA_SHIFTS[match[2].upper()] if match else 1 << 30


_GL_PATH, _GL_SIZE = "__GL_SHADER_DISK_CACHE_PATH", "__GL_SHADER_DISK_CACHE_SIZE"
_GL_UNLIMITED = "__GL_SHADER_DISK_CACHE_SKIP_CLEANUP"
_GL_DEFAULT_BYTES, _GL_OLDER_BYTES = 1 << 30, 128 << 20
_GL_OLDER = ".nv/GLCache"


class NvidiaGlPlaces(Places):
    name = "nvidia-gl"
    title = "shader cache of NVIDIA's driver"
    owner = "NVIDIA's driver"
    driver = True
    place = Place(
        (Var(_GL_PATH, "GLCache"), *cached("nvidia/GLCache")),
        remedy=f"set {_GL_PATH} to an existing directory",
        off={"__GL_SHADER_DISK_CACHE": ("0",)},
    )

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        for location in super().found(environ):
            limited = location._replace(limit_bytes=_gl_limit(environ, _GL_DEFAULT_BYTES))
            base = environ.get(location.decided_by)
            older = Path(base or "", _GL_OLDER)
            if location.decided_by == _GL_PATH or not older.is_absolute() or not places.is_folder(older):
                yield limited
                continue
            at = location._replace(root=str(older), limit_bytes=_gl_limit(environ, _GL_OLDER_BYTES))
            off = location.problems[:1] if cls.place.why_off(environ) else ()
            yield at._replace(enabled=not off, problems=(*off, *cls.at_place(older)))
            if places.is_folder(Path(location.root)):
                why = f"the driver does not use this place as long as {older} exists, which may be removed"
                yield limited._replace(enabled=False, problems=(why,))

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        if (named := environ.get(_GL_PATH)) and not places.is_folder(Path(named)):
            yield (
                f"{_GL_PATH} names a directory that does not exist, so nothing is kept; "
                f"run 'mkdir -p {named}'"
            )
        if (size := environ.get(_GL_SIZE)) and not (size.isascii() and size.isdecimal()):
            yield (
                f"{_GL_SIZE}={size} is not a number of bytes; write the digits alone, such as "
                f"{_GL_SIZE}=10737418240"
            )


def _gl_limit(environ: Mapping[str, str], default_bytes: int) -> int | None:
    """The size above which the driver evicts old entries; None if it does not."""
    if environ.get(_GL_UNLIMITED, "") not in ("", "0"):
        return None
    size = environ.get(_GL_SIZE, "")
    return int(size) if size.isascii() and size.isdecimal() and len(size) < 20 else default_bytes


_OPTIX_SIZE = "OPTIX_CACHE_MAXSIZE"


class OptixPlaces(Places):
    name = "nvidia-optix"
    title = "OptiX disk cache"
    owner = "OptiX"
    driver = True
    place = Place(
        (
            Var("OPTIX_CACHE_PATH"),
            Var("LOCALAPPDATA", "NVIDIA/OptixCache")
            if WINDOWS
            else Temporary("OptixCache_", folder="/var/tmp"),
        ),
        off={_OPTIX_SIZE: ("0",)},
        limit=(_OPTIX_SIZE, None),  # whose default is not documented
    )


class AmdComgrPlaces(Places):
    name = "amd-comgr"
    title = "AMD code object manager cache"
    owner = "AMD's code object manager"
    driver = True
    unseen = ANY_BINARY
    place = Place(
        (Var("AMD_COMGR_CACHE_DIR"), *cached("comgr")),
        off={"AMD_COMGR_CACHE": ("0",)},
    )


class MiopenPlaces(Places):
    name = "miopen"
    title = "MIOpen kernel cache"
    owner = "MIOpen"
    place = Place(
        (Var("MIOPEN_CUSTOM_CACHE_DIR"), Home(".cache/miopen")),
        also=(Var("MIOPEN_USER_DB_PATH"), Home(".config/miopen")),
        off={"MIOPEN_DISABLE_CACHE": ("1", "true", "yes", "on", "enable", "enabled")},
    )
    tracing = {"MIOPEN_LOG_LEVEL": "6"}


class VllmPlaces(Places):
    name = "vllm"
    title = "vLLM compile cache"
    owner = "vLLM"
    place = Place(
        (Var("VLLM_CACHE_ROOT"), *cached("vllm", expanded=True)),
        off={"VLLM_DISABLE_COMPILE_CACHE": ("1",)},
        runs=True,
    )
    tracing = {"VLLM_LOGGING_LEVEL": "DEBUG"}


class TileLangPlaces(Places):
    name = "tilelang"
    title = "TileLang kernel cache"
    owner = "TileLang"
    place = Place(
        (Var("TILELANG_CACHE_DIR"), Home(".tilelang/cache", expanded=True)),
        off={"TILELANG_DISABLE_CACHE": ("1", "true", "yes", "on")},
        runs=True,
        opt_in=False,
    )
    tracing = {"TILELANG_VERBOSE": "1"}


class FlashInferPlaces(Places):
    name = "flashinfer"
    title = "FlashInfer module cache"
    owner = "FlashInfer"
    unseen = "a changed byte inside a library, as ninja goes by times"
    place = Place(
        (Var("FLASHINFER_WORKSPACE_BASE", ".cache/flashinfer"), Home(".cache/flashinfer", expanded=True)),
        runs=True,
        opt_in=False,
    )
    tracing = {"FLASHINFER_JIT_VERBOSE": "1", "FLASHINFER_JIT_DEBUG": "0"}  # else it builds for debuggers


class DeepGemmPlaces(Places):
    name = "deep-gemm"
    title = "DeepGEMM kernel cache"
    owner = "DeepGEMM"
    unseen = "a changed byte inside a cubin"
    place = Place(
        (Var("DG_JIT_CACHE_DIR"), Home(".deep_gemm")),
        also=(
            Var("VLLM_CACHE_ROOT", "deep_gemm"),
            Home(".cache/vllm/deep_gemm"),
            Var("SGLANG_DG_CACHE_DIR"),
            Home(".cache/deep_gemm"),
            Home(".cache/sglang/deep_gemm"),
        ),
    )
    tracing = {"DG_JIT_DEBUG": "1"}


class NumbaPlaces(Places):
    name = "numba"
    title = "Numba cache"
    owner = "Numba"
    unseen = "changed machine code, or one version of a function in the place of another"
    place = Place(
        (Var("NUMBA_CACHE_DIR"),),
        nowhere="Numba keeps its files next to each source until NUMBA_CACHE_DIR names a directory; set it",
        # Of sources in directories that cannot be written, and of notebooks.
        also=(*user_cached("numba", ""), *cached("ipython/numba_cache"), Home(".ipython/numba_cache")),
        runs=True,
    )
    tracing = {"NUMBA_DEBUG_CACHE": "1"}

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """The directory that the variable names, and those for sources in directories that cannot be written;
        and next to the sources below the current directory, in which most programs keep it."""
        yield from super().found(environ)
        for root in _with_indexes() if not environ.get("NUMBA_CACHE_DIR") else ():
            told = tuple(cls.at_place(root))
            yield Location(cls.name, str(root), "the current directory", enabled=True, problems=told)


_FOLDERS_LOOKED_AT, _DEEPEST = 400, 5


def _with_indexes() -> Iterator[Path]:
    """The directories of compiled Python below the current one with files of Numba's. A home directory or
    the top of the file system is no project; of a large one only the first directories are looked at."""
    try:
        top = Path.cwd()
    except OSError:
        return
    if top in (Path(top.anchor), Path(os.path.expanduser("~"))):  # noqa: PTH111 - raises nothing
        return
    for looked, (folder, below, names) in enumerate(os.walk(top)):
        if looked == _FOLDERS_LOOKED_AT:
            return
        at = Path(folder)
        if at.name == "__pycache__" and any(name.endswith(".nbi") for name in names):
            yield at
        deep = len(at.relative_to(top).parts) == _DEEPEST or "pyvenv.cfg" in names
        below[:] = () if deep else sorted(name for name in below if not name.startswith("."))


class WarpPlaces(Places):
    name = "warp"
    title = "Warp kernel cache"
    owner = "Warp"
    unseen = "changed code inside a binary"
    place = Place(
        (Var("WARP_CACHE_PATH"), *user_cached("warp", "NVIDIA")),
        runs=True,
        opt_in=False,
    )


class TaichiPlaces(Places):
    name = "taichi"
    title = "Taichi offline cache"
    owner = "Taichi"
    unseen = "a kernel of the same size in the place of another"
    place = Place(
        (Var("TI_OFFLINE_CACHE_FILE_PATH"), *cached("taichi/ticache")),
        off={"TI_OFFLINE_CACHE": ("0",)},
        limit=("", 100 << 20),  # unless its program sets another size
        opt_in=False,
    )


class HashcatPlaces(Places):
    name = "hashcat"
    title = "hashcat kernel cache"
    owner = "hashcat"
    unseen = ANY_BINARY
    place = Place(cached("hashcat/kernels", expanded=True))

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """The directory below the cache directory, or an older one in the home directory if it exists.

        hashcat takes the home directory from the user's record, and not from HOME.
        """
        environ = {name: value for name, value in environ.items() if name != "HOME"}
        older = Home(".hashcat/kernels", expanded=True).find(environ)
        for location in super().found(environ):
            if older is not None and places.is_folder(older[0].parent):
                root = older[0]
                problems = tuple(cls.at_place(root))
                yield location._replace(root=str(root), decided_by=older[1], enabled=True, problems=problems)
            else:
                yield location


_OPENCV_SHARED = Path("/var/tmp/opencv")
_OPENCV_DIRECTORY, _OPENCV_SWITCH = "OPENCV_OPENCL_CACHE_DIR", "OPENCV_OPENCL_CACHE_ENABLE"


class OpenCVPlaces(Places):
    name = "opencv"
    title = "OpenCV OpenCL cache"
    owner = "OpenCV"
    unseen = "a changed byte inside a binary"
    needs_folder_of_all = True
    place = Place(
        (Var(_OPENCV_DIRECTORY), *cached("opencv")),
        off={_OPENCV_SWITCH: ("0", "false")},
    )
    tracing = {"OPENCV_LOG_LEVEL": "DEBUG"}

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        """The value that OpenCV's own message advises, but that OpenCV uses as the beginning of a name."""
        if environ.get(_OPENCV_DIRECTORY) == "disabled":
            yield (
                f"{_OPENCV_DIRECTORY}=disabled does not turn the cache off, though OpenCV advises it: "
                "the current directory gets directories whose names begin with that; unset it, and set "
                f"{_OPENCV_SWITCH}=0"
            )

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """The first existing cache directory; if none exists, OpenCV uses one that all users share."""
        there = dict(environ)
        if "XDG_CACHE_HOME" in there and not places.is_folder(Path(there["XDG_CACHE_HOME"])):
            del there["XDG_CACHE_HOME"]
        for location in super().found(there):
            root = Path(location.root)
            if location.decided_by != _OPENCV_DIRECTORY and not places.is_folder(root.parent):
                told = (*filter(None, [cls.place.why_off(environ)]), *cls.at_place(_OPENCV_SHARED))
                location = location._replace(root=str(_OPENCV_SHARED), decided_by="default", problems=told)
            off = cls.place.why_off(environ)
            yield location._replace(enabled=not off and places.is_folder(Path(location.root)))


_GGML_OPENCL_VARIABLE, _GGML_OPENCL_DEFAULT = "GGML_OPENCL_KERNEL_CACHE_DIR", ("1", "default")


class GgmlOpenclPlaces(Places):
    name = "ggml-opencl"
    title = "llama.cpp OpenCL kernel cache"
    owner = "llama.cpp"
    unseen = ANY_BINARY
    place = Place(
        (Var(_GGML_OPENCL_VARIABLE), Temporary("llama.cpp/cl-cache", user=False)),
        off={_GGML_OPENCL_VARIABLE: ("0", "off", "none", "disable", "disabled")},
    )
    tracing = {"GGML_OPENCL_KERNEL_CACHE_DEBUG": "1"}

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        off = cls.place.why_off(environ)
        by_default = off or environ.get(_GGML_OPENCL_VARIABLE) in _GGML_OPENCL_DEFAULT
        asked = {
            name: value
            for name, value in environ.items()
            if not (by_default and name == _GGML_OPENCL_VARIABLE)
        }
        for location in super().found(asked):
            problems = (off, *location.problems) if off else location.problems
            yield location._replace(enabled=location.enabled and not off, problems=problems)


class ArrayFirePlaces(Places):
    name = "arrayfire"
    title = "ArrayFire kernel cache"
    owner = "ArrayFire"
    place = Place(
        (Var("AF_JIT_KERNEL_CACHE_DIRECTORY"), Var("XDG_CACHE_HOME", ".arrayfire"), Home(".arrayfire"))
    )
    tracing = {"AF_TRACE": "jit"}


class ClesperantoPlaces(Places):
    name = "clesperanto"
    title = "clesperanto kernel cache"
    owner = "clesperanto"
    place = Place(
        (Home(".cache/clesperanto"),),
        remedy="set HOME for these programs alone",
        off={"CLESPERANTO_NO_CACHE": ()},
        lacking="clesperanto keeps its cache in the home directory, which no variable but HOME moves",
    )
    unseen = ANY_BINARY


class OpenvinoPlaces(Places):
    name = "openvino"
    title = "OpenVINO model cache"
    owner = "OpenVINO"
    place = Place(
        (),
        remedy="name another directory with CACHE_DIR",
        nowhere="OpenVINO keeps models only where a program's property CACHE_DIR says; name that directory",
        lacking="a program names the place by the property CACHE_DIR alone",
        opt_in=False,
    )
    unseen = "changed weights, or the model of another file, with which the program computes"


class PytoolsPlaces(Places):
    name = "pytools"
    title = "pytools dictionaries"
    owner = "pytools"
    unseen = "a changed value that is still a pickle"
    place = Place(user_cached("pytools"))


class AdaptiveCppPlaces(Places):
    name = "adaptivecpp"
    title = "AdaptiveCpp JIT cache"
    owner = "AdaptiveCpp"
    place = Place((Var("ACPP_APPDB_DIR"), Var("XDG_DATA_HOME", "acpp"), Home(".acpp")))
    tracing = {"ACPP_DEBUG_LEVEL": "3"}
    unseen = "a changed byte inside a binary, or the binary of another kernel"


PLACES: Mapping[str, type[Places]] = {row.name: row for row in Places.__subclasses__() if "name" in vars(row)}
"""By name; the formats inherit from these."""
