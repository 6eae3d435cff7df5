"""The places of the caches of machine learning: rows of ``systems``."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpucache.answers.entries import Location
from gpucache.caches.places import (
    ANY_BINARY,
    WINDOWS,
    XDG,
    Home,
    Place,
    Places,
    Temporary,
    Var,
    cached,
    on,
    row,
    user_cached,
)


class _FileVariable(Var):
    """A variable that names a file: the cache is its directory."""

    def find(self, environ: Mapping[str, str]) -> tuple[Path, str] | None:
        found = super().find(environ)
        return found and (found[0].parent, found[1])


_TRITON_OF_DEVICES = tuple(f"triton/{device}" for device in range(16))
"""Where ``torch.compile`` puts Triton's kernels for each GPU, below its own cache."""


class TinygradPlaces(Places):
    name = "tinygrad"
    title = "tinygrad cache"
    owner = "tinygrad"
    unseen = ANY_BINARY
    place = Place(
        (
            _FileVariable("CACHEDB"),
            Var(XDG, "tinygrad"),  # on macOS as well
            *on(
                (Home(".cache/tinygrad", expanded=True),),
                macos=(Home("Library/Caches/tinygrad", expanded=True),),
            ),
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


_GGML_OPENCL_VARIABLE, _GGML_OPENCL_DEFAULT = "GGML_OPENCL_KERNEL_CACHE_DIR", ("1", "default")


class GgmlOpenclPlaces(Places):
    name = "ggml-opencl"
    title = "llama.cpp OpenCL kernel cache"
    owner = "llama.cpp"
    unseen = ANY_BINARY
    place = Place(
        (
            Var(_GGML_OPENCL_VARIABLE),
            *on(
                (Temporary("llama.cpp/cl-cache", user=False),),
                macos=(Home("Library/Caches/llama.cpp/cl-cache"),),
                windows=(Var("LOCALAPPDATA", "llama.cpp/cl-cache"),),
            ),
        ),
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


class NeuronPlaces(Places):
    """What AWS's compiler made for Trainium and Inferentia.

    Source: AWS's documentation and published listings; no file written by it was available. A directory for
    each version of the compiler has ``MODULE_HASH+FLAGS/model.neff``; ``model.done`` shows that it is whole.
    """

    name = "neuron"
    title = "AWS Neuron compile cache"
    owner = "AWS Neuron"
    place = Place(
        (Var("NEURON_COMPILE_CACHE_URL"), Temporary("neuron-compile-cache", user=False, folder="/var/tmp")),
        lacking="--cache_dir in NEURON_CC_FLAGS comes before NEURON_COMPILE_CACHE_URL",
    )
    signs = (r"neuronxcc-[\w.+-]+/MODULE_\w+\+?\w*",)

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """The directory, unless it is in a cloud's store (``s3://``)."""
        at = environ.get("NEURON_COMPILE_CACHE_URL", "")
        return iter(()) if "://" in at else super().found(environ)


ROWS = (
    row(
        ("inductor", "TorchInductor cache", "TorchInductor"),
        Var("TORCHINDUCTOR_CACHE_DIR"),
        Temporary("torchinductor_"),
        unseen="a changed byte inside a library, or a changed module of a kernel",
        tracing={"TORCH_LOGS": "+inductor"},
        off={
            "TORCHINDUCTOR_FX_GRAPH_CACHE": ("0",),
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": ("1",),
            "TORCH_COMPILE_FORCE_DISABLE_CACHES": ("1",),
        },
        runs=True,
    ),
    row(
        ("torch-extensions", "PyTorch extensions", "PyTorch"),
        Var("TORCH_EXTENSIONS_DIR"),
        *user_cached("torch_extensions"),
        unseen="a changed byte inside a library, as ninja goes by times",
        runs=True,
    ),
    row(
        ("torch-kernels", "PyTorch jiterator kernels", "PyTorch"),
        Var("PYTORCH_KERNEL_CACHE_PATH"),
        *on(cached("torch/kernels"), windows=(Var("TEMP", "torch/kernels"),)),
        unseen="a changed byte inside a binary, or that of another kernel",
        off={"USE_PYTORCH_KERNEL_CACHE": ("0",)},
    ),
    row(
        ("helion", "Helion autotuning records", "Helion"),
        Var("HELION_CACHE_DIR"),
        Var("TORCHINDUCTOR_CACHE_DIR", "helion"),
        Temporary("torchinductor_", inside="helion"),
        unseen="the record of another kernel",
        off={"HELION_FORCE_AUTOTUNE": ("1",)},
    ),
    row(
        ("tvm-ffi", "TVM-FFI inline modules", "TVM-FFI"),
        Var("TVM_FFI_CACHE_DIR"),
        Home(".cache/tvm-ffi", expanded=True),
        unseen="a changed byte in a library, or the library of another module",
        runs=True,
    ),
    row(
        ("triton", "Triton kernel cache", "Triton"),
        Var("TRITON_CACHE_DIR"),
        Var("TRITON_HOME", ".triton/cache"),
        Home(".triton/cache", expanded=True),
        also=(
            *(Var("TORCHINDUCTOR_CACHE_DIR", folder) for folder in _TRITON_OF_DEVICES),
            *(Temporary("torchinductor_", inside=folder) for folder in _TRITON_OF_DEVICES),
        ),
        off={"TRITON_ALWAYS_COMPILE": ("1", "true", "yes", "on", "y")},
        runs=True,
        opt_in=False,
    ),
    row(
        ("cutile", "cuTile Python cache", "cuTile"),
        Var("CUDA_TILE_CACHE_DIR"),
        Var("LOCALAPPDATA" if WINDOWS else "XDG_CACHE_HOME", "cutile-python"),
        Home(".cache/cutile-python", expanded=True),
        unseen=ANY_BINARY,
        off={"CUDA_TILE_CACHE_DIR": ("0", "off", "none")},
        limit=("CUDA_TILE_CACHE_SIZE", 2 << 30),
    ),
    row(
        ("cute-dsl", "CuTe DSL cache", "the CuTe DSL"),
        Var("CUTE_DSL_CACHE_DIR"),
        Temporary("", inside="cutlass_python_cache"),
        off={"CUTE_DSL_NO_CACHE": ("1", "true", "on"), "CUTE_DSL_DISABLE_FILE_CACHING": ("1", "true", "on")},
    ),
    row(
        ("flash-attention", "FlashAttention 4 kernel cache", "FlashAttention"),
        Var("FLASH_ATTENTION_CUTE_DSL_CACHE_DIR"),
        Temporary("", inside="flash_attention_cute_dsl_cache"),
        unseen="a changed byte in an object, or the object of another kernel",
        turn_on=(("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1"),),
        runs=True,
    ),
    row(
        ("quack", "QuACK kernel cache", "QuACK"),
        Var("QUACK_CACHE_DIR"),
        Temporary("", inside="quack_cache"),
        unseen="a changed byte in an object, or the object of another kernel",
        runs=True,
    ),
    row(
        ("flydsl", "FlyDSL kernel cache", "FlyDSL"),
        Var("FLYDSL_RUNTIME_CACHE_DIR"),
        Home(".flydsl/cache", expanded=True),
        unseen="the kernel of another function that was put there",
        off={"FLYDSL_RUNTIME_ENABLE_CACHE": ("0", "false", "off", "no")},
        runs=True,
    ),
    row(
        ("tilus", "Tilus program cache", "Tilus"),
        Var("TILUS_CACHE_DIR"),
        Home(".cache/tilus", expanded=True),
        unseen="a changed byte inside a library",
        runs=True,
    ),
    row(
        ("tilelang", "TileLang kernel cache", "TileLang"),
        Var("TILELANG_CACHE_DIR"),
        Home(".tilelang/cache", expanded=True),
        tracing={"TILELANG_VERBOSE": "1"},
        off={"TILELANG_DISABLE_CACHE": ("1", "true", "yes", "on")},
        runs=True,
        opt_in=False,
    ),
    row(
        ("aiter", "AITER modules", "AITER"),
        Var("AITER_JIT_DIR"),
        Home(".aiter/jit", expanded=True),
        unseen="a changed byte inside a library",
        runs=True,
        lacking="without AITER_JIT_DIR AITER keeps modules inside its own package, in aiter/jit, if that can "
        "be written, where gpucache does not look",
    ),
    row(
        ("openvino", "OpenVINO model cache", "OpenVINO"),
        unseen="changed weights, or the model of another file, with which the program computes",
        remedy="name another directory with CACHE_DIR",
        nowhere="OpenVINO keeps models only where a program's property CACHE_DIR says; name that directory",
        lacking="a program names the place by the property CACHE_DIR alone",
        opt_in=False,
    ),
    row(
        ("onnxruntime-trt", "ONNX Runtime TensorRT engines", "ONNX Runtime"),
        Var("ORT_TENSORRT_CACHE_PATH"),
        Var("ORT_TENSORRT_ENGINE_CACHE_PATH"),
        unseen="damage behind the beginning of an engine or a timing cache",
        nowhere="ONNX Runtime uses the current directory until ORT_TENSORRT_CACHE_PATH names one; set it",
        off={"ORT_TENSORRT_ENGINE_CACHE_ENABLE": ("0",)},
        turn_on=(("ORT_TENSORRT_ENGINE_CACHE_ENABLE", "1"),),
        lacking="programs that pass options to the TensorRT provider name its place there, not by variables",
    ),
    row(
        ("torch-tensorrt", "Torch-TensorRT engine cache", "Torch-TensorRT"),
        Temporary("torch_tensorrt_engine_cache", user=False),
        unseen="damage behind the beginning of an engine or a timing cache",
        remedy="name another directory with engine_cache_dir and timing_cache_path",
        limit=("", 5 << 30),  # unless a program sets another
        lacking="Torch-TensorRT has no variable but TMPDIR; a program names a place with engine_cache_dir",
    ),
    # The kernels that TensorRT-RTX compiled for engines, which run on any GPU, when programs started. Source:
    # Torch-TensorRT 2.14 (PyPI), ``dynamo/_defaults.py`` and ``runtime/_runtime_cache.py``, and the texts in
    # the library of TensorRT-RTX 1.7 (PyPI); no file written on a GPU was available. All engines of a user
    # share one file, replaced as a whole below a lock. A file of another version of TensorRT-RTX or another
    # GPU is rejected, and so is a broken header.
    row(
        ("tensorrt-rtx", "TensorRT-RTX runtime cache", "TensorRT-RTX"),
        Temporary("torch_tensorrt_"),
        signs=(r"runtime_cache\w*\.bin",),
        unlisted=r"(?!runtime_cache\w*\.bin$).*",
        remedy="name another file with runtime_cache",
        lacking="Torch-TensorRT has no variable but TMPDIR; a program names a file with runtime_cache, and "
        "one of ONNX Runtime a directory with nv_runtime_cache_path",
    ),
    row(
        ("vllm", "vLLM compile cache", "vLLM"),
        Var("VLLM_CACHE_ROOT"),
        *cached("vllm", expanded=True),
        tracing={"VLLM_LOGGING_LEVEL": "DEBUG"},
        off={"VLLM_DISABLE_COMPILE_CACHE": ("1",)},
        runs=True,
    ),
    row(
        ("flashinfer", "FlashInfer module cache", "FlashInfer"),
        Var("FLASHINFER_WORKSPACE_BASE", ".cache/flashinfer"),
        Home(".cache/flashinfer", expanded=True),
        unseen="a changed byte inside a library, as ninja goes by times",
        tracing={"FLASHINFER_JIT_VERBOSE": "1", "FLASHINFER_JIT_DEBUG": "0"},  # else it builds for debuggers
        runs=True,
        opt_in=False,
        lacking="results of its autotuner are in the file that a program names with autotune(cache=...)",
    ),
    row(
        ("deep-gemm", "DeepGEMM kernel cache", "DeepGEMM"),
        Var("DG_JIT_CACHE_DIR"),
        Home(".deep_gemm"),
        unseen="a changed byte inside a cubin",
        tracing={"DG_JIT_DEBUG": "1"},
        also=(
            Var("VLLM_CACHE_ROOT", "deep_gemm"),
            Home(".cache/vllm/deep_gemm"),
            Var("SGLANG_DG_CACHE_DIR"),
            Home(".cache/deep_gemm"),
            Home(".cache/sglang/deep_gemm"),
        ),
    ),
    row(
        ("miopen", "MIOpen kernel cache", "MIOpen"),
        Var("MIOPEN_CUSTOM_CACHE_DIR"),
        *on((Home(".cache/miopen"),), windows=(Home(".miopen/cache"),)),
        tracing={"MIOPEN_LOG_LEVEL": "6"},
        also=(Var("MIOPEN_USER_DB_PATH"), Home(".config/miopen")),
        off={"MIOPEN_DISABLE_CACHE": ("1", "true", "yes", "on", "enable", "enabled")},
    ),
    row(
        ("unsloth", "Unsloth mega-cache", "Unsloth"),
        Var("UNSLOTH_MEGA_CACHE_DIR"),
        Home(".cache/unsloth/mega_cache", expanded=True),
        unseen="the bundle of another program that was put there with its manifest",
        off={"UNSLOTH_MEGA_CACHE": ("0", "false", "off", "no")},
        runs=True,
    ),
    row(
        ("b12x", "B12X kernel cache", "B12X"),
        Var("B12X_COMPILE_CACHE_DIR"),
        *cached("b12x/compile", expanded=True),
        unseen="the object of another kernel that was put there with its manifest",
        runs=True,
    ),
    row(
        ("mlx", "MLX kernel cache for CUDA", "MLX"),
        Var("MLX_PTX_CACHE_DIR"),
        Temporary("mlx", user=False),
        unseen="the kernels of another GPU, compiler or source, as the module's name alone is the key",
    ),
    row(
        ("hidet", "Hidet operator cache", "Hidet"),
        Home(".cache/hidet", expanded=True),
        unseen="a changed byte inside a library",
        remedy="name another directory with hidet.option.cache_dir",
        runs=True,
        lacking="no variable but HOME moves it; a program names a place with hidet.option.cache_dir",
    ),
    row(
        ("modular", "Mojo and MAX compile cache", "Mojo"),
        Var("MODULAR_CACHE_DIR"),
        Var("MODULAR_DERIVED_PATH", "cache"),
        Var("MODULAR_HOME", "cache"),
        *cached("modular"),
        runs=True,
    ),
    # The kernels that cuDF compiled at run time, with its librtcx. Source: libcudf 26.10 (PyPI), the places
    # in its library, and NVIDIA's page on its Spark plugin; no file written on a GPU was available. A file is
    # named by a SHA-256 of the code, the versions of CUDA and the driver, the GPU and the path of cuDF's own
    # sources. Old ones are never removed.
    row(
        ("cudf", "cuDF kernel cache", "cuDF"),
        Var("LIBCUDF_KERNEL_CACHE_PATH"),
        *cached("libcudf"),
        Temporary("libcudf", user=False),
        signs=("rtcx_cache",),
        off={"LIBCUDF_KERNEL_CACHE_DISABLED": ("1", "on", "true", "yes")},
    ),
    row(
        ("hub-kernels", "kernels from Hugging Face's hub", "the package kernels"),
        Var("KERNELS_CACHE"),
        Var("HF_HUB_CACHE"),
        Var("HF_HOME", "hub"),
        *cached("huggingface/hub", expanded=True),
        runs=True,
    ),
    # The programs of Tenstorrent's cores. Source: tt-metal of 2025, ``tt_metal/jit_build/build.cpp``; no file
    # written by it was available. A directory for each build of tt-metal and device has ``firmware`` and
    # ``kernels``; a start of another build removes those of all others.
    row(
        ("tt-metal", "TT-Metal kernel cache", "TT-Metal"),
        Var("TT_METAL_CACHE", "tt-metal-cache"),
        Home(".cache/tt-metal-cache"),
        Temporary("tt-metal-cache", user=False, folder="/tmp"),
        signs=(r"\d+/(?:firmware|kernels)", r"[0-9a-f]{7,40}/\d+/(?:firmware|kernels)"),
    ),
    row(
        ("tunableop", "PyTorch TunableOp results", "PyTorch"),
        _FileVariable("PYTORCH_TUNABLEOP_FILENAME"),
        unseen="a changed result",
        nowhere="PyTorch writes it into the current directory until PYTORCH_TUNABLEOP_FILENAME names a file",
        remedy="set PYTORCH_TUNABLEOP_FILENAME to a file elsewhere",
        off={"PYTORCH_TUNABLEOP_ENABLED": ("0",)},
        turn_on=(("PYTORCH_TUNABLEOP_ENABLED", "1"),),
        leaf="tunableop/tunableop_results.csv",
    ),
)
