"""The places of the caches of PyTorch and of compilers that its programs call: rows of ``systems``."""

from gpucache.caches.places import Home, Place, Places, Temporary, Var


class InductorPlaces(Places):
    name = "inductor"
    title = "TorchInductor cache"
    owner = "TorchInductor"
    unseen = "a changed byte inside a library, or a changed module of a kernel"
    place = Place(
        (Var("TORCHINDUCTOR_CACHE_DIR"), Temporary("torchinductor_")),
        move="set TORCHINDUCTOR_CACHE_DIR",
        nowhere="TorchInductor finds no name of the user; set TORCHINDUCTOR_CACHE_DIR",
        off={
            "TORCHINDUCTOR_FX_GRAPH_CACHE": ("0",),
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": ("1",),
            "TORCH_COMPILE_FORCE_DISABLE_CACHES": ("1",),
        },
        runs=True,
        opt_in=True,
    )
    tracing = {"TORCH_LOGS": "+inductor"}


class TorchExtensionsPlaces(Places):
    name = "torch-extensions"
    title = "PyTorch extensions"
    owner = "PyTorch"
    unseen = "a changed byte inside a library, as ninja goes by times"
    place = Place(
        (
            Var("TORCH_EXTENSIONS_DIR"),
            Var("XDG_CACHE_HOME", "torch_extensions"),
            Home(".cache/torch_extensions", expanded=True),
        ),
        move="set TORCH_EXTENSIONS_DIR",
        nowhere="PyTorch finds no home directory; set TORCH_EXTENSIONS_DIR",
        opt_in=True,
        runs=True,
    )


class TorchKernelsPlaces(Places):
    name = "torch-kernels"
    title = "PyTorch jiterator kernels"
    owner = "PyTorch"
    unseen = "a changed byte inside a binary, or that of another kernel"
    place = Place(
        (
            Var("PYTORCH_KERNEL_CACHE_PATH"),
            Var("XDG_CACHE_HOME", "torch/kernels"),
            Home(".cache/torch/kernels"),
        ),
        move="set PYTORCH_KERNEL_CACHE_PATH",
        nowhere="PyTorch finds no home directory; set PYTORCH_KERNEL_CACHE_PATH",
        off={"USE_PYTORCH_KERNEL_CACHE": ("0",)},
        opt_in=True,
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
        move="set HELION_CACHE_DIR",
        nowhere="Helion finds no name of the user; set HELION_CACHE_DIR",
        off={"HELION_FORCE_AUTOTUNE": ("1",)},
        opt_in=True,
    )


class TvmFfiPlaces(Places):
    name = "tvm-ffi"
    title = "TVM-FFI inline modules"
    owner = "TVM-FFI"
    unseen = "a changed byte in a library, or the library of another module"
    place = Place(
        (Var("TVM_FFI_CACHE_DIR"), Home(".cache/tvm-ffi", expanded=True)),
        move="set TVM_FFI_CACHE_DIR",
        nowhere="TVM-FFI finds no home folder; set TVM_FFI_CACHE_DIR",
        opt_in=True,
        runs=True,
    )


class CuteDslPlaces(Places):
    name = "cute-dsl"
    title = "CuTe DSL cache"
    owner = "the CuTe DSL"
    place = Place(
        (Var("CUTE_DSL_CACHE_DIR"), Temporary("", inside="cutlass_python_cache")),
        move="set CUTE_DSL_CACHE_DIR",
        nowhere="the CuTe DSL finds no name of the user; set CUTE_DSL_CACHE_DIR",
        off={
            "CUTE_DSL_NO_CACHE": ("1", "true", "on"),
            "CUTE_DSL_DISABLE_FILE_CACHING": ("1", "true", "on"),
        },
        opt_in=True,
    )


class FlashAttentionPlaces(Places):
    name = "flash-attention"
    title = "FlashAttention 4 kernel cache"
    owner = "FlashAttention"
    unseen = "a changed byte in an object, or the object of another kernel"
    place = Place(
        (
            Var("FLASH_ATTENTION_CUTE_DSL_CACHE_DIR"),
            Temporary("", inside="flash_attention_cute_dsl_cache"),
        ),
        move="set FLASH_ATTENTION_CUTE_DSL_CACHE_DIR",
        nowhere="FlashAttention finds no name of the user; set FLASH_ATTENTION_CUTE_DSL_CACHE_DIR",
        turn_on=(("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1"),),
        opt_in=True,
        runs=True,
    )
