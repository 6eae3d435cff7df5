"""Small programs of owners that compile for this machine: the place of each cache, and its messages."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpucache.answers.entries import Location
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from tests.children import run_text
from tests.pocl import SYSTEM_ICD

TRITON_KERNEL = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, at < n) * 2, at < n)
"""


@dataclass(frozen=True)
class Owner:
    """A program and its cache, ``name`` below a home directory."""

    name: str
    package: str
    program: str
    variables: Mapping[str, str]
    """The environment of the program; ``{home}`` is a directory, ``{pocl}`` a new one at each start."""
    fresh: tuple[str, ...] = ("runs", "runs")
    """The results of its first two starts: words of ``says``, or runs."""
    says: Mapping[str, str] = field(default_factory=dict)
    """The result of a start, by its output; the first match counts."""
    place: str = "cache"
    on_pocl: bool = False
    on_intel: bool = False
    """Whether it needs the OpenCL of its interpreter's intel-opencl-rt."""

    def need(self) -> None:
        if importlib.util.find_spec(self.package) is None:
            pytest.skip(f"{self.package} is not installed")
        if self.on_pocl and not SYSTEM_ICD.is_file():
            pytest.skip("the system has no PoCL")

    def run(self, home: Path, python: str = sys.executable) -> str:
        """The result of a start: a word of ``says``, runs, or failed."""
        program, vendors = home / "program.py", home / "vendors"
        if not program.exists():
            vendors.mkdir(parents=True)
            program.write_text(self.program, encoding="ascii")
            if self.on_pocl:
                (vendors / SYSTEM_ICD.name).write_bytes(SYSTEM_ICD.read_bytes())
            if self.on_intel:
                library = Path(python).parents[1] / "lib/libintelocl.so"
                (vendors / "intel.icd").write_text(f"{library}\n", encoding="utf-8")
        pocl = home / f"pocl-{len([*home.glob('pocl-*')])}"
        pocl.mkdir()
        given = {name: value.format(home=home, pocl=pocl) for name, value in self.variables.items()}
        try:
            done = run_text([python, program], env={**os.environ, **given}, input="\n", cwd=home)
        except subprocess.TimeoutExpired:
            return "failed"
        words = (word for said, word in self.says.items() if said in done.stdout)
        return "failed" if done.returncode else next(words, "runs")

    def opened(self, home: Path) -> Cache:
        """Its cache, as the owner's variable names it."""
        named = (name for name, value in self.variables.items() if value == f"{{home}}/{self.place}")
        at = Location(self.name, str(home / self.place), next(named, "--cache"), enabled=True)
        return of_others(self.name).open(at)


