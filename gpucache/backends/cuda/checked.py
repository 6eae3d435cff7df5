"""Launches CUDA kernels with checks: finds the code that has them, and owns the failure record.

``gpucache/check.h`` defines the layout of the record and the protocol. Loads cuda.core. Must not know
how code was compiled.
"""

import ctypes
import weakref
from typing import Any

import numpy as np
from cuda.core import Buffer, launch

from gpucache.checks.failures import RECORD_BYTES, Checked, Launches, read_record, sizes_of
from gpucache.model import Checks

_EMPTY = 0xFF  # in every byte of a record without a failure, so that its code is -1
# By identity, as an ObjectCode takes no attributes, and hashing one would load it.
_known: dict[int, tuple[Any, Checked]] = {}


def remember(code: Any, checked: Checked) -> None:
    """Keep the failure table of an ``ObjectCode`` for the lifetime of that object."""
    name = id(code)
    _known[name] = weakref.ref(code, lambda _: _known.pop(name, None)), checked


def checked_of(code: Any) -> Checked | None:
    """The known checks of an ``ObjectCode``; None if it was compiled without checks."""
    reference, checked = _known.get(id(code), (None, None))
    return checked if reference is not None and reference() is code else None


class CheckedStream:
    """A stream of ``cuda.core`` that launches kernels with checks and reports which one failed first.

    It owns one failure record, which its kernels receive before their own arguments. Kernels without
    ``GPUCACHE_CHECKED``, and all of code compiled with ``checks="none"``, are launched as they are, once the
    kernels before them are known not to have failed. Use it from one thread at a time.
    """

    def __init__(self, stream: Any) -> None:
        from cuda.core import LegacyPinnedMemoryResource  # only programs with checks need it

        self.stream = stream
        self._launches = Launches()
        self._sizes = b""
        """The sizes that follow the record; empty if a launch passed none."""
        room = RECORD_BYTES + len(sizes_of(()))
        self._record = stream.device.allocate(room, stream=stream)
        self._host = LegacyPinnedMemoryResource().allocate(room)
        self._kernels: dict[tuple[int, str], tuple[Any, Any]] = {}
        self._reset()

    def launch(self, code: Any, name: str, config: Any, *args: Any) -> None:
        """Launch a kernel of an ``ObjectCode`` from ``compile_program``, with its own arguments.

        ``config`` is a ``cuda.core.LaunchConfig``. In the mode ``sync`` this looks for a failure after
        the launch, and in ``async`` before that of a kernel without ``GPUCACHE_CHECKED``, which cannot look
        itself; it raises ``gpucache.errors.KernelCheckError`` as ``synchronise`` does.
        """
        checked = checked_of(code)
        place = id(code), name
        if place not in self._kernels:
            self._kernels[place] = code, code.get_kernel(name)  # the code is kept, so its id stays unique
        kernel = self._kernels[place][1]
        if checked is None or kernel.num_arguments == len(args):
            if self._launches.pending:
                self.synchronise()  # the kernel cannot look itself
            launch(self.stream, config, kernel, *args)
            return
        if checked.needs_sizes(name):
            sizes = sizes_of(arg.size if isinstance(arg, Buffer) else None for arg in args)
            if sizes != self._sizes:
                self._send(sizes)
        state = np.int32(self._launches.state(checked, name))
        launch(self.stream, config, kernel, self._record, state, *args)
        self._launches.pending = True
        if checked.mode is Checks.SYNC:
            self.synchronise()

    def synchronise(self) -> None:
        """Wait for all launches, and raise ``gpucache.errors.KernelCheckError`` if a check failed.

        Call it before the host uses the results of kernels: after a failure they are garbage. The record is
        read only if a kernel with checks was launched since the last look, and is empty again afterwards.
        """
        if self._launches.pending:
            self._record.copy_to(self._host, stream=self.stream)
        self.stream.sync()
        if not self._launches.pending:
            return
        self._launches.pending = False
        failure = read_record(ctypes.string_at(int(self._host.handle), RECORD_BYTES))
        if failure is not None:
            self._reset()
            raise self._launches.error(failure)

    def _send(self, sizes: bytes) -> None:
        """Hand over the sizes of the next kernel's buffers; waits, as the record goes with them."""
        self.synchronise()
        ctypes.memmove(int(self._host.handle), bytes([_EMPTY]) * RECORD_BYTES + sizes, self._host.size)
        self._record.copy_from(self._host, stream=self.stream)
        self.stream.sync()
        self._sizes = sizes

    def _reset(self) -> None:
        self._sizes = b""
        self._record.fill(_EMPTY, stream=self.stream)
