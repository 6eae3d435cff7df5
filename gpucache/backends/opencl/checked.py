"""Launches kernels with checks: their program, and the queue that owns the failure record. Loads PyOpenCL.

``gpucache/check.h`` defines the layout of the record and the protocol. Must not know how a program was
built.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from gpucache.checks.failures import NO_FAILURE, RECORD_BYTES, Checked, Launches, read_record, sizes_of
from gpucache.model import Checks

_HIDDEN = 2  # the record and the state, before the kernel's own arguments
_PACKED = frozenset(np.dtype(sign).type for sign in "bBhHiIlLfd")


class CheckedProgram(cl.Program):  # type: ignore[misc] # PyOpenCL's binding has no types
    """A built program whose kernels know the failure table of their checks."""

    def __init__(self, program: Any, checked: Checked) -> None:
        self.checked = checked
        super().__init__(program._get_prg())

    def __getattr__(self, name: str) -> Any:
        return CheckedKernel(self, super().__getattr__(name).function_name)

    def all_kernels(self) -> list[Any]:
        return [CheckedKernel(self, kernel.function_name) for kernel in super().all_kernels()]


class CheckedKernel(cl.Kernel):  # type: ignore[misc]
    """A kernel of a ``CheckedProgram``, with types for its arguments unless its user sets them.

    PyOpenCL needs 5 us and more for each number whose type it does not know.
    """

    def __init__(self, program: CheckedProgram, name: str) -> None:
        super().__init__(program, name)
        self.checked, self.name, self.takes = program.checked, name, self.num_args
        self.needs_sizes = self.checked.needs_sizes(name)
        self._seen: list[type] | None = []
        self._types: list[Any] = []

    def set_arg_types(self, arg_types: Sequence[Any]) -> None:
        """As ``pyopencl.Kernel.set_arg_types``; the first two types are for the hidden arguments."""
        self._seen = None
        super().set_arg_types(arg_types)

    set_scalar_arg_dtypes = set_arg_types

    def meet(self, args: Sequence[Any]) -> None:
        """Take the types of its own arguments from those of the next launch."""
        seen = [type(arg) for arg in args]
        if self._seen is None or seen == self._seen:
            return
        self._seen = seen
        types = [None, np.int32, *(one if one in _PACKED else None for one in seen)]
        if types != self._types:
            self._types = types
            super().set_arg_types(types)


class CheckedQueue:
    """A command queue that launches kernels with checks and reports which one failed first.

    It owns one failure record, which its kernels receive before their own arguments. Kernels without
    ``GPUCACHE_CHECKED``, and all of programs built with ``checks="none"``, are launched as they are, once the
    kernels before them are known not to have failed. Use it from one thread at a time, as the queue itself;
    the queue must be in order, else ValueError.
    """

    def __init__(self, queue: Any) -> None:
        if not isinstance(queue, cl.CommandQueue):
            raise TypeError(f"queue must be a pyopencl.CommandQueue, not {queue!r}")
        if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            raise ValueError(
                "checks need a queue that runs in order; make one without OUT_OF_ORDER_EXEC_MODE_ENABLE"
            )
        self.queue = queue
        self._launches = Launches()
        self._sizes = sizes_of(())
        self._sent: list[Any] = []
        """Sizes that the queue may still be copying."""
        self._record = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, RECORD_BYTES + len(self._sizes))
        self._send(self._sizes)
        self._reset()

    def launch(
        self,
        kernel: Any,
        global_size: Sequence[int],
        local_size: Sequence[int] | None,
        *args: Any,
        wait_for: Sequence[Any] | None = None,
    ) -> Any:
        """Launch a kernel with its own arguments, as ``kernel(queue, ...)`` does, and return the event.

        ``kernel`` comes from a program of ``build_program``, as ``program.name`` or from
        ``program.all_kernels()``, or from a ``Batch``; if argument types are set, they begin with those of
        the two hidden arguments. In the mode ``sync`` this looks for a failure after the launch, and in
        ``async`` before that of a kernel without ``GPUCACHE_CHECKED``, which cannot look itself; it raises
        ``gpucache.errors.KernelCheckError`` as ``synchronise`` does.
        """
        if not isinstance(kernel, cl.Kernel):
            raise TypeError(f"kernel must be a pyopencl.Kernel, such as program.name, not {kernel!r}")
        known = kernel if isinstance(kernel, CheckedKernel) else None
        if known is None or known.takes == len(args):
            if known is None and kernel.num_args == len(args) + _HIDDEN:
                raise TypeError(
                    f"the kernel {kernel.function_name} has checks, but its program is unknown; take it "
                    "from the result of build_program, as program.name"
                )
            if self._launches.pending:
                self.synchronise()  # the kernel cannot look itself
            return kernel(self.queue, global_size, local_size, *args, wait_for=wait_for)
        if known.takes != len(args) + _HIDDEN:
            raise TypeError(
                f"the kernel {known.name} takes {max(0, known.takes - _HIDDEN)} arguments "
                f"after GPUCACHE_CHECKED, not {len(args)}"
            )
        if known.needs_sizes:
            sizes = sizes_of(arg.size if isinstance(arg, cl.MemoryObject) else None for arg in args)
            if sizes != self._sizes:
                self._send(sizes)
        known.meet(args)
        state = np.int32(self._launches.state(known.checked, known.name))
        event = known(self.queue, global_size, local_size, self._record, state, *args, wait_for=wait_for)
        self._launches.pending = True
        if known.checked.mode is Checks.SYNC:
            self.synchronise()
        return event

    def synchronise(self) -> None:
        """Wait for all launches, and raise ``gpucache.errors.KernelCheckError`` if a check failed.

        Call it before the host uses the results of kernels: after a failure they are garbage. The record is
        read only if a kernel with checks was launched since the last look, and is empty again afterwards.
        """
        if not self._launches.pending:
            self.queue.finish()
            return
        data = bytearray(RECORD_BYTES)
        cl.enqueue_copy(self.queue, data, self._record)  # waits, as the queue is in order
        self._sent.clear()
        self._launches.pending = False
        failure = read_record(bytes(data))
        if failure is not None:
            self._reset()
            raise self._launches.error(failure)

    def _send(self, sizes: bytes) -> None:
        """Hand over the sizes of the next kernel's buffers, after the kernels before it."""
        self._sizes = sizes
        self._sent.append(sent := np.frombuffer(sizes, np.uint8))
        cl.enqueue_copy(self.queue, self._record, sent, dst_offset=RECORD_BYTES, is_blocking=False)

    def _reset(self) -> None:
        cl.enqueue_fill_buffer(self.queue, self._record, NO_FAILURE, 0, len(NO_FAILURE))
