"""A whole start of a program whose one kernel the library has: imports, the first hit, the process.

Each side is a fresh process without a compile: the caches are filled beforehand. The time of a step inside a
start (an import, the first hit) is measured in the process itself, and shown next to the step that every
program pays for.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.library_hit import stable_place
from tests.benchmarks.measure import CHECKOUT, Comparison, Effort, Sample, Side, compare, process

_STEP = """
import sys, time
def step(what):
    began = time.perf_counter_ns(), time.thread_time_ns()
    what()
    ended = time.perf_counter_ns(), time.thread_time_ns()
    print(ended[0] - began[0], ended[1] - began[1])
"""
_OPENCL = """
import sys, warnings
warnings.simplefilter("ignore")  # Intel's compiler always says something
import pyopencl as cl
"""
_CONTEXT = """
[platform] = [each for each in cl.get_platforms() if each.name == "Intel(R) OpenCL"][:1]
context = cl.Context(platform.get_devices()[:1])
source = "kernel void scale(global float *x, float a) { x[get_global_id(0)] *= a; }"
"""
OPENCL = _OPENCL + _CONTEXT
"""The part of a program before it builds; ``CUDA`` likewise."""
_STARTS = {
    "build_program": """
from gpucache.opencl import build_program
build_program(context, source).scale
""",
    "PyOpenCL after install()": """
import gpucache.opencl
gpucache.opencl.install()
cl.Program(context, source).build().scale
""",
    "PyOpenCL's own cache": "cl.Program(context, source).build(cache_dir=sys.argv[1]).scale\n",
    "PyOpenCL without a cache": "cl.Program(context, source).build(cache_dir=False).scale\n",
}
CUDA = """
import sys
import cuda.core
from cuda.core import Program, ProgramOptions
from cuda.core.utils import FileStreamProgramCache
source = 'extern "C" __global__ void scale(float *x, float a) { x[threadIdx.x] *= a; }'
def compiled(cache=None):
    return Program(source, "c++", options=ProgramOptions(arch="sm_90")).compile("cubin", cache=cache)
"""
_CUDA_STARTS = {
    "compile_program": """
from gpucache.cuda import compile_program
compile_program(source, target="sm_90")
""",
    "cuda.core's file cache": "compiled(FileStreamProgramCache(sys.argv[1]))\n",
    "cuda.core without a cache": "compiled()\n",
}
_PROGRAM_CACHE = """
from gpucache.cuda import ProgramCache
compiled(ProgramCache())
"""
_HIT = "from gpucache.opencl import build_program\n"
_CUDA_HIT = "from gpucache.cuda import compile_program\n"
_LOAD = """
binary = open(sys.argv[1], "rb").read()
def load():
    program = cl._cl._Program(context, context.devices, [binary])
    program._build(options=b"", devices=context.devices)
"""
_SAVED = """
program = cl.Program(context, source).build(cache_dir=False)
open(sys.argv[1], "wb").write(program.get_info(cl.program_info.BINARIES)[0])
"""


def run(effort: Effort) -> Iterator[Comparison]:
    """PyOpenCL on Intel's CPU runtime and cuda.core: whole starts, then imports, then first hits."""
    with stable_place() as place:
        yield from _opencl(place, effort)
        yield from _cuda(place, effort)


def _opencl(place: Path, effort: Effort) -> Iterator[Comparison]:
    title = "A start of a PyOpenCL program with one kernel"
    if absent := missing(OPENCL):
        yield Comparison(title, (), {"PyOpenCL on Intel's runtime": absent})
        return
    sides = {name: _child(OPENCL + text, place / "peer") for name, text in _STARTS.items()}
    yield compare(title, sides, effort.rounds)
    imported = {"import gpucache.opencl": _step(_OPENCL, "__import__('gpucache.opencl')")}
    yield compare("An import after PyOpenCL's", imported, effort.rounds)
    _child(OPENCL + _SAVED, place / "binary")()
    hits = {
        "build_program": _step(_OPENCL + _HIT + _CONTEXT, "build_program(context, source)"),
        "the driver's load alone": _step(OPENCL + _LOAD, "load()", place / "binary"),
    }
    yield compare("The first hit of a PyOpenCL program", hits, effort.rounds)


def _cuda(place: Path, effort: Effort) -> Iterator[Comparison]:
    title = "A start of a cuda.core program with one kernel"
    if absent := missing(CUDA):
        yield Comparison(title, (), {"cuda.core": absent})
        return
    sides = {name: _child(CUDA + text, place / "cuda") for name, text in _CUDA_STARTS.items()}
    yield compare(title, sides, effort.rounds)
    behind = {"cuda.core with ProgramCache": _child(CUDA + _PROGRAM_CACHE), **sides}
    del behind["compile_program"]
    yield compare("The same with our cache behind cuda.core", behind, effort.rounds)
    imported = {"import gpucache.cuda": _step(CUDA, "__import__('gpucache.cuda')")}
    yield compare("An import after cuda.core's", imported, effort.rounds)
    asked = "from cuda.bindings import nvrtc\n"
    hits = {
        "compile_program": _step(CUDA + asked + _CUDA_HIT, "compile_program(source, target='sm_90')"),
        "NVRTC's load alone": _step(CUDA + asked, "nvrtc.nvrtcVersion()"),
        "cuda.core's file cache": _step(
            CUDA, "compiled(FileStreamProgramCache(sys.argv[1]))", place / "cuda"
        ),
    }
    yield compare("The first hit of a cuda.core program", hits, effort.rounds)


def missing(script: str) -> str:
    """The last line of the error with which a script ends; empty if it runs."""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def _child(script: str, *arguments: Any) -> Side:
    return process([sys.executable, "-c", script, *arguments])


def _step(before: str, what: str, *arguments: Any) -> Side:
    """The time of one step of a fresh process, measured in that process."""
    command = [sys.executable, "-c", f"{_STEP}{before}step(lambda: {what})", *arguments]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def side() -> Sample:
        done = subprocess.run(command, cwd=CHECKOUT, env=kept, check=True, stdout=subprocess.PIPE)
        wall, cpu = map(int, done.stdout.split())
        return Sample(wall, cpu)

    return side
