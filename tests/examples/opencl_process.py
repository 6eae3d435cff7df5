"""Runs the OpenCL examples on one platform; started as a child process so that drivers stay out of the tests.

Takes ``pocl`` or ``intel``, and a file. Writes the inputs and results of every program
to it as NumPy arrays, and under ``first launches`` how many launches a bench would make of each.
"""

import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyopencl as cl

from gpucache.backends.interface import Compilation
from gpucache.backends.opencl import BACKEND, compiler, platforms
from gpucache.examples import manifest_path
from gpucache.manifest import read_manifest
from gpucache.model import BuildRequest, Language, Target

N = 10_000
COUNT = 3  # signals to transform; a fourth must stay as it is


class Runner:
    """Builds as gpucache does, launches as a program does."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._context = cl.Context([device])
        self._queue = cl.CommandQueue(self._context)

    def build(self, request: BuildRequest, compilation: Compilation) -> Any:
        return cl.Program(compiler.build_source(self._context, self._device, request, compilation))

    def launch(self, kernel: Any, groups: int, local: int, *arguments: Any) -> None:
        """Arrays are copied in and back; everything else is handed over as it is."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        arrays = {
            index: (array, cl.Buffer(self._context, flags, hostbuf=array))
            for index, array in enumerate(arguments)
            if isinstance(array, np.ndarray)
        }
        kernel.set_args(*(arrays[i][1] if i in arrays else given for i, given in enumerate(arguments)))
        cl.enqueue_nd_range_kernel(self._queue, kernel, (groups * local,), (local,))
        for array, buffer in arrays.values():
            cl.enqueue_copy(self._queue, array, buffer)
        self._queue.finish()


def saxpy(runner: Runner, program: Any, variant: str, found: dict[str, Any]) -> None:
    dtype = np.float32 if "float" in variant else np.int32
    random = np.random.default_rng(1)
    x, y = (random.integers(-100, 100, N).astype(dtype) for _ in range(2))
    result = y.copy()
    # Four elements for each work item: these groups cover N and a little more.
    runner.launch(program.saxpy, N // 256 + 1, 64, dtype(3), x, result, np.uint32(N - 1))
    found |= {
        f"saxpy {dtype.__name__} {name}": array for name, array in (("x", x), ("y", y), ("result", result))
    }


def reduce(runner: Runner, program: Any, variant: str, found: dict[str, Any]) -> None:
    values = np.random.default_rng(2).uniform(-2, 1, N).astype(np.float32)
    values[N - 1] = 1000  # beyond n
    found["reduce values"] = values
    for name, kernel in (("sum", program.reduce_sum), ("maximum", program.reduce_maximum)):
        for local in (64, 256, 48):  # 48: no power of two
            partials, result = np.zeros(7, np.float32), np.zeros(1, np.float32)
            scratch = cl.LocalMemory(4 * local)
            runner.launch(kernel, 7, local, values, partials, scratch, np.uint32(N - 1))
            runner.launch(kernel, 1, local, partials, result, scratch, np.uint32(7))
            found[f"reduce {name} {local}"] = result


def fft(runner: Runner, program: Any, variant: str, found: dict[str, Any]) -> None:
    random = np.random.default_rng(3)
    for points in (256, 512, 1024, 2048, 4096):
        signals = random.standard_normal((COUNT + 1, 2 * points), np.float32).view(np.complex64)
        for name in (f"fft_{points}", f"inverse_fft_{points}"):
            result = signals.copy()
            runner.launch(getattr(program, name), COUNT + 1, 64, result, np.uint32(COUNT))
            found |= {f"{name} signals": signals, f"{name} result": result}


def first_launches(request: BuildRequest, compilation: Compilation) -> list[str]:
    """What a bench launches on zeros, after launching it; the driver's words where it refuses."""
    launches = BACKEND.launches(request, compilation)
    session = BACKEND.open_session(request.target)
    session.build(request, compilation)
    session.create_kernels()
    session.set_arguments(launches)
    try:
        session.launch()
    except cl.Error as error:
        return [str(error)]
    return [f"{one.kernel} {one.local_size[0]}" for one in launches]


def requests(target: Target) -> Iterator[BuildRequest]:
    for spec in read_manifest(manifest_path()):
        if spec.program.language is not Language.OPENCL_C:
            continue
        for defines in spec.variants:
            written = tuple(f"{name}={value}" for name, value in defines)
            yield BuildRequest(
                program=spec.program,
                target=target,
                options=(*spec.options, *(f"-D{define}" for define in written)),
                include_dirs=spec.include_dirs,
                local_sizes=spec.local_sizes,
                variant=" ".join(written),
            )


def main() -> None:
    warnings.simplefilter("ignore")
    implementation, path = sys.argv[1:]
    target, toolchain = next(
        (device.target, device.toolchain)
        for device in BACKEND.devices()
        if device.target and device.toolchain and device.toolchain.implementation == implementation
    )
    runs = {"saxpy.cl": saxpy, "reduce.cl": reduce, "fft.cl": fft}
    runner = Runner(platforms.find(target))
    found: dict[str, Any] = {}
    launches: dict[str, list[str]] = {}
    for request in requests(target):
        compilation = BACKEND.plan(request, toolchain, {})
        runs[request.program.name](runner, runner.build(request, compilation), request.variant, found)
        launches[f"{request.program.name} {request.variant}".strip()] = first_launches(request, compilation)
    found["first launches"] = np.array(json.dumps(launches))
    np.savez(path, **found)


if __name__ == "__main__":
    main()
