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
from gpucache.bench.sources import find_launches, open_session
from gpucache.examples import manifest_path
from gpucache.manifest import read_manifest
from gpucache.model import BuildRequest, Language, Target

N = 10_000
COUNT = 3  # signals to transform; a fourth must stay as it is
MANIFESTS = ("gpucache.toml", "large.toml")

Extent = int | tuple[int, ...]


class Runner:
    """Builds like gpucache, launches like a program."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._context = cl.Context([device])
        self._queue = cl.CommandQueue(self._context)

    def build(self, request: BuildRequest, compilation: Compilation) -> Any:
        return cl.Program(compiler.build_source(self._context, self._device, request, compilation))

    def launch(self, kernel: Any, groups: Extent, local: Extent, *arguments: Any) -> None:
        """Arrays are copied in and back; everything else is passed unchanged."""
        groups, local = _extents(groups), _extents(local)
        size = tuple(count * items for count, items in zip(groups, local, strict=True))
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        arrays = {
            index: (array, cl.Buffer(self._context, flags, hostbuf=array))
            for index, array in enumerate(arguments)
            if isinstance(array, np.ndarray)
        }
        kernel.set_args(*(arrays[i][1] if i in arrays else given for i, given in enumerate(arguments)))
        cl.enqueue_nd_range_kernel(self._queue, kernel, size, local)
        for array, buffer in arrays.values():
            cl.enqueue_copy(self._queue, array, buffer)
        self._queue.finish()


def _extents(given: Extent) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else given


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
    for kernel in program.all_kernels():
        name = kernel.function_name
        points = int(name.rpartition("_")[2])
        signals = random.standard_normal((COUNT + 1, 2 * points), np.float32).view(np.complex64)
        result = signals.copy()
        runner.launch(kernel, COUNT + 1, 64, result, np.uint32(COUNT))
        own = f"{variant} {name}".strip()
        found |= {f"{own} signals": signals, f"{own} result": result}


def stencil(runner: Runner, program: Any, variant: str, found: dict[str, Any]) -> None:
    random = np.random.default_rng(4)
    shape = (45, 70)  # neither fits a local size
    previous, current, speed = (random.uniform(0, 1, shape).astype(np.float32) for _ in range(3))
    found |= {"stencil previous": previous, "stencil current": current, "stencil speed": speed}
    for local in ((16, 16), (32, 8), (5, 3)):
        result = previous.copy()
        tile = cl.LocalMemory(4 * (local[0] + 8) * (local[1] + 8))
        groups = tuple(-(-extent // items) for extent, items in zip(shape[::-1], local, strict=True))
        width, height = np.uint32(shape[1]), np.uint32(shape[0])
        runner.launch(program.wave_step, groups, local, result, current, speed, tile, width, height)
        found[f"stencil {local[0]}x{local[1]}"] = result


def equalize(runner: Runner, program: Any, variant: str, found: dict[str, Any]) -> None:
    pixels = np.random.default_rng(5).normal(90, 45, N).clip(0, 255).astype(np.uint8)
    n = np.uint32(N - 1)
    found["equalize pixels"] = pixels
    for local in (64, 256, 48):  # 48: no power of two, and no divisor of the number of levels
        counts, levels, result = np.zeros(256, np.uint32), np.zeros(256, np.uint8), pixels.copy()
        runner.launch(program.count_levels, 7, local, pixels, counts, n)
        runner.launch(program.assign_levels, 1, local, counts, levels, cl.LocalMemory(4 * local), n)
        runner.launch(program.replace_levels, 7, local, result, levels, n)
        found |= {f"equalize {local} counts": counts, f"equalize {local} result": result}


def gemm(runner: Runner, program: Any, variant: str, found: dict[str, Any]) -> None:
    random = np.random.default_rng(6)
    rows, inner, columns = 67, 45, 35  # none fits a tile
    a, b, c = (
        random.uniform(-1, 1, shape).astype(np.float32)
        for shape in ((rows, inner), (inner, columns), (rows, columns))
    )
    found |= {"gemm a": a, "gemm b": b, "gemm c": c}
    sizes = [np.uint32(size) for size in (rows, inner, columns)]
    for kernel in program.all_kernels():
        _, how, shape = kernel.function_name.split("_")
        given = [
            np.ascontiguousarray(matrix.T if letter == "t" else matrix)
            for letter, matrix in zip(how, (a, b), strict=True)
        ]
        high, wide = (8 * int(extent) for extent in shape.split("x"))
        groups, result = (-(-columns // wide), -(-rows // high)), c.copy()
        runner.launch(kernel, groups, (8, 8), *given, result, *sizes, np.float32(1.5), np.float32(-0.5))
        found[kernel.function_name] = result


def first_launches(request: BuildRequest, compilation: Compilation) -> list[str]:
    """The launches of a bench on zeros, after running them; the driver's message if it refuses."""
    launches = find_launches(BACKEND, request, compilation)
    session = open_session(BACKEND, request.target)
    session.build(request, compilation)
    session.create_kernels()
    session.set_arguments(launches)
    try:
        session.launch()
    except cl.Error as error:
        return [str(error)]
    return [f"{one.kernel} {'x'.join(map(str, one.local_size))}" for one in launches]


def requests(target: Target) -> Iterator[BuildRequest]:
    for spec in (spec for name in MANIFESTS for spec in read_manifest(manifest_path(name))):
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
    runs = {
        "saxpy.cl": saxpy,
        "reduce.cl": reduce,
        "stencil.cl": stencil,
        "equalize.cl": equalize,
        "fft.cl": fft,
        "gemm.cl": gemm,
    }
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
