"""How long many kernels take one by one and as a batch.

    python -m tests.benchmarks.batch_figures pocl intel nvrtc

Not a test. Every figure is of a process of its own, in milliseconds, the least of ``--runs``: from the
empty cache until all kernels are had (compile), the same from the full one (warm), and once more in
another context of that process, where every entry is in memory (load). Imports and contexts are not counted.
OpenCL's platforms are those that OCL_ICD_VENDORS names. NVRTC has no device here to load on.
"""

# ruff: noqa: T201 - it prints a table

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

_PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}
_BODY = (
    "for (int i = 0; i < {0}; ++i) o[i] = o[i] * {0}.5f + sqrt(o[i + 1]); if (o[0] > {0}) o[1] = exp(o[2]);"
)
_OPENCL = "kernel void k{0}(global float *o) {{ " + _BODY + " }}\n"
_CUDA = 'extern "C" __global__ void k{0}(float *o) {{ ' + _BODY + " }}\n"


def _opencl(platform: str, number: int, way: str) -> Callable[[], Callable[[], object]]:
    import pyopencl as cl

    from gpucache.opencl import Batch, build_program

    device = next(each for each in cl.get_platforms() if each.name.startswith(platform)).get_devices()[0]
    names = [f"k{at}" for at in range(number)]
    sources = [_OPENCL.format(at) for at in range(number)]

    def ready() -> Callable[[], object]:
        context = cl.Context([device])

        def single() -> object:
            built = [build_program(context, text) for text in sources]
            return [cl.Kernel(program, name) for program, name in zip(built, names, strict=True)]

        def batch() -> object:
            wanted = Batch(context)
            return [routine.kernel() for routine in [wanted.add(text) for text in sources]]

        return batch if way == "batch" else single

    return ready


def _nvrtc(number: int, way: str) -> Callable[[], Callable[[], object]]:
    from gpucache.cuda import Batch, compile_program

    sources = [_CUDA.format(at) for at in range(number)]

    def single() -> object:
        return [compile_program(text, target="sm_90") for text in sources]

    def batch() -> object:
        wanted = Batch(target="sm_90")
        return [routine.program for routine in [wanted.add(text) for text in sources]]

    return lambda: batch if way == "batch" else single


def _child(where: str, number: int, way: str) -> None:
    ready = _nvrtc(number, way) if where == "nvrtc" else _opencl(_PLATFORMS[where], number, way)
    told = []
    for _ in range(2):
        run = ready()
        began = time.perf_counter_ns()
        kept = run()
        told.append((time.perf_counter_ns() - began) / 1e6)
        del kept
    print(json.dumps(told))


def _run(arguments: list[str], **environment: str) -> str:
    settings = {**os.environ, "POCL_KERNEL_CACHE": "1", **environment}
    command = [sys.executable, "-W", "ignore", "-m", *arguments]
    return subprocess.run(command, env=settings, check=True, stdout=subprocess.PIPE, text=True).stdout


def _figures(where: str, number: int, way: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        own = {"GPUCACHE_DIR": f"{folder}/cache", "GPUCACHE_MEMORY_BYTES": "256M"}
        child = ["tests.benchmarks.batch_figures", where, "--child", way, "--kernels", str(number)]
        pocl = [f"{folder}/{name}" for name in ("cold", "warm")]
        for place in pocl:
            os.mkdir(place)  # noqa: PTH102 - a name
        compiled, _ = json.loads(_run(child, POCL_CACHE_DIR=pocl[0], **own))
        if where == "pocl":
            _run(["gpucache", "--quiet", "warm", "--misses"], POCL_CACHE_DIR=pocl[0], **own)
        warm, load = json.loads(_run(child, POCL_CACHE_DIR=pocl[1], GPUCACHE_REQUIRE="1", **own))
    return {"compile": compiled, "warm": warm, "load": load}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("where", nargs="+", choices=[*_PLATFORMS, "nvrtc"])
    parser.add_argument("--kernels", nargs="+", type=int, default=[1, 10, 100])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--child", choices=["single", "batch"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return _child(given.where[0], given.kernels[0], given.child)
    print("| where | kernels | compile: single | batch | warm: single | batch | load: single | batch |")
    print("|---|---|---|---|---|---|---|---|")
    for where in given.where:
        for number in given.kernels:
            least: dict[str, dict[str, float]] = {}
            for way in ("single", "batch"):
                runs: list[dict[str, Any]] = [_figures(where, number, way) for _ in range(given.runs)]
                least[way] = {phase: min(run[phase] for run in runs) for phase in runs[0]}
            cells = [f"{least[way][phase]:.1f}" for phase in ("compile", "warm", "load") for way in least]
            print(f"| {where} | {number} | {' | '.join(cells)} |", flush=True)
    return None


if __name__ == "__main__":
    main()
