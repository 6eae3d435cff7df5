"""What a PyOpenCL program imports: ``build_program``, a build that asks the cache first.

Compiles in the caller's process after a miss, and gives the program what the compiler gave: a program
made from a binary knows less of itself (no source, on Intel no argument info). A compiler that builds
late is left to build as it does without us, and what was wanted is noted for ``gpucache warm --misses``.
A program never fails because of the cache: what goes wrong with it ends in a plain build by PyOpenCL.
Loads PyOpenCL.
"""

import os
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyopencl as cl

from gpucache import library
from gpucache.backends.opencl import BACKEND, compiler, platforms
from gpucache.backends.opencl.options import as_pyopencl_reads
from gpucache.engine.layers import Layers
from gpucache.engine.lookup import build, check_required, find
from gpucache.engine.missed import discard, leave, note_lacking
from gpucache.engine.naming import program_name
from gpucache.engine.prepare import Prepared, prepare
from gpucache.errors import CacheMissError, CompileError
from gpucache.model import Artifact, BuildRequest, Language, Program
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
    own = _OwnBuild(context, source, given, folders)
    try:
        prepared = [
            _prepare(device, program, as_pyopencl_reads(given), folders, sizes, named)
            for device in context.devices
        ]
        return _answer(context, layers, prepared, own)
    except CacheMissError:
        raise
    except Exception as error:
        if own.failed:
            raise  # the compiler's own answer
        library.uncached(layers, program.name, error)
    return own.program or own.plain()


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


def _answer(context: Any, layers: Layers, prepared: Sequence[Prepared], own: "_OwnBuild") -> Any:
    """The program from entries for all devices, or as the compiler gives it, which is then kept."""
    found = [find(layers, one) for one in prepared]
    misses = [(one, answer) for one, answer in zip(prepared, found, strict=True) if isinstance(answer, Miss)]
    for one, miss in misses:
        check_required(layers, one, miss)
    hits = [answer for answer in found if isinstance(answer, Hit)]
    if not misses:
        return _loaded(context, layers, prepared, hits, own)
    if any(one.compilation.late or one.refusal for one, _ in misses) or layers.target is None:
        return _left(layers, misses, own)
    outcomes = [
        answer if isinstance(answer, Hit) else build(layers, one, own.compiler(device, one), answer)
        for device, one, answer in zip(context.devices, prepared, found, strict=True)
    ]
    return _given(context, layers, prepared, outcomes, own)


def _loaded(
    context: Any, layers: Layers, prepared: Sequence[Prepared], hits: Sequence[Hit], own: "_OwnBuild"
) -> Any:
    """The program from its entries; what the driver rejects is compiled again."""
    devices = list(context.devices)
    try:
        program = _load(context, prepared, hits)
    except CompileError as rejected:
        misses = [(one, Miss(Verdict.REJECTED, str(rejected))) for one in prepared]
        for one, miss in misses:
            check_required(layers, one, miss)
        if layers.target is None or any(one.compilation.late for one in prepared):
            for hit in hits:
                discard(layers, hit, str(rejected))
            return _left(layers, misses, own)
        outcomes = [
            build(layers, one, own.compiler(device, one), miss, useless=hit)
            for device, (one, miss), hit in zip(devices, misses, hits, strict=True)
        ]
        return _given(context, layers, prepared, outcomes, own)
    for one, hit in zip(prepared, hits, strict=True):
        library.tell(layers, one, hit)
        library.learn(layers, note_lacking(layers, one, hit, _environment(one)))
    return program


def _given(
    context: Any,
    layers: Layers,
    prepared: Sequence[Prepared],
    outcomes: Sequence[Hit | Built],
    own: "_OwnBuild",
) -> Any:
    """What the compiler gave, or the program of entries that another process published meanwhile."""
    for one, outcome in zip(prepared, outcomes, strict=True):
        library.tell(layers, one, outcome)
    if own.program is not None:
        return own.program
    return _load(context, prepared, [outcome for outcome in outcomes if isinstance(outcome, Hit)])


def _load(context: Any, prepared: Sequence[Prepared], hits: Sequence[Hit]) -> Any:
    command = prepared[0].compilation.command  # the same for every device
    return compiler.load_binaries(context, list(context.devices), [hit.payload for hit in hits], command)


def _left(layers: Layers, misses: Sequence[tuple[Prepared, Miss]], own: "_OwnBuild") -> Any:
    """The program built by PyOpenCL as if gpucache were not there; what a late compiler's wanted is noted."""
    program = own.plain()
    for one, miss in misses:
        plain = leave(layers, one, miss, own.compile_ns, _environment(one))
        library.tell(layers, one, plain)
        library.learn(layers, plain.noted)
    return program


def _environment(prepared: Prepared) -> tuple[tuple[str, str], ...]:
    return BACKEND.environment(prepared.compilation.inputs.toolchain, os.environ)


class _OwnBuild:
    """The build from source of one call: made at most once, for all devices of the context."""

    def __init__(
        self,
        context: Any,
        source: str | bytes,
        options: str | Sequence[str],
        include_dirs: Sequence[str],
    ) -> None:
        self._context = context
        self._source = source
        self._options = options
        self._include_dirs = include_dirs
        self.program: Any = None
        self.failed = False
        """Whether the compiler refused: then its error is what the program gets."""
        self.compile_ns = 0

    def plain(self) -> Any:
        """PyOpenCL's own build, as if gpucache were not there."""
        options = self._options
        if self._include_dirs:
            given = shlex.split(options) if isinstance(options, str) else options
            options = [*given, *(text for path in self._include_dirs for text in ("-I", path))]
        return self._built(lambda: cl.Program(self._context, self._source).build(options=options))

    def compiler(self, device: Any, prepared: Prepared) -> Callable[[], Artifact]:
        """What gives the artifact of one device."""

        def compile_() -> Artifact:
            request, compilation = prepared.request, prepared.compilation
            if self.program is None:
                source = request.program.source
                self._built(lambda: compiler.build_as_pyopencl(self._context, source, compilation))
            return compiler.artifact_of(self.program, device, request, self.compile_ns)

        return compile_

    def _built(self, make: Callable[[], Any]) -> Any:
        started = time.perf_counter_ns()
        try:
            self.program = make()
        except BaseException:
            self.failed = True
            raise
        self.compile_ns = time.perf_counter_ns() - started
        return self.program
