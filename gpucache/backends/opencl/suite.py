"""Times the suite of ``bench --checks`` on an OpenCL device. Loads PyOpenCL."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from gpucache.backends.interface import Compilation
from gpucache.backends.opencl import compiler, platforms
from gpucache.backends.opencl.checked import CheckedProgram, CheckedQueue
from gpucache.checks import Checked, instrumented
from gpucache.checks.suite import LOCAL_SIZE, SUITE, Case
from gpucache.errors import GpucacheError
from gpucache.model import BuildRequest, Checks, Target

Durations = Mapping[Checks, Sequence[int]]


def measure(
    target: Target, builds: Sequence[tuple[BuildRequest, Compilation]], runs: int
) -> dict[str, Durations]:
    """For each kernel and mode as many durations as runs, in ns, taken in turn in this process.

    Raises CompileError, and GpucacheError if a kernel computes something else with checks than without.
    """
    device = platforms.find(target)
    context = compiler.context_of(device)
    programs = {}
    for request, compilation in builds:
        built = cl.Program(compiler.build_source(context, device, request, compilation))
        checked = Checked(request.program.name, request.checks, instrumented(request).table)
        programs[request.checks] = CheckedProgram(built, checked)
    return {case.kernel: _case(context, programs, case, runs) for case in SUITE}


def _case(context: Any, programs: Mapping[Checks, Any], case: Case, runs: int) -> Durations:
    ready = {
        mode: _Ready(context, mode, getattr(program, case.kernel), case) for mode, program in programs.items()
    }
    wanted = None
    for one in ready.values():  # not timed, as a compiler may compile at the first launch
        one.run()
        wanted = one.values() if wanted is None else wanted
        if not np.array_equal(one.values(), wanted):
            raise GpucacheError(f"{case.kernel} computes otherwise with checks than without")
    durations: dict[Checks, list[int]] = {mode: [] for mode in ready}
    modes = list(ready)
    for number in range(runs):
        for mode in (*modes[number % len(modes) :], *modes[: number % len(modes)]):
            started = time.perf_counter_ns()
            ready[mode].run()
            durations[mode].append(time.perf_counter_ns() - started)
    return durations


class _Ready:
    """A kernel in one mode with its arguments."""

    def __init__(self, context: Any, mode: Checks, kernel: Any, case: Case) -> None:
        self._mode, self._kernel, self._case = mode, kernel, case
        self._queue = cl.CommandQueue(context)
        self._checked = CheckedQueue(self._queue)
        random = np.random.default_rng(0)
        where = random.permutation(case.items).astype(np.int32)
        self._start = random.random(case.items, np.float32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self._where = cl.Buffer(context, flags, hostbuf=where)
        self._numbers = [cl.Buffer(context, flags, hostbuf=self._start) for _ in range(2)]
        self._read = np.empty(1, np.float32)
        self._count = np.int32(case.items)

    def run(self) -> None:
        """Make all launches of a sample, wait for them, and look for failed checks."""
        case, before, after = self._case, *self._numbers
        for _ in range(case.launches):
            sizes = (case.items,), (LOCAL_SIZE,)
            self._checked.launch(self._kernel, *sizes, self._where, before, after, self._count)
            if case.reads:
                if self._mode is Checks.ASYNC:
                    self._checked.synchronise()
                cl.enqueue_copy(self._queue, self._read, after)
            before, after = after, before
        self._checked.synchronise()

    def values(self) -> Any:
        """What the last two launches wrote."""
        found = np.empty((2, self._case.items), np.float32)
        for place, numbers in zip(found, self._numbers, strict=True):
            cl.enqueue_copy(self._queue, place, numbers)
        return found
