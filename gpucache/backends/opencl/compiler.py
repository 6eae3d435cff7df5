"""Compiling OpenCL C to a binary, and loading binaries. Loads PyOpenCL.

Builds use PyOpenCL's binding of clBuildProgram and bypass PyOpenCL's cache, which would otherwise be a second
cache that serves and stores binaries. Builds of workers also bypass its warning for every build that has a
log, because the log is kept with the artifact. This module must not know of keys or stores.

PoCL compiles late: a binary taken after a plain build has a generic work-group function, and every local
size costs a compile at its first launch. ``POCL_BINARY_SPECIALIZE_WG`` makes PoCL put the functions of given
local sizes into the binary without running the program on made-up data. These are the functions for grids
under 65,536 work items in each dimension (``smallgrid``), as most grids are; a second process adds the
functions for larger grids, see ``large_grids``.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyopencl as cl

from gpucache.backends.interface import Compilation
from gpucache.backends.opencl.options import command_line, program_log
from gpucache.backends.options import refused
from gpucache.errors import CompileError
from gpucache.host.environment import variable
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Language
from gpucache.units import printable

_SPECIALIZE = "POCL_BINARY_SPECIALIZE_WG"
_specializing = threading.RLock()
if hasattr(os, "register_at_fork"):  # a child must not wait for a thread of its parent
    os.register_at_fork(
        before=_specializing.acquire,
        after_in_parent=_specializing.release,
        after_in_child=_specializing.release,
    )


def context_of(device: Any) -> Any:
    return cl.Context([device])


def compile_source(
    context: Any,
    device: Any,
    request: BuildRequest,
    compilation: Compilation,
    *,
    large_grids: Callable[[Sequence[str]], None] = lambda _: None,
) -> Artifact:
    """Build for one device of a context; raises CompileError with the log under the program's own name.

    ``large_grids`` is called with the local sizes that a late compiler builds for; it adds to the
    compiler's own cache the functions that this process cannot make.
    """
    started = time.perf_counter_ns()
    program = build_source(context, device, request, compilation)
    with _no_binary(request):
        sizes = _wanted_sizes(program, device, request, compilation)
        if sizes:
            _require_executable(os.environ.get("POCL_CACHE_DIR", ""))
            large_grids(sizes)
            binary = specialized_binary(program, device, [f"{size}-smallgrid" for size in sizes])
        else:
            binary = _binary(program, device)
    took_ns = time.perf_counter_ns() - started
    return Artifact(ArtifactKind.OPENCL_BINARY, binary, _log(program, device, request), took_ns)


def load_binaries(context: Any, devices: Sequence[Any], payloads: Sequence[bytes]) -> Any:
    """A built ``pyopencl.Program`` from binaries, one per device; raises CompileError when rejected."""
    try:
        program = cl._cl._Program(context, list(devices), list(payloads))
        program._build(options=b"", devices=list(devices))
    except cl.Error as error:
        raise CompileError(f"the driver rejected the binary ({_first_line(error)})") from None
    return cl.Program(program)


def kernel_names(program: Any) -> tuple[str, ...]:
    """Create every kernel of a built program; returns their names. Raises CompileError if that fails."""
    try:
        return tuple(kernel.function_name for kernel in program.all_kernels())
    except cl.Error as error:
        raise CompileError(f"the driver created no kernels from the binary ({_first_line(error)})") from None


def build_source(context: Any, device: Any, request: BuildRequest, compilation: Compilation) -> Any:
    """A plain PyOpenCL program built from source; raises CompileError with the log, SourceError."""
    from gpucache.checks.calls import instrumented  # not needed by a hit

    program = created(context, instrumented(request).source, request)
    options = command_line(compilation.command).encode(errors="surrogateescape")
    try:
        program._build(options=options, devices=[device])
    except cl.Error as error:
        log = _log(program, device, request)
        why = "" if log else f" ({_first_line(error)})"
        raise CompileError(f"{refused(request.program.name, log)}{why}", log) from None
    return program


def created(context: Any, source: str | bytes, request: BuildRequest) -> Any:
    """A program of PyOpenCL's binding that is not built yet, with its specialization constants."""
    if request.program.language is not Language.SPIR_V:
        return cl._cl._Program(context, source)
    from gpucache.payload.spirv import constants_of

    program = cl._cl._create_program_with_il(context, source)
    for number, value in constants_of(request.options):
        try:
            program.set_specialization_constant(number, value)
        except cl.Error as error:
            raise CompileError(
                f"the driver refused the specialization constant {number} of {len(value)} bytes of "
                f"{request.program.name or 'the module'} ({_first_line(error)})"
            ) from None
    return program


def artifact_of(program: Any, device: Any, request: BuildRequest, compile_ns: int) -> Artifact:
    """The artifact of a built ``pyopencl.Program`` for one of its devices; raises CompileError."""
    with _no_binary(request):
        binary = _binary(program, device)
    return Artifact(ArtifactKind.OPENCL_BINARY, binary, _log(program, device, request), compile_ns)


@contextmanager
def _no_binary(request: BuildRequest) -> Iterator[None]:
    try:
        yield
    except cl.Error as error:
        raise CompileError(
            f"the driver returned no binary of {request.program.name} ({_first_line(error)})"
        ) from None


def specialized_binary(program: Any, device: Any, sizes: Sequence[str]) -> bytes:
    """PoCL's binary with functions for some local sizes, and with the functions in PoCL's cache."""
    # PoCL reads it when binaries are requested, so one thread at a time.
    with _specializing, variable(_SPECIALIZE, ",".join(sizes)):
        return _binary(program, device)


def _wanted_sizes(program: Any, device: Any, request: BuildRequest, compilation: Compilation) -> list[str]:
    """The local sizes that are declared or that kernels require, as PoCL spells them: ``64-1-1-goffs0``."""
    if not compilation.late:
        return []
    required = []
    for kernel in cl.Program(program).all_kernels():
        size = kernel.get_work_group_info(cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, device)
        if any(size):
            required.append(tuple(size))
    wanted = dict.fromkeys([*request.local_sizes, *required])
    return ["-".join(str(extent) for extent in (*size, 1, 1)[:3]) + "-goffs0" for size in wanted]


def _require_executable(place: str) -> None:
    """Raise CompileError if PoCL may not load its own binaries, because it would abort the process."""
    if sys.platform == "linux" and place and os.statvfs(place).f_flag & os.ST_NOEXEC:
        raise CompileError(
            f"{place} is mounted noexec, and PoCL cannot load its binaries there; "
            "set TMPDIR to a directory on another file system"
        )


def _binary(program: Any, device: Any) -> bytes:
    devices = program.get_info(cl.program_info.DEVICES)
    binaries = program.get_info(cl.program_info.BINARIES)
    for candidate, binary in zip(devices, binaries, strict=True):
        if candidate == device and binary:
            return bytes(binary)
    raise CompileError("the driver compiled the program but returned no binary, so it cannot be cached")


def _log(program: Any, device: Any, request: BuildRequest) -> str:
    try:
        log = str(program.get_build_info(device, cl.program_build_info.LOG))
    except (cl.Error, UnicodeDecodeError):  # PyOpenCL reads logs as UTF-8
        return ""
    return program_log(log, printable(request.program.name, None))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].partition(" - ")[0]
