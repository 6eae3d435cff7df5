"""One start of an OpenCL program, step by step, and the suite of ``bench --checks``. Loads PyOpenCL.

First launches run on zeros: buffers of zeros, scalars of zero, one work-group, and local memory in equal
shares. The types of arguments come from another build with ``-cl-kernel-arg-info``, so that nothing is added
to the build that is timed.
"""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from gpucache.backends.interface import Compilation
from gpucache.backends.opencl import compiler, platforms
from gpucache.backends.opencl.checked import CheckedProgram, CheckedQueue
from gpucache.backends.opencl.options import command_line
from gpucache.bench.check_costs import LOCAL_SIZE, SUITE, Kernel
from gpucache.bench.sessions import Launch
from gpucache.checks.calls import instrumented
from gpucache.checks.failures import Checked
from gpucache.errors import CompileError, GpucacheError
from gpucache.model import Artifact, BuildRequest, Checks, Target

_BUFFER_BYTES = 16 * 1024 * 1024
_TYPE = re.compile(r"(u?)(char|short|int|long|half|float|double|size_t)(2|3|4|8|16)?")
_SIZES = {"char": 1, "short": 2, "int": 4, "long": 8, "half": 2, "float": 4, "double": 8, "size_t": 8}


class OpenCLSession:
    """See ``gpucache.bench.sessions.Session``; its peer is PyOpenCL, whose cache a variable moves."""

    def __init__(self, target: Target, *, through_peer: bool) -> None:
        self._device = platforms.find(target)
        self._context = compiler.context_of(self._device)
        self._queue = cl.CommandQueue(self._context)
        self._through_peer = through_peer
        self._program: Any = None
        self._kernels: dict[str, Any] = {}
        # Buffers are kept here, because setting an argument does not keep its buffer alive.
        self._ready: list[tuple[Launch, list[Any]]] = []

    def build(self, request: BuildRequest, compilation: Compilation) -> None:
        if self._through_peer:
            self._program = build_with_pyopencl(self._context, request, compilation)
            return
        self._program = cl.Program(compiler.build_source(self._context, self._device, request, compilation))

    def load(self, artifact: Artifact) -> bool:
        self._program = compiler.load_binaries(self._context, [self._device], [artifact.payload])
        return True

    def create_kernels(self) -> bool:
        self._kernels = {kernel.function_name: kernel for kernel in self._program.all_kernels()}
        return True

    def set_arguments(self, launches: Sequence[Launch]) -> None:
        self._ready = [(one, self._arguments(one)) for one in launches]
        self._queue.finish()

    def launch(self) -> bool:
        for one, arguments in self._ready:
            kernel = self._kernels[one.kernel]
            kernel.set_args(*arguments)
            cl.enqueue_nd_range_kernel(self._queue, kernel, one.local_size, one.local_size)
        self._queue.finish()
        return bool(self._ready)

    def _arguments(self, one: Launch) -> list[Any]:
        share = self._device.local_mem_size // (2 * max(1, one.arguments.count("local")))
        return [self._argument(text, share) for text in one.arguments]

    def _argument(self, text: str, local_bytes: int) -> Any:
        if text == "buffer":
            buffer = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, _BUFFER_BYTES)
            cl.enqueue_fill_buffer(self._queue, buffer, b"\0\0\0\0", 0, _BUFFER_BYTES)
            return buffer
        if text == "local":
            return cl.LocalMemory(local_bytes)
        return bytes(int(text.removeprefix("scalar ")))


def launches(request: BuildRequest, compilation: Compilation) -> tuple[Launch, ...]:
    """Every kernel at every declared or required local size, if all arguments are known; else empty."""
    told = compilation._replace(command=(*compilation.command, "-cl-kernel-arg-info"))
    device = platforms.find(request.target)
    context = compiler.context_of(device)  # programs of Intel's runtime do not keep their context alive
    program = cl.Program(compiler.build_source(context, device, request, told))
    found = []
    for kernel in program.all_kernels():
        arguments = [_describe(kernel, index) for index in range(kernel.num_args)]
        if None in arguments:
            return ()
        required = tuple(
            kernel.get_work_group_info(cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, device)
        )
        sizes = (required,) if any(required) else request.local_sizes
        texts = tuple(argument for argument in arguments if argument is not None)
        found += [Launch(kernel.function_name, size, texts) for size in sizes]
    return tuple(found)


