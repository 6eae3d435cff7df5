"""What a PyOpenCL program imports: ``build_program``, ``Batch`` of many sources, and ``CheckedQueue``.

Compiles in the caller's process after a miss, and gives the program what the compiler gave: a program
made from a binary knows less of itself. A compiler that builds late is left to build as it does without
us, and what was wanted is noted for ``gpucache warm --misses``. A program never fails because of the
cache: what goes wrong with it ends in a plain build by PyOpenCL. Loads PyOpenCL.
"""

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyopencl as cl
from pyopencl.tools import is_spirv

from gpucache.backends.opencl import BACKEND, compiler, platforms
from gpucache.backends.opencl.checked import CheckedProgram, CheckedQueue
from gpucache.backends.opencl.options import as_pyopencl_reads, command_line, for_pyopencl
from gpucache.checks import Checked, include_dirs, instrumented
from gpucache.engine.layers import Layers
from gpucache.engine.lookup import build, build_log, check_required, look_up
from gpucache.engine.missed import discard, leave, note_lacking
from gpucache.engine.prepare import Prepared, prepare_again
from gpucache.engine.program_names import program_name
from gpucache.errors import CacheMissError, CompileError, SourceError
from gpucache.host.environment import environment
from gpucache.library import arguments, process
from gpucache.library.batch import Batch as AnyBatch
from gpucache.library.batch import Routine
from gpucache.library.joined import Part
from gpucache.model import Artifact, BuildRequest, Check, Checks, Language, Program, Target
from gpucache.outcomes import Built, Hit, Miss, Verdict

__all__ = ["Batch", "CheckedQueue", "build_program"]

_ANY = Target(BACKEND.name, "any")  # until it is known which devices of the context


def build_program(
    context: Any,
    source: str | bytes,
    *,
    options: str | Sequence[str] | None = (),
    devices: Sequence[Any] | None = None,
    name: str | None = None,
    include_path: Sequence[str | Path] = (),
    local_sizes: Sequence[Sequence[int] | int] = (),
    headers: Sequence[str | Path] = (),
    checks: str = "none",
) -> Any:
    """A built ``pyopencl.Program``, from the cache where it is there.

    ``options`` are build options as PyOpenCL takes them, ``devices`` those of the context to build for,
    without it all; ``include_path`` are folders searched for headers before PyOpenCL's own.
    ``local_sizes`` are the local (work-group) sizes the program launches with, such as
    ``[(64,), (16, 16)]``: a compiler that builds late (PoCL) then has them in the binary, for grids of
    under 65,536 work items in each dimension; ``gpucache warm`` adds those for larger ones.
    ``headers`` are those reached through a macro, named by hand as in a manifest. ``name`` is for
    people: it is what ``gpucache inspect`` shows. SPIR-V as ``source`` is built and not kept.
    ``checks`` turns on the checks that kernels make with ``gpucache/check.h``: ``none``, ``sync`` or
    ``async``. Such kernels are launched by a ``CheckedQueue``. The folder of that header is searched
    where the source names it.

    After a miss the program is the compiler's own. After a hit it knows its source, its options and
    what the compiler said, and warns where the compiler did. It is made of a binary, and so its
    ``kind`` says, its kernels' ``attributes`` are empty (sizes that they require hold, and are
    answered), and on Intel's driver they answer nothing about their arguments' names and types: with
    ``-cl-kernel-arg-info`` such a program is not kept.

    Raises TypeError or ValueError for an argument that cannot be meant,
    ``gpucache.errors.SourceError`` for a check whose message does not fit its operands,
    ``gpucache.errors.CacheMissError`` where GPUCACHE_REQUIRE is set and the cache misses, and
    PyOpenCL's own errors where the program does not compile.
    """
    if not isinstance(context, cl.Context):
        raise TypeError(f"context must be a pyopencl.Context, not {context!r}")
    text = arguments.source_bytes(source)
    given = arguments.build_options(() if options is None else options)
    mode = arguments.checks_mode(checks)
    if mode is not Checks.NONE and is_spirv(source):
        raise ValueError("checks are of a program's source, and this is SPIR-V; give OpenCL C")
    request = BuildRequest(
        program=Program(arguments.text_or_none("name", name) or program_name(text), Language.OPENCL_C, text),
        target=_ANY,
        include_dirs=(*arguments.paths("include_path", include_path), *include_dirs(text, mode)),
        local_sizes=arguments.local_sizes(local_sizes),
        headers=arguments.paths("headers", headers, arguments.current_directory()),
        name_headers=arguments.NAME_HEADERS,
        cwd=arguments.current_directory(),
        searches_cwd=True,
        checks=mode,
    )
    call = _Call(context, source, given, request, devices)
    if devices is not None and len(call.devices) != len(devices):
        return call.plain()  # none, one twice or another context's: PyOpenCL answers
    built = _built(process.layers(), request, call)
    return (
        built
        if mode is Checks.NONE
        else CheckedProgram(built, Checked(request.program.name, mode, call.table))
    )


