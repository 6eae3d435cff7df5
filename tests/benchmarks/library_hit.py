"""A hit by the library: from a program's source to bytes or a program.

Unless noted otherwise nothing is kept in memory, so that each hit is read from disk.
"""

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gpucache.engine.machine import select_target
from gpucache.errors import GpucacheError
from gpucache.probe.ask import ask
from tests import pocl
from tests.benchmarks.measure import Comparison, Effort, Sample, Side, calls, compare, each

_CUDA = 'extern "C" __global__ void scale(float *x, float a) { x[threadIdx.x] *= a; }\n'
_PROGRAMS = 200
"""More than a process keeps the keys of."""
_OPENCL = "kernel void scale(global float *x, float a) { x[get_global_id(0)] *= a; }\n"
_INTEL = "Intel(R) OpenCL"


def run(effort: Effort) -> Iterator[Comparison]:
    """CUDA without includes, a cache behind cuda.core, and OpenCL on the CPU runtimes of Intel and PoCL."""
    with stable_place() as place:
        try:
            import cuda.core  # noqa: F401
        except ImportError as error:
            yield Comparison("A hit of a CUDA program", (), {"cuda.core": str(error)})
        else:
            yield _cuda_each_once(place, effort)
            yield from _cuda_again(place, effort)
            yield _program_cache(place, effort)
        yield from _opencl(place, effort)


@contextmanager
def stable_place() -> Iterator[Path]:
    """A directory for caches, with the settings of this process that lead there."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"GPUCACHE_DIR": f"{folder}/gpucache", "GPUCACHE_MEMORY_BYTES": "0"}
        if "OCL_ICD_VENDORS" not in os.environ:
            vendors = Path(folder, "vendors")
            vendors.mkdir()
            library = Path(sys.prefix, "lib", "libintelocl.so")
            (vendors / "intel.icd").write_text(f"{library}\n")
            pocl.name_pocl(vendors)
            settings |= {"OCL_ICD_VENDORS": str(vendors), "POCL_CACHE_DIR": f"{folder}/pocl"}
        with patch.dict(os.environ, settings), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Intel's compiler always says something
            yield Path(folder)


def _cuda_each_once(place: Path, effort: Effort) -> Comparison:
    from cuda.core.utils import FileStreamProgramCache

    from gpucache.cuda import compile_program

    peer = FileStreamProgramCache(place / "each")
    sources = [
        _CUDA.replace("scale", f"scale_{number}") for number in range(2 if effort.small else _PROGRAMS)
    ]
    ours = [partial(compile_program, source, target="sm_90") for source in sources]
    theirs = [_compile(peer, source) for source in sources]
    return compare(
        f"A hit of each of {len(sources)} CUDA programs without includes",
        {"compile_program": each(ours), "Program.compile(cache=)": each(theirs)},
        effort.rounds,
    )


def _cuda_again(place: Path, effort: Effort) -> Iterator[Comparison]:
    """From disk next to a peer's files, and from memory next to its memory."""
    from cuda.core.utils import FileStreamProgramCache, InMemoryProgramCache

    from gpucache.cuda import compile_program

    def kept_in_memory() -> Sample:
        with patch.dict(os.environ):
            del os.environ["GPUCACHE_MEMORY_BYTES"]
            return calls(_warm(lambda: compile_program(_CUDA, target="sm_90")), count)()

    count = effort.calls(500)
    title = "A hit of one CUDA program without includes, again and again"
    from_disk: dict[str, Side] = {
        "compile_program": calls(_warm(lambda: compile_program(_CUDA, target="sm_90")), count),
        "Program.compile(cache=)": calls(_warm(_compile(FileStreamProgramCache(place / "peer"))), count),
    }
    yield compare(title, from_disk, effort.rounds)
    from_memory: dict[str, Side] = {
        "compile_program, kept in memory": kept_in_memory,
        "cuda.core's InMemoryProgramCache": calls(_warm(_compile(InMemoryProgramCache())), count),
    }
    yield compare(f"{title}, from memory", from_memory, effort.rounds)


def _program_cache(place: Path, effort: Effort) -> Comparison:
    from cuda.core.utils import FileStreamProgramCache

    from gpucache.cuda import ProgramCache

    sides = {
        "cuda.core with ProgramCache": _warm(_compile(ProgramCache())),
        "cuda.core with its own": _warm(_compile(FileStreamProgramCache(place / "own"))),
    }
    count = effort.calls(500)
    return compare(
        "A hit of a cache behind cuda.core",
        {name: calls(action, count) for name, action in sides.items()},
        effort.rounds,
    )


