"""A build as a question that a row of a root answers, spelled as PyOpenCL spells it to a driver.

All that a program loads of us as long as rows answer. The questions of unmodified programs are the same, so
one row serves both. Loads PyOpenCL.
"""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import pyopencl as cl
from pyopencl.tools import is_spirv

from gpucache.errors import CompileError
from gpucache.host.environment import environment_since
from gpucache.library import rows
from gpucache.opencl.pyopencl_builds import build_binaries_as_pyopencl

_LOADED = "@loaded"
"""As ``backends.options`` has it."""
_OWN_HEADERS = b"gpucache/check.h"
"""The header whose directory is searched if a source names it."""
if os.path.lexists("cl.cfg"):  # which it looks at when it is imported, as may a driver
    import gpucache.backends.opencl.platforms  # noqa: F401


class Asked(NamedTuple):
    """A build that was looked up in the rows."""

    question: tuple[bytes, ...] = ()
    """Its fields, as ``serve.opencl`` reads them; none if rows do not answer such a build."""
    program: Any = None
    """The built ``pyopencl.Program`` of a hit."""


def ask(
    context: Any, source: str | bytes, options: Any, devices: Sequence[Any] | None, *, plain: bool = True
) -> Asked:
    """Look a build up; a ``plain`` one has no more than options. Raises no error but a warning's."""
    if not plain or rows.library() is None:
        return Asked()
    try:
        question, handles = _question(context, source, options, devices)
    except Exception:  # PyOpenCL itself reports it
        return Asked()
    row = rows.answer(rows.BUILD, question) if question else None
    if row is None or len(row.fields) != 1 + 2 * len(handles):
        return Asked(question)
    payloads, logs = row.fields[1::2], row.fields[2::2]
    readers = [partial(_log, log.decode(errors="surrogateescape")) if log else None for log in logs]
    try:
        program = build_binaries_as_pyopencl(context, source, options, handles, payloads, readers)
    except CompileError:
        return Asked(question)  # the other way to the same entry also replaces it
    rows.tell(row)
    return Asked(question, program)


def _question(
    context: Any, source: str | bytes, options: Any, devices: Sequence[Any] | None
) -> tuple[tuple[bytes, ...], list[Any]]:
    text = source.encode() if isinstance(source, str) else source
    if b"{" not in text:
        return (), []  # it may be a path, which the other way refuses
    known = options is None or isinstance(options, str | list | tuple)  # an iterator can be read once only
    if (
        _OWN_HEADERS in text
        or is_spirv(source)
        or not known
        or not all(isinstance(one, str) for one in options or ())
    ):
        return (), []
    handles = [one for one in context.devices if devices is None or one in devices]
    if len(handles) != 1 or (devices is not None and len(devices) != 1):
        return (), handles  # of several entries the note of a row names one
    spelled, _ = cl.Program._process_build_options(context, options)
    environ = rows.variables(environment_since(_LOADED, cl.__name__))
    facts = (fact for one in handles for fact in _facts(one))
    cwd = os.getcwdb()  # noqa: PTH109 - text, for C
    return (b"", cwd, environ, spelled, text, b"%d" % len(handles), *facts), handles


def _facts(device: Any) -> tuple[bytes, ...]:
    """The driver's file, and what it says of itself and of a device, as ``serve.devices`` names it."""
    found = _known.get(device)
    if found is None:
        platform, library = device.platform, rows.library()
        said = (platform.name, platform.vendor, platform.version, device.name, device.vendor, device.version)
        driver = b"" if library is None else library.driver_of(platform.int_ptr)
        found = _known[device] = (driver, *map(os.fsencode, (*said, device.driver_version)))
    return found


_known: dict[Any, tuple[bytes, ...]] = {}


def _log(log: str, _: str) -> str:
    return log