def _describe(kernel: Any, index: int) -> str | None:
    """An argument as ``Launch`` describes it; None for images, samplers, structures and the like."""
    qualifier = kernel.get_arg_info(index, cl.kernel_arg_info.ADDRESS_QUALIFIER)
    if qualifier == cl.kernel_arg_address_qualifier.LOCAL:
        return "local"
    name = str(kernel.get_arg_info(index, cl.kernel_arg_info.TYPE_NAME)).strip("\0 ")
    if qualifier != cl.kernel_arg_address_qualifier.PRIVATE:
        return "buffer" if name.endswith("*") else None
    match = _TYPE.fullmatch(name.replace("unsigned ", "u"))
    if match is None:
        return None
    lanes = int(match[3] or 1)
    return f"scalar {_SIZES[match[2]] * (4 if lanes == 3 else lanes)}"


def build_with_pyopencl(context: Any, request: BuildRequest, compilation: Compilation) -> Any:
    """A ``pyopencl.Program`` built through PyOpenCL's own cache; raises CompileError.

    PyOpenCL has no cache for platforms that have their own (PoCL, NVIDIA); there its build is the
    driver's.
    """
    try:
        text = request.program.source.decode()
    except UnicodeDecodeError:
        raise CompileError(f"PyOpenCL takes text, and {request.program.name} is not UTF-8") from None
    options = [command_line((option,)) for option in compilation.command]
    try:
        return cl.Program(context, text).build(options=options)
    except (cl.Error, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        raise CompileError(f"PyOpenCL did not build {request.program.name} ({first})", str(error)) from None


def measure(
    target: Target, builds: Sequence[tuple[BuildRequest, Compilation]], runs: int
) -> dict[str, dict[Checks, list[int]]]:
    """For each kernel and mode as many durations as runs, in ns, taken in turn in this process.

    Raises CompileError, and GpucacheError if checks change the result of a kernel.
    """
    device = platforms.find(target)
    context = compiler.context_of(device)
    programs = {}
    for request, compilation in builds:
        built = cl.Program(compiler.build_source(context, device, request, compilation))
        checked = Checked(request.program.name, request.checks, instrumented(request).table)
        programs[request.checks] = CheckedProgram(built, checked)
    return {case.name: _case(context, programs, case, runs) for case in SUITE}


def _case(context: Any, programs: Mapping[Checks, Any], case: Kernel, runs: int) -> dict[Checks, list[int]]:
    ready = {
        mode: _Ready(context, mode, getattr(program, case.name), case) for mode, program in programs.items()
    }
    wanted = None
    for one in ready.values():  # not timed, as a compiler may compile at the first launch
        one.run()
        wanted = one.values() if wanted is None else wanted
        if not np.array_equal(one.values(), wanted):
            raise GpucacheError(f"{case.name} computes a different result with checks")
    durations: dict[Checks, list[int]] = {mode: [] for mode in ready}
    modes = list(ready)
    for number in range(runs):
        for mode in (*modes[number % len(modes) :], *modes[: number % len(modes)]):
            started = time.perf_counter_ns()
            ready[mode].run()
            durations[mode].append(time.perf_counter_ns() - started)
    return durations


class _Ready:
    def __init__(self, context: Any, mode: Checks, kernel: Any, case: Kernel) -> None:
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
        found = np.empty((2, self._case.items), np.float32)
        for place, numbers in zip(found, self._numbers, strict=True):
            cl.enqueue_copy(self._queue, place, numbers)
        return found