def _compile(cache: Any, source: str = _CUDA) -> Callable[[], object]:
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(arch="sm_90")
    return lambda: Program(source, "c++", options=options).compile("cubin", cache=cache)


def _opencl(place: Path, effort: Effort) -> Iterator[Comparison]:
    try:
        import pyopencl as cl

        platforms = {each.name: each for each in reversed(cl.get_platforms())}  # the first of a name counts
    except (ImportError, cl.Error) as error:
        yield Comparison("A hit of an OpenCL program", (), {"PyOpenCL": str(error)})
        return
    if _INTEL in platforms:
        context = cl.Context(platforms[_INTEL].get_devices()[:1])
        fft = (files("gpucache") / "examples" / "fft.cl").read_text()
        for title, source in (("one kernel", _OPENCL), ("fft.cl", fft)):
            yield _opencl_of(title, source, context, place, effort)
        yield _opencl_each_once(context, place, effort)
    else:
        yield Comparison("A hit of an OpenCL program", (), {_INTEL: "it is not installed"})
    try:
        row = select_target("opencl:pocl", ask(["opencl"]))  # of several the newest that can compile
    except GpucacheError as error:
        yield Comparison("A hit of an OpenCL program", (), {pocl.PLATFORM: str(error)})
        return
    every = (device for each in cl.get_platforms() for device in each.get_devices())
    device = next(
        one for one in every if (one.name.strip(), one.driver_version) == (row.name, row.driver_version)
    )
    yield _pocl(cl.Context([device]), str(row.target), place, effort)


def _pocl(context: Any, target: str, place: Path, effort: Effort) -> Comparison:
    """With the first launch, for which PoCL compiles, and in which its own cache of kernels hits."""
    import numpy as np
    import pyopencl as cl

    from gpucache.opencl import build_program

    source = place / "scale.cl"
    source.write_text(_OPENCL)
    warm = [
        sys.executable,
        "-m",
        "gpucache",
        "warm",
        str(source),
        "--target",
        target,
        "--local-size",
        "64",
    ]
    subprocess.run(warm, check=True, capture_output=True)
    queue = cl.CommandQueue(context)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * 64)
    programs = {
        "build_program": lambda: build_program(context, _OPENCL, local_sizes=[64]),
        "PoCL's own cache": lambda: cl.Program(context, _OPENCL).build(cache_dir=False),
    }

    def launched(program: Callable[[], Any]) -> None:
        program().scale(queue, (64,), (64,), buffer, np.float32(1)).wait()

    return compare(
        "A hit of an OpenCL program with its first launch, on PoCL",
        {
            name: calls(_warm(partial(launched, program)), effort.calls(20))
            for name, program in programs.items()
        },
        effort.rounds,
    )


def _opencl_each_once(context: Any, place: Path, effort: Effort) -> Comparison:
    import pyopencl as cl

    from gpucache.opencl import build_program, flush

    count, kept = 2 if effort.small else _PROGRAMS, str(place / "pyopencl")
    sources = [_OPENCL.replace("scale", f"scale_{number}") for number in range(count)]
    sides: dict[str, list[Callable[[], object]]] = {
        "build_program": [partial(build_program, context, source) for source in sources],
        "PyOpenCL's own cache": [
            partial(lambda source: cl.Program(context, source).build(cache_dir=kept), source)
            for source in sources
        ],
    }
    for action in sides["build_program"]:
        action()
    flush()
    return compare(
        f"A hit of each of {count} OpenCL programs without includes",
        {name: each(actions) for name, actions in sides.items()},
        effort.rounds,
    )


def _opencl_of(title: str, source: str, context: Any, place: Path, effort: Effort) -> Comparison:
    import pyopencl as cl

    from gpucache.opencl import build_program

    program = build_program(context, source)
    binaries = [program.get_info(cl.program_info.BINARIES)[0]]
    sides = {
        "build_program": _warm(lambda: build_program(context, source)),
        "PyOpenCL's own cache": _warm(
            lambda: cl.Program(context, source).build(cache_dir=str(place / "pyopencl"))
        ),
        "the driver's load alone": lambda: cl.Program(context, context.devices, binaries).build(),
    }
    count = effort.calls(50)
    return compare(
        f"A hit of an OpenCL program: {title}",
        {name: calls(action, count) for name, action in sides.items()},
        effort.rounds,
    )


def _warm(action: Callable[[], object]) -> Callable[[], object]:
    """An action that has been done once, so that each later time is a hit."""
    action()
    return action
