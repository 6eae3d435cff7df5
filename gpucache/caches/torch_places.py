"""The places of the caches of PyTorch and of other frameworks and compilers like it: rows of ``systems``."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpucache.caches.places import ANY_BINARY, Home, Place, Places, Temporary, Var, cached


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


class TinygradPlaces(Places):
    name = "tinygrad"
    title = "tinygrad cache"
    owner = "tinygrad"
    unseen = ANY_BINARY
    place = Place(
        (_File("CACHEDB"), *cached("tinygrad", expanded=True)),
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
