"""Small programs that build one kernel, launch it and print its result, one for each way to a compiler.

A program of CUDA takes ``launch``, or ``compile``: then it builds for ``sm_90`` without a device and prints
the digest of the binary. A program of OpenCL takes the name of its platform, and launches. The others take
nothing and need a GPU. A launch prints ``RESULT``.
"""

from collections.abc import Mapping

RESULT = "[0.0, 2.0, 4.0, 6.0]\n"
INTEL, NVIDIA = "Intel(R) OpenCL", "NVIDIA CUDA"

CUDA_BEGIN = """
import ctypes, hashlib, sys
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch

LAUNCHES = sys.argv[1] == "launch"
ARCH = Device().arch if LAUNCHES else "90"
PLAIN = 'extern "C" __global__ void scale(float *y) { y[threadIdx.x] *= 2; }'
SOURCE = "template <typename T> __global__ void scale(T *y) { y[threadIdx.x] *= 2; }"
NAMES = ["scale<float>"]

def show(code, name=NAMES[0]):
    if not LAUNCHES:
        print(hashlib.sha256(code.code).hexdigest())
        return
    device = Device()
    device.set_current()
    stream = device.create_stream()
    memory = LegacyPinnedMemoryResource().allocate(16)
    values = (ctypes.c_float * 4).from_address(int(memory.handle))
    values[:] = range(4)
    launch(stream, LaunchConfig(grid=1, block=4), code.get_kernel(name), memory)
    stream.sync()
    print(list(values))

def program(source=SOURCE):
    return Program(source, "c++", ProgramOptions(arch=f"sm_{ARCH}"))
"""
_COMPILE_PROGRAM = """
from gpucache import cuda
show(cuda.compile_program(SOURCE, target=f"%s_{ARCH}", name_expressions=NAMES))
cuda.flush()
"""
CUDA: Mapping[str, str] = {
    "compile_program": CUDA_BEGIN + _COMPILE_PROGRAM % "sm",
    "compile_program, PTX": CUDA_BEGIN + _COMPILE_PROGRAM % "compute",
    "Batch": CUDA_BEGIN
    + """
from gpucache import cuda
batch = cuda.Batch(target=f"sm_{ARCH}")
for name in ("first", "second"):
    last = batch.add(SOURCE.replace("scale", name), name_expressions=[f"{name}<float>"])
show(last.program, "second<float>")
cuda.flush()
""",
    "ProgramCache": CUDA_BEGIN
    + """
from gpucache.cuda import ProgramCache
show(program(PLAIN).compile("cubin", cache=ProgramCache()), "scale")
""",
}
"""Through our library."""
CUDA_CORE = CUDA_BEGIN + 'show(program().compile("cubin", name_expressions=NAMES))\n'
CUDA_CORE_CACHED = (
    CUDA_BEGIN
    + """
from cuda.core.utils import FileStreamProgramCache
show(program(PLAIN).compile("cubin", cache=FileStreamProgramCache(sys.argv[2])), "scale")
"""
)

_OPENCL = """
import sys, warnings
warnings.simplefilter("ignore")  # Intel's compiler always says something
import numpy as np
import pyopencl as cl

platform = next(one for one in cl.get_platforms() if one.name == sys.argv[1])
context = cl.Context(platform.get_devices()[:1])
queue = cl.CommandQueue(context)
SOURCE = "kernel void scale(global float *y) { y[get_global_id(0)] *= 2; }"

def show(program):
    values = np.arange(4, dtype=np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    memory = cl.Buffer(context, flags, hostbuf=values)
    program.scale(queue, (4,), (4,), memory)
    cl.enqueue_copy(queue, values, memory)
    print(values.tolist())
"""
OPENCL: Mapping[str, str] = {
    "build_program": f"{_OPENCL}from gpucache import opencl\nshow(opencl.build_program(context, SOURCE))\n"
    "opencl.flush()\n",
    "PyOpenCL after install()": f"{_OPENCL}from gpucache import opencl\nopencl.install()\n"
    "show(cl.Program(context, SOURCE).build())\nopencl.flush()\n",
}
"""Through our library."""
PYOPENCL = f"{_OPENCL}show(cl.Program(context, SOURCE).build())\n"

_CUPY = """
import cupy
source = 'extern "C" __global__ void scale(float *y) { y[threadIdx.x] *= 2; }'
y = cupy.arange(4, dtype=cupy.float32)
cupy.RawKernel(source, "scale")((1,), (4,), (y,))
print(y.tolist())
"""
CUPY = _CUPY
CUPY_INSTALLED = f"import gpucache.cupy\ngpucache.cupy.install()\n{_CUPY}"

TRITON = """
import torch, triton
import triton.language as tl

@triton.jit
def scale(y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(y + at, at < n) * 2, at < n)

y = torch.arange(4, dtype=torch.float32, device="cuda")
scale[(1,)](y, 4, BLOCK=16)
print(y.tolist())
"""
"""Its file has to stay while it runs, as Triton reads the sources of kernels from their files."""
TRITON_OURS = {"TRITON_CACHE_MANAGER": "gpucache.triton:CacheManager"}

JAX = """
import sys
import jax
if jax.default_backend() != "gpu":
    sys.exit("JAX sees no GPU")
print(jax.jit(lambda y: y * 2)(jax.numpy.arange(4.0)).tolist())
"""
