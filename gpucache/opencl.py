"""What a PyOpenCL program imports: ``build_program``, a build that asks the cache first.

Compiles in the caller's process after a miss. A program never fails because of the cache: what goes
wrong with it ends in a plain build by PyOpenCL. Loads PyOpenCL.
"""

import os
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyopencl as cl

from gpucache import library
from gpucache.backends.opencl import BACKEND, compiler, platforms
from gpucache.backends.opencl.options import as_pyopencl_reads
from gpucache.engine.layers import Layers
from gpucache.engine.lookup import build, check_required, get_or_build
from gpucache.engine.naming import program_name
from gpucache.engine.prepare import Prepared, prepare
from gpucache.errors import CacheMissError, CompileError, GpucacheError
from gpucache.model import BuildRequest, Language, Program
from gpucache.outcomes import Built, Hit, Miss, Verdict

__all__ = ["build_program"]


def build_program(
    context: Any,
    source: str | bytes,
    *,
    options: str | Sequence[str] | None = (),
    name: str | None = None,
    include_path: Sequence[str | Path] = (),
    local_sizes: Sequence[Sequence[int] | int] = (),
    headers: Sequence[str | Path] = (),
) -> Any:
    """A built ``pyopencl.Program`` for all devices of a context, from the cache where it is there.

    ``options`` are build options as PyOpenCL takes them; ``include_path`` are folders searched for
    headers before PyOpenCL's own. ``local_sizes`` are the local (work-group) sizes the program
    launches with, such as ``[(64,), (16, 16)]``: a compiler that builds late (PoCL) then has them in
    the binary, for grids of under 65,536 work items in each dimension; ``gpucache warm`` adds those
    for larger ones. ``headers`` are those reached through a macro, named by hand as in a manifest.
    ``name`` is for people: it is what ``gpucache inspect`` shows.

    Raises TypeError or ValueError for an argument that cannot be meant,
    ``gpucache.errors.CacheMissError`` where GPUCACHE_REQUIRE is set and the cache misses, and
    PyOpenCL's own errors where the program does not compile.
    """
    if not isinstance(context, cl.Context):
        raise TypeError(f"context must be a pyopencl.Context, not {context!r}")
    text = library.source_bytes(source)
    given = library.build_options(() if options is None else options)
    folders, sizes = library.paths("include_path", include_path), library.local_sizes(local_sizes)
    named = library.paths("headers", headers, library.current_directory())
    program = Program(library.text_or_none("name", name) or program_name(text), Language.OPENCL_C, text)
    layers = library.layers()
    try:
        prepared = [
            _prepare(device, program, as_pyopencl_reads(given), folders, sizes, named)
            for device in context.devices
        ]
        return _load(context, layers, prepared)
    except CacheMissError:
        raise
    except CompileError:
        pass  # PyOpenCL's own build gives the error its callers know
    except (GpucacheError, OSError) as error:
        library.uncached(layers, program.name, error)
    return _plain(context, source, given, folders)


def _prepare(
    device: Any,
    program: Program,
    options: tuple[str, ...],
    include_dirs: tuple[str, ...],
    local_sizes: tuple[tuple[int, ...], ...],
    headers: tuple[str, ...],
) -> Prepared:
    request = BuildRequest(
        program=program,
        target=platforms.target_of(device),
        options=options,
        include_dirs=include_dirs,
        local_sizes=local_sizes,
        headers=headers,
        name_headers=library.NAME_HEADERS,
        cwd=library.current_directory(),
        searches_cwd=True,
    )
    return prepare(BACKEND, request, platforms.toolchain(device), os.environ)


def _load(context: Any, layers: Layers, prepared: Sequence[Prepared]) -> Any:
    devices = list(context.devices)
    outcomes = [
        get_or_build(layers, one, _compiler(context, device, one))
        for device, one in zip(devices, prepared, strict=True)
    ]
    for one, outcome in zip(prepared, outcomes, strict=True):
        library.tell(layers, one, outcome)
    try:
        return compiler.load_binaries(context, devices, [_payload(outcome) for outcome in outcomes])
    except CompileError as rejected:
        fresh = [
            _rebuilt(layers, one, _compiler(context, device, one), outcome, str(rejected))
            for device, one, outcome in zip(devices, prepared, outcomes, strict=True)
        ]
        return compiler.load_binaries(context, devices, [_payload(outcome) for outcome in fresh])


def _compiler(context: Any, device: Any, prepared: Prepared) -> Any:
    # In a context of several, drivers differ in which devices they give binaries for.
    own = context if len(context.devices) == 1 else compiler.context_of(device)
    return partial(compiler.compile_source, own, device, prepared.request, prepared.compilation)


def _rebuilt(
    layers: Layers, prepared: Prepared, compile_: Any, outcome: Hit | Built, why: str
) -> Hit | Built:
    """What was found was rejected by the driver: compile again, over it."""
    if isinstance(outcome, Built):
        return outcome
    miss = Miss(Verdict.REJECTED, why)
    check_required(layers, prepared, miss)
    fresh = build(layers, prepared, compile_, miss, replacing=True)
    library.tell(layers, prepared, fresh)
    return fresh


def _payload(outcome: Hit | Built) -> bytes:
    return outcome.payload if isinstance(outcome, Hit) else outcome.artifact.payload


def _plain(
    context: Any, source: str | bytes, options: str | Sequence[str], include_dirs: Sequence[str]
) -> Any:
    """PyOpenCL's own build, as if gpucache were not there."""
    if include_dirs:
        given = shlex.split(options) if isinstance(options, str) else options
        options = [*given, *(text for path in include_dirs for text in ("-I", path))]
    return cl.Program(context, source).build(options=options)
