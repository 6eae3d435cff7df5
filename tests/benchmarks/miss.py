"""The overhead of a miss: key, lookup, explanation, publishing with its syncs, history and journal.

The first rows are whole misses of the library, and the part that a program waits for. Then each part: the
compiler runs once beforehand, and each measured build gets its result, so no part of a compile is measured.
For comparison there are the compile alone, and the cheapest possible publish on this disk.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from itertools import count
from pathlib import Path
from unittest.mock import patch

from gpucache.answers.lookup import Built
from gpucache.backends.cuda import BACKEND, nvrtc
from gpucache.backends.interface import Compilation
from gpucache.engine.explain import explain
from gpucache.engine.lookup import build, find
from gpucache.engine.prepare import prepare
from gpucache.engine.stores import NoEntry, Stores
from gpucache.errors import GpucacheError
from gpucache.host.environment import environment
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Program, Target
from gpucache.store.directory import DirectoryStore
from tests.benchmarks.key import cub_include_dirs
from tests.benchmarks.library_hit import stable_place
from tests.benchmarks.measure import Comparison, Effort, Sample, Side, compare

_BUILDS = 200
_TARGET = Target("cuda", "sm_90")
_PLAIN = 'extern "C" __global__ void scale_{0}(float *x) {{ x[threadIdx.x] *= GPUCACHE_FACTOR; }}\n'
_PARTS = ("the key", "the lookup", "the explanation", "keeping what was built")


def run(effort: Effort) -> Iterator[Comparison]:
    """A program that is new to the cache, one that was built often with other options, and CUB's."""
    try:
        nvrtc.version()
    except GpucacheError as error:
        yield Comparison("A miss", (), {"NVRTC": str(error)})
        return
    builds, numbers = 2 if effort.small else _BUILDS, count()
    include_dirs = cub_include_dirs()
    cub = (files("gpucache") / "examples" / "cub.cu").read_bytes()

    def new() -> BuildRequest:
        number = next(numbers)
        return _request(f"scale_{number}.cu", _PLAIN.format(number).encode(), number)

    def known() -> BuildRequest:
        return _request("scale.cu", _PLAIN.format(0).encode(), next(numbers))

    with stable_place():
        yield _of_the_library(numbers, effort)
    with tempfile.TemporaryDirectory() as folder:
        stores = Stores(user=DirectoryStore(Path(folder, "root"), writable=True), command="benchmark")
        yield _compared(stores, new, f"A miss of a new program beside {builds} others", builds, effort)
        title = f"A miss of a program that was built {builds} times with other options"
        yield _compared(stores, known, title, builds, effort)
        title = "A miss of a CUB program that was built with another option"
        if include_dirs:
            yield _compared(
                stores, lambda: _request("cub.cu", cub, next(numbers), include_dirs), title, 2, effort
            )
        else:
            yield Comparison(title, (), {"CUB": "its headers are not here; install nvidia-cuda-cccl"})


def _of_the_library(numbers: Iterator[int], effort: Effort) -> Comparison:
    """All but the compile of misses by ``compile_program``, until it returns and until all is kept."""
    from gpucache.cuda import compile_program, flush

    compile_, compiling = nvrtc.compile_source, (0, 0)

    def timed(request: BuildRequest, compilation: Compilation) -> Artifact:
        nonlocal compiling
        began = _now()
        artifact = compile_(request, compilation)
        compiling = _since(began)
        return artifact

    def missed(clock: Callable[[], int], end: Callable[[], object]) -> Sample:
        began, cpu_ns = _now(), clock()
        compile_program(_PLAIN.format(next(numbers)).replace("GPUCACHE_FACTOR", "2"), target="sm_90")
        end()
        taken = Sample(_since(began)[0] - compiling[0], clock() - cpu_ns - compiling[1])
        flush()
        return taken

    def median(clock: Callable[[], int], end: Callable[[], object]) -> Side:
        def side() -> Sample:
            with patch.object(nvrtc, "compile_source", timed):
                taken = [missed(clock, end) for _ in range(effort.calls(10))]
            return Sample(
                round(statistics.median(one.wall_ns for one in taken)),
                round(statistics.median(one.cpu_ns for one in taken)),
            )

        return side

    sides = {
        "until the program goes on": median(time.thread_time_ns, lambda: None),
        "until it is explained and kept": median(time.process_time_ns, flush),
    }
    return compare("A miss by compile_program, without the compile", sides, effort.rounds)


def _request(name: str, source: bytes, number: int, include_dirs: tuple[str, ...] = ()) -> BuildRequest:
    program = Program(name, BACKEND.language, source)
    options = (f"-DGPUCACHE_FACTOR={number}", "-std=c++17")
    return BuildRequest(program, _TARGET, options, include_dirs, ArtifactKind.CUBIN)


def _compared(
    stores: Stores, wanted: Callable[[], BuildRequest], title: str, builds: int, effort: Effort
) -> Comparison:
    """The costs of misses of distinct requests, in total and in parts, after a number of builds."""
    artifact = _compiled(wanted())
    for _ in range(builds):
        _missed(stores, wanted(), artifact)

    def side(*parts: str) -> Side:
        def median() -> Sample:
            taken = [_missed(stores, wanted(), artifact) for _ in range(effort.calls(10))]
            wall, cpu = (
                round(statistics.median(sum(one[part][clock] for part in parts) for one in taken))
                for clock in (0, 1)
            )
            return Sample(wall, cpu)

        return median

    sides = {
        "what a miss adds": side(*_PARTS),
        **{f"  of it {part}": side(part) for part in _PARTS},
        "two syncs, as a publish needs": _timed(lambda: _synced(stores, artifact.payload)),
        "the compile alone": _timed(lambda: _compiled(wanted())),
    }
    return compare(title, sides, effort.rounds)


def _missed(stores: Stores, request: BuildRequest, artifact: Artifact) -> dict[str, tuple[int, int]]:
    """Nanoseconds of each part of a miss, and this thread's CPU time among them."""
    times = [_now()]
    prepared = prepare(BACKEND, request, nvrtc.toolchain(_TARGET), environment(), stores)
    times.append(_now())
    found = find(stores, prepared, whole=True)
    times.append(_now())
    assert isinstance(found, NoEntry)
    miss = explain(stores, prepared, found)
    times.append(_now())
    built = build(stores, prepared, lambda: artifact, miss)
    times.append(_now())
    assert isinstance(built, Built)
    assert built.key is not None, built.note
    spans = zip(_PARTS, times[:-1], times[1:], strict=True)
    return {part: (end[0] - start[0], end[1] - start[1]) for part, start, end in spans}


def _now() -> tuple[int, int]:
    return time.perf_counter_ns(), time.thread_time_ns()


def _since(began: tuple[int, int]) -> tuple[int, int]:
    now = _now()
    return now[0] - began[0], now[1] - began[1]


def _timed(action: Callable[[], object]) -> Side:
    def side() -> Sample:
        start = _now()
        action()
        end = _now()
        return Sample(end[0] - start[0], end[1] - start[1])

    return side


def _compiled(request: BuildRequest) -> Artifact:
    return BACKEND.compile(request, BACKEND.plan(request, nvrtc.toolchain(_TARGET), environment()))


def _synced(stores: Stores, payload: bytes) -> None:
    """Write a file next to its place, sync it, rename it, and sync its directory."""
    assert stores.user is not None
    folder = stores.user.root.parent
    with (folder / "aside").open("wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())
    (folder / "aside").replace(folder / "synced")
    opened = os.open(folder, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)
