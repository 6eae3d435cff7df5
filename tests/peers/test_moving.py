"""Entries of GPU compilers that another user made elsewhere: the real owner hits them, as far as it can.

Each is made as one user with one install in one place, packed, and restored as another user with another
home, project and install, who cannot see the first one's places; its owner's own words or counters report
the hit.
"""

import shutil
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

import pytest

from gpucache.caches.portable import Fact
from gpucache.errors import FormatError
from tests.peers.elsewhere import User, move, needs_sandbox, opened, packed, restore, seen, users
from tests.peers.owners import OPENCV, TRITON_KERNEL, WARP
from tests.pocl import SYSTEM_ICD

pytestmark = [needs_sandbox, pytest.mark.slow]


def _installed(name: str) -> bool:
    try:
        return bool(distribution(name))
    except PackageNotFoundError:
        return False


def _needs(*names: str) -> pytest.MarkDecorator:
    gone = [name for name in names if not _installed(name)]
    return pytest.mark.skipif(bool(gone), reason=f"{' and '.join(gone)} not installed")


_SCALE = 'extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= 2; }'
_NVRTC = "nvidia-cuda-nvrtc"
_OF_TRITON = f"""
import hashlib
{TRITON_KERNEL}
hits = []
triton.knobs.compilation.listener = lambda cache_hit, **_: hits.append(cache_hit)
types = {{"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}}
for target, form in ((GPUTarget("cuda", 90, 32), "cubin"), (GPUTarget("hip", "gfx942", 64), "hsaco")):
    made = triton.compile(ASTSource(scale, types, constexprs={{"BLOCK": 128}}), target=target)
    print(form, hashlib.sha256(made.asm[form]).hexdigest())
print("hits", *hits)
"""


@_needs("triton")
def test_triton_hits_what_another_user_and_install_compiled(tmp_path: Path) -> None:
    """Its listener reports that, and the bytes from the new place are equal; only a version is required."""
    first, second = users(tmp_path, "triton")
    made, started = first.run(_OF_TRITON, {})
    assert "hits False False" in made
    compiled = len(started)
    cache = Path(".triton/cache")
    entries = move("triton", first.home / cache, second.home / cache)
    assert {dict(one.facts)[Fact.ARCHITECTURE] for one in entries} == {"sm_90", "gfx942"}
    assert {dict(one.facts)[Fact.VERSION] for one in entries} == {distribution("triton").version}
    before = seen(second.home / cache)
    found, started = second.run(_OF_TRITON, {})
    assert "hits True True" in found and made.split()[:4] == found.split()[:4] and len(started) < compiled
    assert seen(second.home / cache) == before
    assert {one.files for one in packed("triton", second.home / cache)} == {one.files for one in entries}


_OF_JAX = """
import jax, jax.monitoring
seen = []
jax.monitoring.register_event_listener(lambda event, **_: seen.append(event.rpartition("/")[2]))
assert jax.jit(lambda x: x * 3 + 1)(2.0) == 7
print("hits", seen.count("cache_hits"), "misses", seen.count("cache_misses"))
"""


def _jax(home: Path, **more: str) -> dict[str, str]:
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(home / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        **more,
    }


