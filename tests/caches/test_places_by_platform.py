"""Where programs keep their caches on each operating system."""

import json
import os
from pathlib import Path

import pytest
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

from gpucache.caches.places import user_cached
from tests.children import run_python

_OURS = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.mark.parametrize(("system", "like"), [("linux", Unix), ("darwin", MacOS)])
def test_a_place_is_where_platformdirs_has_it(
    system: str, like: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As platformdirs has it without variables but the home directory."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    ways = user_cached("app", "author", "below", system=system)
    (found,) = filter(None, (way.find({"HOME": "/home/me"}) for way in ways))
    assert str(found[0]) == f"{like('app', 'author').user_cache_dir}/below"


@pytest.mark.parametrize(
    ("author", "place"), [(None, "app/app/Cache"), ("", "app/Cache"), ("author", "author/app/Cache")]
)
def test_a_place_on_windows_is_below_its_author(author: str | None, place: str) -> None:
    """As ``platformdirs`` takes None for the program and False for none."""
    (way,) = user_cached("app", author, system="win32")
    found = way.find({"LOCALAPPDATA": "/local"})
    assert found is not None and found[0].as_posix() == f"/local/{place}"


_ENVIRON = {
    "HOME": "/home",
    "USERPROFILE": "/profile",
    "LOCALAPPDATA": "/local",
    "APPDATA": "/roaming",
    "TEMP": "/temp",
    "TMPDIR": "/var/folders/t",
    "USERNAME": "me",
}
_SHOW = """
import json, sys
from tests import winlike
winlike.load()
sys.platform = sys.argv[1]
from gpucache.caches.systems import PLACES
environ = json.loads(sys.argv[2])
ways = {name: row.place.find(environ) for name, row in PLACES.items()}
also = {name: [way.find(environ) for way in row.place.also] for name, row in PLACES.items()}
found = {name: place or next(filter(None, also[name]), None) for name, place in ways.items()}
print(json.dumps({name: place and str(place[0]) for name, place in found.items()}))
"""
_SET = {
    "darwin": {"HOME", "TMPDIR", "USERNAME"},
    "win32": {"USERPROFILE", "LOCALAPPDATA", "APPDATA", "TEMP", "USERNAME"},
}
_MANAGER, _STEAM = "kernel_compilation_manager", "Steam/steamapps/shadercache"
_GLIB, _PIPELINES = "/local/Microsoft/Windows/INetCache", "gtk-4.0/vulkan-pipeline-cache"
# As the code of each owner has it: that of its wheel, or of its repository where there is none.
_FOUND = {
    **dict.fromkeys(
        # Which programs name, or find as ``rocfft.locations`` does.
        ("jax", "openvino", "onnxruntime-trt", "tunableop", "futhark", "rocfft"),
        (None, None),
    ),
    **{
        name: (f"/home/{below}", f"/profile/{below}")
        for name, below in {
            "flydsl": ".flydsl/cache",
            "tilus": ".cache/tilus",
            "aiter": ".aiter/jit",
            "vllm": ".cache/vllm",
            "flashinfer": ".cache/flashinfer",
            "deep-gemm": ".deep_gemm",
            "unsloth": ".cache/unsloth/mega_cache",
            "b12x": ".cache/b12x/compile",
            "hidet": ".cache/hidet",
            "modular": ".cache/modular",
            "cudf": ".cache/libcudf",
            "hub-kernels": ".cache/huggingface/hub",
            "tt-metal": ".cache/tt-metal-cache",
            "keops": ".cache/keops[0-9]*",
            "adaptivecpp": ".acpp",
        }.items()
    },
    **{
        name: (f"/var/folders/t/{below}", f"/temp/{below}")
        for name, below in {
            "cute-dsl": "me/cutlass_python_cache",
            "flash-attention": "me/flash_attention_cute_dsl_cache",
            "quack": "me/quack_cache",
            "torch-tensorrt": "torch_tensorrt_engine_cache",
            "mlx": "mlx",
        }.items()
    },
    "neuron": ("/var/tmp/neuron-compile-cache", "/var/tmp/neuron-compile-cache"),
    "cycles": ("/home/.cache/cycles/kernels", "/roaming/Blender Foundation/Blender/*/cache/kernels"),
    "firefox": (
        "/home/Library/Application Support/Firefox/Profiles/*/shader-cache",
        "/roaming/Mozilla/Firefox/Profiles/*/shader-cache",
    ),
    "qt": ("/home/Library/Caches/qtshadercache*", "/local/cache/qtshadercache*"),
    "miopen": ("/home/.cache/miopen", "/profile/.miopen/cache"),
    "cuda": ("/home/Library/Application Support/NVIDIA/ComputeCache", "/roaming/NVIDIA/ComputeCache"),
    "intel-neo": ("/home/.cache/neo_compiler_cache", "/local/NEO/neo_compiler_cache"),
    "nvidia-optix": ("/var/tmp/OptixCache_me", "/local/NVIDIA/OptixCache"),
    "amd-comgr": ("/home/.cache/comgr", "/local/cache/comgr"),
    "numba": ("/home/Library/Caches/numba", "/local/numba/Cache"),
    "hashcat": ("/home/.cache/hashcat/kernels", None),
    "triton": ("/home/.triton/cache", "/profile/.triton/cache"),
    "inductor": ("/var/folders/t/torchinductor_me", "/temp/torchinductor_me"),
    "torch-extensions": (
        "/home/Library/Caches/torch_extensions",
        "/local/torch_extensions/torch_extensions/Cache",
    ),
    "torch-kernels": ("/home/.cache/torch/kernels", "/temp/torch/kernels"),
    "helion": ("/var/folders/t/torchinductor_me/helion", "/temp/torchinductor_me/helion"),
    "tensorrt-rtx": ("/var/folders/t/torch_tensorrt_me", "/temp/torch_tensorrt_me"),
    "tvm-ffi": ("/home/.cache/tvm-ffi", "/profile/.cache/tvm-ffi"),
    "tilelang": ("/home/.tilelang/cache", "/profile/.tilelang/cache"),
    "tinygrad": ("/home/Library/Caches/tinygrad", "/profile/.cache/tinygrad"),
    "cupy": ("/home/.cupy/kernel_cache", "/profile/.cupy/kernel_cache"),
    "cutile": ("/home/.cache/cutile-python", "/local/cutile-python"),
    "cuda.core": ("/home/.cache/cuda-python/program-cache", "/local/cuda-python/program-cache"),
    "warp": ("/home/Library/Caches/warp", "/local/NVIDIA/warp/Cache"),
    "pytools": ("/home/Library/Caches/pytools", "/local/pytools/pytools/Cache"),
    "pyopencl": ("/home/Library/Caches/pyopencl", "/local/pyopencl/pyopencl/Cache"),
    "pyfr": ("/home/Library/Caches/pyfr", "/local/pyfr/pyfr/Cache"),
    "drjit": ("/home/.drjit", "/temp/drjit"),
    "pocl": ("/home/.cache/pocl/kcache", "/local/pocl"),
    "sycl": ("/home/.cache/libsycl_cache", "/roaming/libsycl_cache"),
    "opencv": ("/var/folders/t/opencv", "/temp/opencv"),
    "arrayfire": ("/home/.arrayfire", "/temp/ArrayFire"),
    "clesperanto": ("/home/.cache/clesperanto", "/local/clesperanto"),
    "ggml-opencl": ("/home/Library/Caches/llama.cpp/cl-cache", "/local/llama.cpp/cl-cache"),
    "taichi": ("/home/.cache/taichi/ticache", "C:/taichi_cache/ticache"),
    "gstaichi": (f"/home/.cache/gstaichi/ticache/{_MANAGER}", f"C:/gstaichi_cache/ticache/{_MANAGER}"),
    "quadrants": (f"/home/.cache/quadrants/qdcache/{_MANAGER}", f"C:/quadrants_cache/qdcache/{_MANAGER}"),
    "pycuda": (
        "/home/Library/Caches/pycuda/compiler-cache-v1",
        "/local/pycuda/pycuda/Cache/compiler-cache-v1",
    ),
    "darktable": ("/home/.cache/darktable", f"{_GLIB}/darktable"),
    "vulkan": (f"/home/.cache/{_PIPELINES}", f"{_GLIB}/{_PIPELINES}"),
    "nvidia-gl": ("/home/.cache/nvidia/GLCache", "/local/NVIDIA/GLCache"),
    "mpv": ("/home/Library/Caches/io.mpv", "/local/mpv"),
    "steam": (f"/home/Library/Application Support/{_STEAM}", f"C:/Program Files (x86)/{_STEAM}"),
    "dxvk": ("/home/.cache/dxvk", "/local/dxvk"),
    "chromium": ("/home/Library/Application Support/Google/Chrome", "/local/Google/Chrome/User Data"),
}


def _places(platform: str, **more: str) -> dict[str, str | None]:
    """By system the place on an operating system, with the variables of every process there and some more."""
    environ = {name: place for name, place in _ENVIRON.items() if name in _SET[platform]}
    words = ("-c", _SHOW, platform, json.dumps(environ | more))
    found: dict[str, str | None] = json.loads(run_python(*words, env=_OURS))
    return found


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_a_cache_is_where_its_owner_has_it(platform: str) -> None:
    """Whatever that of Linux is."""
    found = _places(platform)
    recorded = found.pop("mesa")  # in the home directory of the user's record, which Windows has not
    assert recorded is None if platform == "win32" else str(recorded).endswith("/.cache/mesa_shader_cache")
    assert found == {name: places[platform == "win32"] for name, places in _FOUND.items()}


def test_some_programs_on_macos_follow_the_directory_of_caches_first() -> None:
    """tinygrad and PoCL look at it, mpv and what asks ``platformdirs`` do not."""
    found = _places("darwin", XDG_CACHE_HOME="/xdg")
    wanted = {"tinygrad": "/xdg/tinygrad", "pocl": "/xdg/pocl/kcache"}
    library = {name: f"/home/Library/Caches/{place}" for name, place in (("mpv", "io.mpv"), ("warp", "warp"))}
    assert {name: found[name] for name in (*wanted, *library)} == wanted | library
