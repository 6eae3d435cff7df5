"""One start of an OpenCL program, step by step, as bench times it. Loads PyOpenCL.

First launches run on zeros: buffers of zeros, scalars of zero, one work-group, and local memory in equal
shares. The types of arguments come from another build with ``-cl-kernel-arg-info``, so that nothing is added
to the build that is timed.
"""

import re
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from gpucache.backends.interface import Compilation, Launch
from gpucache.backends.opencl import compiler, peers
from gpucache.model import Artifact, BuildRequest

_BUFFER_BYTES = 16 * 1024 * 1024
_TYPE = re.compile(r"(u?)(char|short|int|long|half|float|double|size_t)(2|3|4|8|16)?")
_SIZES = {"char": 1, "short": 2, "int": 4, "long": 8, "half": 2, "float": 4, "double": 8, "size_t": 8}


class OpenCLSession:
    """See ``gpucache.backends.interface.Session``."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._context = compiler.context_of(device)
        self._queue = cl.CommandQueue(self._context)
        self._program: Any = None
        self._through_peer = False
        self._kernels: dict[str, Any] = {}
        # Buffers are held here, because setting an argument does not keep its buffer alive.
        self._ready: list[tuple[Launch, list[Any]]] = []

    def build(self, request: BuildRequest, compilation: Compilation) -> None:
        """Build from source and keep that program."""
        if self._through_peer:
            self._program = peers.build_with_pyopencl(self._context, request, compilation)
            return
        self._program = cl.Program(compiler.build_source(self._context, self._device, request, compilation))

    def load_peer(self, peer: str) -> None:
        """Do nothing for PyOpenCL, which this module has loaded."""

    def use_peer(self, folder: str) -> None:  # noqa: ARG002 - a variable moves PyOpenCL's
        """Build with PyOpenCL's own cache."""
        self._through_peer = True

    def load(self, artifact: Artifact) -> bool:
        """Create and build the program from its binary."""
        self._program = compiler.load_binaries(self._context, [self._device], [artifact.payload])
        return True

    def create_kernels(self) -> bool:
        """Create every kernel."""
        self._kernels = {kernel.function_name: kernel for kernel in self._program.all_kernels()}
        return True

    def set_arguments(self, launches: Sequence[Launch]) -> None:
        """Make zeros for every argument of every launch."""
        self._ready = [(one, self._arguments(one)) for one in launches]
        self._queue.finish()

    def launch(self) -> bool:
        """Launch each kernel once for each of its local sizes and wait."""
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


def launches(device: Any, request: BuildRequest, compilation: Compilation) -> tuple[Launch, ...]:
    """Every kernel at every declared or required local size, if all arguments are understood; else none."""
    told = compilation._replace(command=(*compilation.command, "-cl-kernel-arg-info"))
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