def _built(layers: Layers, request: BuildRequest, call: "_Call") -> Any:
    """The program as the cache or the compiler gives it."""
    try:
        if is_spirv(call.source):
            raise SourceError("its source is SPIR-V, which gpucache does not keep; give it OpenCL C")
        options = (*as_pyopencl_reads(call.options), *_of_platform(call.context))
        request = replace(request, options=options)
        return _answer(layers, [_prepare(layers, device, request) for device in call.devices], call)
    except (CacheMissError, Warning):
        raise
    except Exception as error:
        if call.failed:
            raise  # the compiler's own answer
        process.uncached(layers, request.program.name, error)
    return call.program or call.plain()


def _of_platform(context: Any) -> Sequence[str]:
    """What PyOpenCL adds to every build on a platform, such as after ``pyopencl.enable_debugging``."""
    return cl._PLAT_BUILD_OPTIONS.get(context.devices[0].platform.name, [])


def _prepare(layers: Layers, device: Any, request: BuildRequest) -> Prepared:
    request = replace(request, target=platforms.target_of(device))
    return prepare_again(BACKEND, request, platforms.toolchain(device), environment(), layers)


def _answer(layers: Layers, prepared: Sequence[Prepared], call: "_Call") -> Any:
    """The program from entries for all devices, or as the compiler gives it, which is then kept."""
    found = [look_up(layers, one) for one in prepared]
    misses = [(one, answer) for one, answer in zip(prepared, found, strict=True) if isinstance(answer, Miss)]
    for one, miss in misses:
        check_required(layers, one, miss)
    hits = [answer for answer in found if isinstance(answer, Hit)]
    if not misses:
        return _loaded(layers, prepared, hits, call)
    if any(one.compilation.late or one.refusal for one, _ in misses) or layers.target is None:
        return _left(layers, misses, call)
    outcomes = [
        answer if isinstance(answer, Hit) else build(layers, one, call.compiler(device, one), answer)
        for device, one, answer in zip(call.devices, prepared, found, strict=True)
    ]
    return _given(layers, prepared, outcomes, call)


def _loaded(layers: Layers, prepared: Sequence[Prepared], hits: Sequence[Hit], call: "_Call") -> Any:
    """The program from its entries; what the driver rejects is compiled again."""
    try:
        program = call.load(layers, hits)
    except CompileError as rejected:
        misses = [(one, Miss(Verdict.REJECTED, str(rejected))) for one in prepared]
        for one, miss in misses:
            check_required(layers, one, miss)
        if layers.target is None or any(one.compilation.late for one in prepared):
            for hit in hits:
                discard(layers, hit, str(rejected))
            return _left(layers, misses, call)
        outcomes = [
            build(layers, one, call.compiler(device, one), miss, useless=hit)
            for device, (one, miss), hit in zip(call.devices, misses, hits, strict=True)
        ]
        return _given(layers, prepared, outcomes, call)
    for one, hit in zip(prepared, hits, strict=True):
        process.tell(layers, one, hit)
        if one.lacking_sizes(hit.head):
            process.learn(layers, note_lacking(layers, one, hit, _environment(one)))
    return program


def _given(
    layers: Layers, prepared: Sequence[Prepared], outcomes: Sequence[Hit | Built], call: "_Call"
) -> Any:
    """What the compiler gave, or the program of entries that another process published meanwhile."""
    for one, outcome in zip(prepared, outcomes, strict=True):
        process.tell(layers, one, outcome)
    if call.program is not None:
        return call.program
    return call.load(layers, [outcome for outcome in outcomes if isinstance(outcome, Hit)])


def _left(layers: Layers, misses: Sequence[tuple[Prepared, Miss]], call: "_Call") -> Any:
    """The program built by PyOpenCL as if gpucache were not there; what a late compiler's wanted is noted."""
    program = call.plain()
    for one, miss in misses:
        plain = leave(layers, one, miss, call.compile_ns, _environment(one))
        process.tell(layers, one, plain)
        process.learn(layers, plain.noted)
    return program