_POCL = {"OCL_ICD_VENDORS": "{home}/vendors", "POCL_CACHE_DIR": "{pocl}"}
WARP = Owner(
    "warp", "warp",
    """
import warp as wp
wp.init()

@wp.kernel
def scale(x: wp.array(dtype=float), factor: float):
    i = wp.tid()
    x[i] = x[i] * factor

x = wp.array([1.0, 2.0], dtype=float, device="cpu")
wp.launch(scale, dim=2, inputs=[x, 3.0], device="cpu")
assert x.numpy().tolist() == [3.0, 6.0]
""",
    {"WARP_CACHE_PATH": "{home}/cache"}, ("compiled", "runs"), {"(compiled)": "compiled"},
)  # fmt: skip
NUMBA = Owner(
    "numba", "numba",
    """
import numba

@numba.njit(cache=True)
def scale(x):
    return 2 * x

assert scale(3) == 6
""",
    {"NUMBA_CACHE_DIR": "{home}/cache", "NUMBA_DEBUG_CACHE": "1"}, ("saved", "runs"), {"data saved": "saved"},
)  # fmt: skip
PYTOOLS = Owner(
    "pytools", "pytools",
    """
from pytools.persistent_dict import NoSuchEntryError, WriteOncePersistentDict

known = WriteOncePersistentDict("peer-v1", safe_sync=False)
try:
    print("found" if known["key"] == "code" else "wrong")
except NoSuchEntryError:
    known["key"] = "code"
    print("stored", flush=True)
input()
""",
    {"XDG_CACHE_HOME": "{home}"}, ("stored", "found"), {"stored": "stored", "found": "found"}, "pytools",
)  # fmt: skip
OPENCV = Owner(
    "opencv", "cv2",
    """
import cv2, numpy as np
cv2.ocl.setUseOpenCL(True)
assert cv2.ocl.useOpenCL()
image = cv2.UMat(np.full((64, 64), 7, np.float32))
assert (cv2.resize(image, (32, 32)).get() == 7).all()
""",
    {**_POCL, "OPENCV_OPENCL_CACHE_DIR": "{home}/cache", "OPENCV_OPENCL_DEVICE": ":CPU:"}, on_pocl=True,
)  # fmt: skip
CLESPERANTO = Owner(
    "clesperanto", "pyclesperanto",
    """
import numpy as np
import pyclesperanto as cle
image = cle.push(np.full((16, 16), 3, np.float32))
assert (cle.pull(cle.add_image_and_scalar(image, scalar=4)) == 7).all()
""",
    {**_POCL, "HOME": "{home}"}, place=".cache/clesperanto", on_pocl=True,
)  # fmt: skip
OPENVINO = Owner(
    "openvino", "openvino",
    """
import os, numpy as np, openvino
try:
    from openvino import opset13 as op
except ImportError:  # before 2025
    from openvino.runtime import opset13 as op
core = openvino.Core()
core.set_property({"CACHE_DIR": os.environ["CACHE"]})
for factor in (2, 3):
    x = op.parameter([4], np.float32, name="x")
    product = op.multiply(x, op.constant(np.full(4, factor, np.float32), name="factor"), name="product")
    model = openvino.Model([op.result(product, name="result")], [x], "model")
    compiled = core.compile_model(model, "CPU")
    assert (compiled(np.ones(4, np.float32))[0] == factor).all()
    print(compiled.get_property("LOADED_FROM_CACHE"))
""",
    {"CACHE": "{home}/cache"}, ("missed", "runs"), {"False\nFalse": "missed", "False": "missed one"},
)  # fmt: skip
JAX = Owner(
    "jax", "jax",
    """
import jax, jax.numpy as jnp

@jax.jit
def scale(x):
    return jnp.sin(x) * 2 + jnp.cumsum(x)

assert abs(float(scale(jnp.ones(100))[3]) - 5.682942) < 1e-4
""",
    {
        "JAX_COMPILATION_CACHE_DIR": "{home}/cache",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    },
)  # fmt: skip
_OF_TAICHI = """
import {module} as ti
ti.init(arch=ti.cpu)
x = ti.field(ti.f32, shape=64)

@ti.kernel
def scale(a: ti.f32):
    for i in x:
        x[i] = x[i] * a + i

scale(2.0)
assert x[5] == 5
"""
_TAICHI = {"TI_OFFLINE_CACHE_FILE_PATH": "{home}/cache"}
TAICHI = Owner("taichi", "taichi", _OF_TAICHI.format(module="taichi"), _TAICHI)
GSTAICHI = Owner(
    "gstaichi", "gstaichi", _OF_TAICHI.format(module="gstaichi"), _TAICHI,
    place="cache/kernel_compilation_manager",
)  # fmt: skip
QUADRANTS = Owner(
    "quadrants", "quadrants", _OF_TAICHI.format(module="quadrants"),
    {"QD_OFFLINE_CACHE_FILE_PATH": "{home}/cache"}, place="cache/kernel_compilation_manager",
)  # fmt: skip
TRITON = Owner(
    "triton", "triton",
    TRITON_KERNEL
    + """
source = ASTSource(scale, {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {(2,): 64})
made = triton.compile(source, target=GPUTarget("cuda", 90, 32))
assert made.asm["cubin"]
""",
    {"TRITON_CACHE_DIR": "{home}/cache"},
)  # fmt: skip
TINYGRAD = Owner(
    "tinygrad", "tinygrad",
    """
from tinygrad import Tensor
assert (Tensor([1.0, 2.0]) * 3).tolist() == [3.0, 6.0]
""",
    {"CACHEDB": "{home}/cache/cache.db", "DEV": "CPU", "CPU": "1"},
)  # fmt: skip
HIDET = Owner(
    "hidet", "hidet",
    """
import hidet
hidet.option.cache_dir("cache")
x = hidet.symbol([4], dtype="float32", device="cpu")
assert hidet.graph.optimize(hidet.trace_from(x * 2.0, inputs=[x])).build()  # which only a GPU runs
""",
    {},
)  # fmt: skip
FLYDSL = Owner(
    "flydsl", "flydsl",
    """
import torch
import flydsl.compiler as compiler, flydsl.expr as fx

@compiler.kernel
def scale(x: fx.Tensor, n: fx.Constexpr[int]):
    at = fx.gpu.thread_idx.x

@compiler.jit
def launch(x: fx.Tensor, n: fx.Constexpr[int], stream: fx.Stream = fx.Stream(None)):
    scale(x, n).launch(grid=(1, 1, 1), block=(256, 1, 1), stream=stream)

launch(torch.ones(256), 256)
""",
    {
        "FLYDSL_RUNTIME_CACHE_DIR": "{home}/cache", "FLYDSL_GPU_ARCH": "gfx942", "ARCH": "gfx942",
        "COMPILE_ONLY": "1",
    },
)  # fmt: skip
"""For an absent GPU; ROCM_PATH has llvm/bin/ld.lld of LLVM 18 or later."""
_OF_OPENCL = """
import numpy as np
import pyopencl as cl
context = cl.Context(cl.get_platforms()[0].get_devices())
queue, x = cl.CommandQueue(context), np.ones(4, np.float32)
buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=x)
source = "kernel void scale(global float *x) {{ x[get_global_id(0)] *= 3; }}"
cl.Program(context, source).build({options}).scale(queue, (4,), None, buffer)
cl.enqueue_copy(queue, x, buffer)
assert x.tolist() == [3, 3, 3, 3]
"""
TVM_FFI = Owner(
    "tvm-ffi", "tvm_ffi",
    """
import tvm_ffi.cpp
source = "int add_one(int x) { return x + 1; }"
assert tvm_ffi.cpp.load_inline("add_one", cpp_sources=source, functions=["add_one"]).add_one(3) == 4
""",
    {"TVM_FFI_CACHE_DIR": "{home}/cache"},
)  # fmt: skip
TORCH_EXTENSIONS = Owner(
    "torch-extensions", "torch",
    """
from torch.utils.cpp_extension import load_inline
source = "int add_one(int x) { return x + 1; }"
assert load_inline("adding", cpp_sources=source, functions=["add_one"]).add_one(3) == 4
""",
    {"TORCH_EXTENSIONS_DIR": "{home}/cache"},
)  # fmt: skip
INDUCTOR = Owner(
    "inductor", "torch",
    """
import torch
made = torch.compile(lambda x, y: torch.nn.functional.gelu(x @ y) + x.sum())
assert abs(float(made(torch.ones(8, 8), torch.ones(8, 8))[0, 0]) - 72) < 1e-3
""",
    {"TORCHINDUCTOR_CACHE_DIR": "{home}/cache"},
)  # fmt: skip
POCL = Owner(
    "pocl", "pyopencl", _OF_OPENCL.format(options="cache_dir=False"),
    {**_POCL, "POCL_CACHE_DIR": "{home}/cache"}, on_pocl=True,
)  # fmt: skip
PYOPENCL = Owner(
    "pyopencl", "pyopencl", _OF_OPENCL.format(options=""),
    {"OCL_ICD_VENDORS": "{home}/vendors", "XDG_CACHE_HOME": "{home}"}, place="pyopencl", on_intel=True,
)  # fmt: skip
HASHCAT = Owner(
    "hashcat", "subprocess",
    """
import subprocess
found = ["-m", "0", "-a", "3", "--force", "-w", "1", "--potfile-disable", "5f4dcc3b5aa765d61d8327deb882cf99"]
done = subprocess.run(["hashcat", *found, "passwor?l"], capture_output=True, text=True)
assert "Recovered........: 1/1" in done.stdout
""",
    {**_POCL, "HOME": "{home}", "XDG_CACHE_HOME": "{home}", "XDG_DATA_HOME": "{home}/data"},
    place="hashcat/kernels", on_pocl=True,
)  # fmt: skip
SYCL = Owner(
    "sycl", "dpnp",
    """
import dpnp
x = dpnp.arange(16, dtype="float32")
assert float(dpnp.sum(x)) == 120.0 and float(dpnp.sqrt(x + 3)[1]) == 2.0
""",
    {"SYCL_CACHE_PERSISTENT": "1", "SYCL_CACHE_DIR": "{home}/cache", "OCL_ICD_VENDORS": "{home}/vendors"},
    on_intel=True,
)  # fmt: skip
_SCALE = 'extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= 2; }'
CUDA_CORE = Owner(
    "cuda.core", "cuda.core",
    f"""
from cuda.core import Program, ProgramOptions
from cuda.core.utils import FileStreamProgramCache
kept = FileStreamProgramCache()
made = Program({_SCALE!r}, "c++", ProgramOptions(arch="sm_90")).compile("cubin", cache=kept)
assert b"scale" in made.code
""",
    {"XDG_CACHE_HOME": "{home}"}, place="cuda-python/program-cache",
)  # fmt: skip
CUPY = Owner(
    "cupy", "cupy",
    f"""
from cupy.cuda import compiler

class Module:  # one that needs no driver
    _set_mapping = lambda *_: None
    def load(self, cubin):
        assert b"scale" in cubin and cubin.startswith(b"\\x7fELF")

compiler.function = type("", (), {{"Module": Module}})
compiler._get_arch_for_options_for_nvrtc = lambda arch=None: ("-arch=sm_90", "cubin")
compiler._compile_module_with_cache({_SCALE!r}, (), arch="90")
""",
    {"CUPY_CACHE_DIR": "{home}/cache"},
)  # fmt: skip
CUTILE = Owner(
    "cutile", "cutile_cache",
    """
import cuda.tile as ct
from cuda.tile import _compile
from cuda.tile.compilation import ArrayConstraint, CallingConvention, ConstantConstraint, KernelSignature

@ct.kernel
def scale(x, n: ct.Constant[int]):
    at = (ct.bid(0),)
    ct.store(x, index=at, tile=ct.load(x, index=at, shape=(n,)) * 2)

array = ArrayConstraint(
    ct.float32, ndim=1, index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=(),
    may_alias_internally=False,
)
how = KernelSignature([array, ConstantConstraint(16)], CallingConvention.cutile_python_v1())
made = _compile.compile_tile(scale._annotated_function, [how], sm_arch="sm_100")
assert made.cubin.startswith(b"\x7fELF")
""",
    {"CUDA_TILE_CACHE_DIR": "{home}/cache"},
)  # fmt: skip
CUTE_DSL = Owner(
    "cute-dsl", "cutlass",
    """
import cutlass, cutlass.cute as cute

@cute.kernel
def show(x: cutlass.Int32):
    at, _, _ = cute.arch.thread_idx()
    cute.printf("%d", at + x)

@cute.jit
def run(x: cutlass.Int32):
    show(x).launch(grid=(1, 1, 1), block=(32, 1, 1))

try:  # as no driver launches what was compiled
    run(3)
except Exception as error:
    assert "driver" in str(error), error
""",
    {"CUTE_DSL_CACHE_DIR": "{home}/cache", "CUTE_DSL_ARCH": "sm_90a"},
)  # fmt: skip
DRJIT = Owner(
    "drjit", "drjit",
    """
import drjit as dr
from drjit.llvm import Float
assert abs(dr.sum(dr.sin(dr.arange(Float, 64)) * 3)[0] - 0.2897575) < 1e-4
""",
    {"DRJIT_CACHE_DIR": "{home}/cache", "DRJIT_LIBLLVM_PATH": "/usr/lib/x86_64-linux-gnu/libLLVM-15.so.1"},
)  # fmt: skip
KEOPS = Owner(
    "keops", "pykeops",
    """
import numpy as np
from pykeops.numpy import LazyTensor
x, y = LazyTensor(np.ones((5, 1, 3))), LazyTensor(np.zeros((1, 7, 3)))
assert ((x - y) ** 2).sum(-1).sum(axis=1)[0] == 21
""",
    {"KEOPS_CACHE_FOLDER": "{home}/cache"},
)  # fmt: skip
PYFR = Owner(
    "pyfr", "pyfr",
    """
from ctypes import c_int
from pyfr.inifile import Inifile
from pyfr.backends.openmp.compiler import OpenMPCompiler
made = OpenMPCompiler(Inifile()).build("int twice(int x) { return 2 * x; }")
assert made.function("twice", c_int, [c_int])(3) == 6
""",
    {"PYFR_OMP_CACHE_DIR": "{home}/cache/omp"},
)  # fmt: skip
QT = Owner(
    "qt", "PySide6",
    """
from PySide6.QtGui import QGuiApplication, QOffscreenSurface, QOpenGLContext
from PySide6.QtOpenGL import QOpenGLShader, QOpenGLShaderProgram
app, context, surface = QGuiApplication(["peer"]), QOpenGLContext(), QOffscreenSurface()
surface.create()
assert context.create() and context.makeCurrent(surface)
made, kinds = QOpenGLShaderProgram(), QOpenGLShader.ShaderTypeBit
assert made.addCacheableShaderFromSourceCode(kinds.Vertex, "void main() { gl_Position = vec4(0.0); }")
assert made.addCacheableShaderFromSourceCode(kinds.Fragment, "void main() { gl_FragColor = vec4(1.0); }")
assert made.link()
""",
    {"XDG_CACHE_HOME": "{home}", "QT_QPA_PLATFORM": "offscreen", "LIBGL_ALWAYS_SOFTWARE": "1"},
    place="peer/qtshadercache-x86_64-little_endian-lp64",
)  # fmt: skip
"""For a display, such as that of xvfb-run."""
_OF_COMMANDS = """
import os, subprocess
done = subprocess.run({words!r}, capture_output=True, text=True, timeout=100)
assert not done.returncode, done.stdout + done.stderr
"""
_MPV = (
    "mpv --no-config --no-audio --vo=gpu --gpu-api=opengl --gpu-sw=yes --gpu-dumb-mode=no "
    "--gpu-shader-cache-dir=cache av://lavfi:testsrc=duration=1:rate=5"
)
MPV = Owner("mpv", "subprocess", _OF_COMMANDS.format(words=_MPV.split()), {"LIBGL_ALWAYS_SOFTWARE": "1"})
"""For a display as well."""
MODULAR = Owner(
    "modular", "mojo",
    """
import subprocess, sys
from pathlib import Path
Path("scale.mojo").write_text("def main():\\n    var x: Int = 3\\n    print(x * 7)\\n")
done = subprocess.run([Path(sys.executable).with_name("mojo"), "run", "scale.mojo"], capture_output=True)
assert done.stdout == b"21\\n", done
""",
    {"MODULAR_CACHE_DIR": "{home}/cache", "HOME": "{home}"},
)  # fmt: skip
MAX = Owner(
    "modular", "max",
    """
import numpy as np
from max.driver import CPU
from max.dtype import DType
from max.engine import InferenceSession
from max.graph import DeviceRef, Graph, TensorType, ops
kind = TensorType(DType.float32, (4,), device=DeviceRef.CPU())
with Graph("adding", input_types=[kind, kind]) as graph:
    graph.output(ops.add(*(one.tensor for one in graph.inputs)))
one = np.ones(4, np.float32)
assert (InferenceSession(devices=[CPU()]).load(graph).execute(one, one)[0].to_numpy() == 2).all()
""",
    {"MODULAR_CACHE_DIR": "{home}/cache", "HOME": "{home}"},
)  # fmt: skip
ALL: Mapping[str, Owner] = {
    one.package if one is MAX else one.name: one
    for one in (
        WARP, NUMBA, PYTOOLS, OPENCV, CLESPERANTO, OPENVINO, JAX, TAICHI, GSTAICHI, QUADRANTS, TRITON,
        TINYGRAD, TVM_FFI, TORCH_EXTENSIONS, INDUCTOR, POCL, PYOPENCL, HASHCAT, SYCL, CUDA_CORE, CUPY, CUTILE,
        CUTE_DSL, DRJIT, KEOPS, PYFR, HIDET, FLYDSL, QT, MPV, MODULAR, MAX,
    )
}  # fmt: skip
