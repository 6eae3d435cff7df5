"""vLLM's compile cache: the compiled graphs of models, with what their keys were made from.

Source: vLLM 0.33, vllm/compilation/backends.py.
"""

from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.opaque import OpaqueFormat
from gpucache.caches.places import Home, Place, Var


class Vllm(OpaqueFormat):
    """What vLLM keeps below its root, compiled graphs above all."""

    name = "vllm"
    title = "vLLM compile cache"
    owner = "vLLM"
    place = Place(
        (Var("VLLM_CACHE_ROOT"), Var("XDG_CACHE_HOME", "vllm"), Home(".cache/vllm", expanded=True)),
        move="set VLLM_CACHE_ROOT",
        nowhere="vLLM finds no home folder; set VLLM_CACHE_ROOT",
        off={"VLLM_DISABLE_COMPILE_CACHE": ("1",)},
        opt_in=True,
    )
    signs = (
        "torch_compile_cache/[0-9a-f]{10}",
        "torch_aot_compile/[0-9a-f]{64}",
        "torch_compile_cache/torch_aot_compile/[0-9a-f]{64}",
    )


SYSTEM = ForeignSystem(Vllm)
