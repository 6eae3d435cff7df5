"""Builds by PyOpenCL itself: from a source as without gpucache, and from binaries that know their source.

Imported before a first hit, so it imports next to nothing. Must not know keys or stores.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import pyopencl as cl
from pyopencl.tools import is_spirv

from gpucache.errors import CompileError

# PyOpenCL's own function, at import time: a program may replace it by one that calls this module.
_BUILD = cl.Program.build


class _OfBinaries(cl._cl._Program):  # type: ignore[misc] # PyOpenCL's binding has no types
    """A program from binaries that knows the source and the logs of the original build."""

    def __init__(
        self,
        context: Any,
        devices: Sequence[Any],
        payloads: Sequence[bytes],
        source: str | bytes,
        logs: Sequence[Callable[[str], str] | None],
    ) -> None:
        super().__init__(context, devices, payloads)
        text = source if isinstance(source, str) else source.decode(errors="replace")
        self._text = "" if is_spirv(source) else text
        self._logs = dict(zip(devices, logs, strict=True))

    def get_info(self, param: Any) -> Any:
        return self._text if param == cl.program_info.SOURCE else super().get_info(param)

    def get_build_info(self, device: Any, param: Any) -> Any:
        if param == cl.program_build_info.LOG and device in self._logs:
            read = self._logs[device]
            return "" if read is None else read(super().get_build_info(device, cl.program_build_info.OPTIONS))
        return super().get_build_info(device, param)

    def _get_build_logs(self) -> list[tuple[Any, str]]:
        """The logs for PyOpenCL's build warning; a log is read only if the warning will show it."""
        shown = "PYOPENCL_COMPILER_OUTPUT" in os.environ
        told = ((device, "a log is available") for device, read in self._logs.items() if read)
        log = cl.program_build_info.LOG
        return [(device, self.get_build_info(device, log) if shown else short) for device, short in told]


def build_binaries_as_pyopencl(
    context: Any,
    source: str | bytes,
    options: str | Sequence[str],
    devices: Sequence[Any],
    payloads: Sequence[bytes],
    logs: Sequence[Callable[[str], str] | None],
) -> Any:
    """A ``pyopencl.Program`` from binaries that reports the same about itself as one from source.

    It has its source, its options and the logs, and warns as PyOpenCL does of a build that has a log.
    ``logs`` has for each device a function that reads the log, given the options, or None if it is empty.
    Raises CompileError if the driver rejects a binary.
    """
    program = cl.Program(context, source)
    try:
        program._prg = _OfBinaries(context, list(devices), list(payloads), source, logs)
        return _BUILD(program, options=options, devices=list(devices))
    except cl.Error as error:
        raise CompileError(f"the driver rejected the binary ({first_line(error)})") from None


def build_plainly(
    context: Any,
    source: str | bytes,
    options: str | Sequence[str],
    devices: Sequence[Any] | None,
    cache_dir: str | None = None,
) -> Any:
    """PyOpenCL's own build with its cache, as without gpucache."""
    return _BUILD(cl.Program(context, source), options=options, devices=devices, cache_dir=cache_dir)


def build_as_pyopencl(
    context: Any,
    source: str | bytes,
    options: str | Sequence[str],
    devices: Sequence[Any] | None,
    created: Any,
) -> Any:
    """A ``pyopencl.Program`` built by PyOpenCL, with its errors and warnings, not its cache.

    ``created`` is the binding's program of the source or module.
    """
    program = cl.Program(context, source)
    program._prg = created
    return _BUILD(program, options=options, devices=devices)


def first_line(error: BaseException) -> str:
    """What an error of PyOpenCL says, without its routine and its log."""
    return str(error).partition("\n")[0].partition(" - ")[0]