@_needs("jax")
def test_jax_without_xlas_caches_hits_what_another_user_and_install_compiled(tmp_path: Path) -> None:
    """Its events report that; the entry has the setting, and the CPU, whose features are in the key."""
    zstd = [name for name in ("zstandard",) if _installed(name)]  # which decides about the compression
    first, second = users(tmp_path, "jax", "jaxlib", *zstd)
    alone = {"JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none"}
    said, _ = first.run(_OF_JAX, _jax(first.home, **alone))
    assert "hits 0" in said and "misses 0" not in said
    entries = move("jax", first.home / "jax", second.home / "jax")
    facts = dict(entries[0].facts)
    assert facts["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] == "none" and facts[Fact.CPU]
    before = seen(second.home / "jax")
    said, _ = second.run(_OF_JAX, _jax(second.home, **alone))
    assert "hits 0" not in said and "misses 0" in said and seen(second.home / "jax") == before


@_needs("jax")
def test_jax_with_xlas_caches_hits_at_the_same_place_alone(tmp_path: Path) -> None:
    """The place is in its keys, and a fact of its entries."""
    first, second = users(tmp_path)
    first.run(_OF_JAX, _jax(first.home))
    entries = move("jax", first.home / "jax", second.home / "jax")
    assert {dict(one.facts)[Fact.PLACE] for one in entries} == {str(first.home / "jax")}
    said, _ = second.run(_OF_JAX, _jax(second.home))
    assert "hits 0" in said
    shutil.rmtree(first.home / "jax")
    move("jax", second.home / "jax", first.home / "jax")
    said, _ = replace(first, uid=1003).run(_OF_JAX, _jax(first.home))
    assert "misses 0" in said


@_needs("jax", "filelock")
def test_jax_with_a_bounded_cache_hits_and_writes_beside_what_came(tmp_path: Path) -> None:
    """An entry gets its last use, without which JAX could write no other."""
    first, second = users(tmp_path)
    bounded = {"JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none", "JAX_COMPILATION_CACHE_MAX_SIZE": "9999999"}
    first.run(_OF_JAX, _jax(first.home, **bounded))
    second.run(_OF_JAX.replace("* 3 + 1", "* 4 - 1"), _jax(second.home, **bounded))
    entries = [one for one in packed("jax", first.home / "jax") if "lambda" in one.program]
    assert [one.done for one in restore("jax", second.home / "jax", entries)] == [True]
    said, _ = second.run(_OF_JAX, _jax(second.home, **bounded))
    assert "misses 0" in said
    said, _ = second.run(_OF_JAX.replace("* 3 + 1", "* 2 + 3"), _jax(second.home, **bounded))
    assert "FileNotFoundError" not in said and len(list((second.home / "jax").glob("*lambda*-cache"))) == 3


@_needs("warp-lang")
def test_warp_hits_what_another_user_and_install_compiled(tmp_path: Path) -> None:
    """Warp prints (cached); the entry has the program's source, and version and CPU as facts."""
    first, second = users(tmp_path, "warp-lang")
    assert "(compiled)" in first.run(WARP.program, {})[0]
    (entry,) = move("warp", first.home / ".cache/warp", second.home / ".cache/warp")
    assert set(dict(entry.facts)) == {Fact.VERSION, Fact.CPU}
    assert any(b"x[i] = x[i] * factor" in one.data for one in entry.files)
    before = seen(second.home / ".cache/warp")
    said, _ = second.run(WARP.program, {})
    assert "(cached)" in said and "(compiled)" not in said and seen(second.home / ".cache/warp") == before


def _nvrtc_of(user: User) -> dict[str, str]:
    """The place of a user's own NVRTC, which is not searched along PYTHONPATH."""
    return {"LD_LIBRARY_PATH": f"{user.site}/nvidia/cu13/lib"}


_OF_CUDA_CORE = f"""
from cuda.core import Program, ProgramOptions
from cuda.core.utils import FileStreamProgramCache

class Told(FileStreamProgramCache):
    def get(self, key, default=None):
        found = super().get(key, default)
        print("miss" if found is None else "hit")
        return found

made = Program({_SCALE!r}, "c++", ProgramOptions(arch="sm_90")).compile("cubin", cache=Told())
assert b"scale" in made.code
"""


@_needs("cuda-core", _NVRTC)
def test_cuda_core_hits_what_another_user_and_install_compiled(tmp_path: Path) -> None:
    """Its cache hits; no file is written."""
    first, second = users(tmp_path, "cuda-core", "cuda-bindings", _NVRTC)
    assert "miss" in first.run(_OF_CUDA_CORE, {})[0]
    cache = Path(".cache/cuda-python/program-cache")
    (entry,) = move("cuda.core", first.home / cache, second.home / cache)
    assert entry.facts == ((Fact.ARCHITECTURE, "sm_90"),)
    before = seen(second.home / cache)
    said, _ = second.run(_OF_CUDA_CORE, _nvrtc_of(second))
    assert "hit" in said and "miss" not in said and before.keys() == seen(second.home / cache).keys()


_OF_CUPY = f"""
import sys
from cupy._core import core
from cupy.cuda import compiler

compiled, compile_one = [], compiler._compile_using_nvrtc_no_warning

def told(source, options, *rest):
    compiled.append(options)
    return compile_one(source, options, *rest)

class Module:  # one that needs no driver
    load = _set_mapping = lambda *_: None

compiler._compile_using_nvrtc_no_warning = told
compiler.function = type("", (), {{"Module": Module}})
compiler._get_arch_for_options_for_nvrtc = lambda arch=None: ("-arch=sm_90", "cubin")
compiler._compile_module_with_cache({_SCALE!r}, (), arch="90")
print("without headers", "compiled" if compiled else "hit")
compiled.clear()
try:  # as ElementwiseKernel, RawKernel and RawModule do
    core.compile_with_cache({_SCALE!r}, (), "90")
except TypeError:  # of a module that needs no driver
    pass
print("with CuPy's headers", "compiled" if compiled else "hit")
"""


@_needs("cupy-cuda12x", _NVRTC)
def test_cupy_hits_what_another_user_compiled_and_another_install_without_its_headers(tmp_path: Path) -> None:
    """The place of its headers is an option of its kernels, and so in their keys."""
    first, second = users(tmp_path, "cupy-cuda12x", _NVRTC)
    said, _ = first.run(_OF_CUPY, {})
    assert "without headers compiled" in said and "with CuPy's headers compiled" in said
    cache = Path(".cupy/kernel_cache")
    move("cupy", first.home / cache, second.home / cache)
    before = seen(second.home / cache)
    said, _ = User(1002, second.home, hidden=[tmp_path / "there"]).run(_OF_CUPY, {})
    assert "without headers hit" in said and "with CuPy's headers hit" in said
    assert seen(second.home / cache) == before
    said, _ = second.run(_OF_CUPY, _nvrtc_of(second))
    assert "without headers hit" in said and "with CuPy's headers compiled" in said


@_needs("opencv-python-headless")
@pytest.mark.skipif(not SYSTEM_ICD.is_file(), reason="the system has no PoCL")
def test_opencv_takes_what_another_user_and_install_compiled(tmp_path: Path) -> None:
    """PoCL reports a binary and no source; no file of OpenCV's changes."""
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    shutil.copy(SYSTEM_ICD, vendors)
    first, second = users(tmp_path, "opencv-python-headless")
    environ = {"OCL_ICD_VENDORS": str(vendors), "OPENCV_OPENCL_DEVICE": ":CPU:", "POCL_DEBUG": "all"}

    def run(user: User) -> str:
        return user.run(OPENCV.program, {**environ, "OPENCV_OPENCL_CACHE_DIR": str(user.home / "cv")})[0]

    assert "build_source" in run(first)
    (entry,) = move("opencv", first.home / "cv", second.home / "cv")
    assert set(dict(entry.facts)) == {Fact.ARCHITECTURE, Fact.DRIVER}
    before = seen(second.home / "cv")
    assert "build_source" not in run(second) and seen(second.home / "cv") == before


def _runtimes() -> set[str]:
    """The libraries that PyTorch loads, which it names by an extra of another package."""
    return {name for one in distributions() if (name := one.metadata["Name"]).startswith("nvidia-")}


_CPU = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
_OF_INDUCTOR = """
import torch
from torch._dynamo.utils import counters

def f(x, y):
    return {result}

torch.manual_seed(0)
x, y = torch.randn(67, 67), torch.randn(67, 67)
torch.testing.assert_close(torch.compile(f)(x, y), f(x, y))
print("hits", counters["aot_autograd"]["autograd_cache_hit"], counters["inductor"]["fxgraph_cache_hit"])
"""


@_needs("torch")
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++, TorchInductor's compiler, is missing")
def test_inductor_hits_graphs_of_another_user_and_install_that_have_no_code_for_a_cpu(tmp_path: Path) -> None:
    """Its counters report that; the program's source is in them."""
    first, second = users(tmp_path, "torch", "setuptools", *_runtimes())
    program = _OF_INDUCTOR.format(result="x @ y")
    said, _ = first.run(program, {"TORCHINDUCTOR_CACHE_DIR": str(first.home / "inductor")})
    assert "hits 0 0" in said
    entries = move("inductor", first.home / "inductor", second.home / "inductor")
    assert any(b"return x @ y" in file.data for one in entries for file in one.files)
    said, started = second.run(program, {"TORCHINDUCTOR_CACHE_DIR": str(second.home / "inductor")})
    assert "hits 1 1" in said and not any("g++" in one or "cc1plus" in one for one in started)


@_needs("torch")
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++, TorchInductor's compiler, is missing")
@pytest.mark.skipif("avx512f" not in _CPU, reason="this CPU has vectors of one length alone")
def test_inductor_computes_wrong_values_by_code_for_another_cpu_so_that_stays(tmp_path: Path) -> None:
    """A graph for longer vectors is hit on a CPU with shorter ones, as by PyTorch's own variable for that."""
    first, _ = users(tmp_path)
    program = _OF_INDUCTOR.format(result="torch.nn.functional.gelu(x * y) + x.sum()")
    environ = {"TORCHINDUCTOR_CACHE_DIR": str(first.home / "inductor")}
    first.run(program, environ)
    cache = opened("inductor", first.home / "inductor")
    for entry in cache.scan():
        if entry.artifact_kind in ("compiled graph", "library"):
            with pytest.raises(FormatError, match="vector instructions"):
                cache.pack(entry)
    first.run(program, {**environ, "ATEN_CPU_CAPABILITY": "avx2"}, fails=True)


_OF_TILELANG = """
import logging
import tilelang, tilelang.language as T

@T.prim_func
def scale(A: T.Tensor((1024,), "float32"), B: T.Tensor((1024,), "float32")):
    with T.Kernel(8, threads=128) as bx:
        for i in T.Parallel(128):
            B[bx * 128 + i] = A[bx * 128 + i] * 2.0

class Told(logging.Handler):
    def emit(self, record):
        if record.getMessage().startswith(("Found kernel", "No cached")):
            print("hit" if record.getMessage().startswith("Found") else "miss")

logging.getLogger("tilelang.cache.kernel_cache").addHandler(Told())
for target in ({"kind": "cuda", "arch": "sm_90"}, "c"):
    tilelang.compile(scale, out_idx=[1], target=target, verbose=True)
"""


@_needs("tilelang", "torch")
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc, TileLang's compiler, is missing")
def test_tilelang_hits_what_another_user_and_install_compiled(tmp_path: Path) -> None:
    """It reports that, for a GPU and a CPU, and starts no compiler."""
    first, second = users(tmp_path, "tilelang", "torch", "setuptools", *_runtimes())
    said, _ = first.run(_OF_TILELANG, {"TILELANG_CACHE_DIR": str(first.home / "tilelang")})
    assert said.splitlines().count("miss") == 2
    entries = move("tilelang", first.home / "tilelang", second.home / "tilelang")
    assert {dict(one.facts)[Fact.VERSION] for one in entries} == {distribution("tilelang").version}
    said, started = second.run(_OF_TILELANG, {"TILELANG_CACHE_DIR": str(second.home / "tilelang")})
    assert said.splitlines().count("hit") == 2 and "miss" not in said.splitlines()
    assert not {Path(one).name for one in started} & {"nvcc", "cicc", "g++", "cc1plus"}


_OF_TVM_FFI = """
import tvm_ffi.cpp
source = "int add_one(int x) { return x + 1; }"
assert tvm_ffi.cpp.load_inline("add_one", cpp_sources=source, functions=["add_one"]).add_one(3) == 4
"""


@_needs("apache-tvm-ffi")
@pytest.mark.skipif(shutil.which("ninja") is None, reason="ninja is missing")
def test_ninja_builds_again_what_was_copied_even_to_the_same_place(tmp_path: Path) -> None:
    """It compares times with its records, so modules of TVM-FFI and the like do not move."""
    user, _ = users(tmp_path)
    cache, aside = user.home / "tvm", user.home / "aside"
    environ = {"TVM_FFI_CACHE_DIR": str(cache)}
    built = [any("cc1plus" in one for one in user.run(_OF_TVM_FFI, environ)[1]) for _ in range(2)]
    shutil.copytree(cache, aside, copy_function=shutil.copyfile)
    shutil.rmtree(cache)
    shutil.copytree(aside, cache, copy_function=shutil.copyfile)
    built.append(any("cc1plus" in one for one in user.run(_OF_TVM_FFI, environ)[1]))
    assert built == [True, False, True]