def _environment(prepared: Prepared) -> tuple[tuple[str, str], ...]:
    return BACKEND.environment(prepared.compilation.inputs.toolchain, environment())


class _Call:
    """What one call asked for, and its build from source: made at most once, for all its devices."""

    def __init__(
        self,
        context: Any,
        source: str | bytes,
        options: str | Sequence[str],
        request: BuildRequest,
        devices: Sequence[Any] | None,
    ) -> None:
        self.context = context
        self.source = source
        self.options = options
        self._request = request
        self._named = devices
        self.devices = [device for device in context.devices if devices is None or device in devices]
        self.program: Any = None
        self.failed = False
        """Whether the compiler refused: then its error is what the program gets."""
        self.compile_ns = 0
        self.table: tuple[Check, ...] = ()
        """The failure table of what was built or loaded."""

    def plain(self) -> Any:
        """PyOpenCL's own build, as if gpucache were not there."""
        return self._built(
            lambda source: compiler.build_plainly(self.context, source, self._as_given(), self._named)
        )

    def load(self, layers: Layers, hits: Sequence[Hit]) -> Any:
        """The program of entries, one per device; raises CompileError if the driver rejects one."""
        self.table = hits[0].head.failures if hits else ()
        return compiler.build_binaries_as_pyopencl(
            self.context,
            self.source,
            self._as_given(),
            self.devices,
            [hit.payload for hit in hits],
            [partial(build_log, layers, hit) if hit.head.has_log else None for hit in hits],
        )

    def compiler(self, device: Any, prepared: Prepared) -> Callable[[], Artifact]:
        """What gives the artifact of one device."""

        def compile_() -> Artifact:
            request = prepared.request
            if self.program is None:
                options = for_pyopencl(request)
                self._built(
                    lambda source: compiler.build_as_pyopencl(self.context, source, options, self._named)
                )
            return compiler.artifact_of(self.program, device, request, self.compile_ns)

        return compile_

    def _as_given(self) -> str | Sequence[str]:
        """The options as the program gave them, with its folders."""
        if not self._request.include_dirs:
            return self.options
        given = shlex.split(self.options) if isinstance(self.options, str) else self.options
        return [*given, command_line(tuple(f"-I{path}" for path in self._request.include_dirs))]

    def _built(self, make: Callable[[str | bytes], Any]) -> Any:
        started = time.perf_counter_ns()
        try:
            self.program = make(self._checked())
        except BaseException:
            self.failed = True
            raise
        self.compile_ns = time.perf_counter_ns() - started
        return self.program

    def _checked(self) -> str | bytes:
        """The source as it is compiled; raises SourceError."""
        if self._request.checks is Checks.NONE:
            return self.source
        done = instrumented(self._request)
        self.table = done.table
        return done.source


class Batch(AnyBatch[Any, Any]):
    """Sources for one context that are compiled, kept and loaded as one program where they can be.

    The arguments are those of ``build_program``, and hold for all sources. ``add`` gives a ``Routine``;
    nothing is compiled before the ``kernel`` or ``program`` of one is asked for. Raises as
    ``build_program`` does, then. A failed check names the source that it stands in.
    """

    refused = cl.Error

    def __init__(
        self,
        context: Any,
        *,
        options: str | Sequence[str] | None = (),
        devices: Sequence[Any] | None = None,
        include_path: Sequence[str | Path] = (),
        local_sizes: Sequence[Sequence[int] | int] = (),
        headers: Sequence[str | Path] = (),
        checks: str = "none",
    ) -> None:
        super().__init__(checks)
        if not isinstance(context, cl.Context):
            raise TypeError(f"context must be a pyopencl.Context, not {context!r}")
        self._build = partial(
            build_program,
            context,
            options=options,
            devices=devices,
            include_path=include_path,
            local_sizes=local_sizes,
            headers=headers,
            checks=checks,
        )

    def add(self, source: str | bytes, *, name: str | None = None) -> Routine[Any, Any]:
        """A source to be built with the others; ``name`` stands in the compiler's messages."""
        return self._add(source, name)

    def build(self, part: Part, expressions: tuple[str, ...]) -> Any:  # noqa: ARG002 - C has no such names
        """A built ``pyopencl.Program``."""
        return self._build(part.source, name=part.name)

    def kernel_of(self, program: Any, name: str) -> Any:
        """A new ``pyopencl.Kernel``, whose arguments no other thread sets."""
        kernel = cl.Kernel(program, name)
        return program.knowing(kernel) if isinstance(program, CheckedProgram) else kernel
