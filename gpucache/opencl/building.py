"""One build of a PyOpenCL program: from entries, by its compiler, or by PyOpenCL as if we were not there.

A program never fails because of the cache: what goes wrong with it ends in a plain build by PyOpenCL.
"""

import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyopencl as cl
from pyopencl.tools import is_spirv

from gpucache.backends.opencl import BACKEND, compiler, platforms
from gpucache.backends.opencl.options import as_pyopencl_reads, command_line, for_pyopencl
from gpucache.checks import instrumented
from gpucache.engine.lookup import build, build_log, look_up, require_hit
from gpucache.engine.missed import discard, leave, note_lacking
from gpucache.engine.prepare import Prepared, prepare_again
from gpucache.engine.store_layers import Layers
from gpucache.errors import CacheMissError, CompileError, SourceError
from gpucache.host.environment import environment
from gpucache.library import process
from gpucache.model import Artifact, BuildRequest, Check, Checks, Target
from gpucache.outcomes import Built, Hit, Miss, Verdict

ANY = Target(BACKEND.name, "any")
"""The target of a request until it is known which devices of the context it is for."""


def built(layers: Layers, request: BuildRequest, call: "Call") -> Any:
    """The program as the cache or the compiler gives it."""
    if call.names_odd_devices:
        return call.plain()
    try:
        if is_spirv(call.source):
            raise SourceError("its source is SPIR-V, which gpucache does not keep; give it OpenCL C")
        options = (*as_pyopencl_reads(call.options), *_of_platform(call.context))
        request = request._replace(options=options)
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
    request = request._replace(target=platforms.target_of(device))
    return prepare_again(BACKEND, request, platforms.toolchain(device), environment(), layers)


def _answer(layers: Layers, prepared: Sequence[Prepared], call: "Call") -> Any:
    """The program from entries for all devices, or as the compiler gives it, which is then kept."""
    found = [look_up(layers, one) for one in prepared]
    misses = [(one, answer) for one, answer in zip(prepared, found, strict=True) if isinstance(answer, Miss)]
    for one, miss in misses:
        require_hit(layers, one, miss)
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


def _loaded(layers: Layers, prepared: Sequence[Prepared], hits: Sequence[Hit], call: "Call") -> Any:
    """The program from its entries; what the driver rejects is compiled again."""
    try:
        program = call.load(layers, hits)
    except CompileError as rejected:
        misses = [(one, Miss(Verdict.REJECTED, str(rejected))) for one in prepared]
        for one, miss in misses:
            require_hit(layers, one, miss)
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
    layers: Layers, prepared: Sequence[Prepared], outcomes: Sequence[Hit | Built], call: "Call"
) -> Any:
    """What the compiler gave, or the program of entries that another process published meanwhile."""
    for one, outcome in zip(prepared, outcomes, strict=True):
        process.tell(layers, one, outcome)
    if call.program is not None:
        return call.program
    return call.load(layers, [outcome for outcome in outcomes if isinstance(outcome, Hit)])


def _left(layers: Layers, misses: Sequence[tuple[Prepared, Miss]], call: "Call") -> Any:
    """The program built by PyOpenCL as if gpucache were not there; what a late compiler's wanted is noted."""
    program = call.plain()
    for one, miss in misses:
        plain = leave(layers, one, miss, call.compile_ns, _environment(one))
        process.tell(layers, one, plain)
        process.learn(layers, plain.noted)
    return program


def _environment(prepared: Prepared) -> tuple[tuple[str, str], ...]:
    return BACKEND.environment(prepared.compilation.inputs.toolchain, environment())


class Call:
    """What one call asked for, and its build from source: made at most once, for all its devices."""

    def __init__(
        self,
        context: Any,
        source: str | bytes,
        options: str | Sequence[str],
        request: BuildRequest,
        devices: Sequence[Any] | None,
        cache_dir: str | None = None,
    ) -> None:
        self.context = context
        self.source = source
        self.options = options
        self._request = request
        self._named = devices
        self._cache_dir = cache_dir  # where PyOpenCL is to keep what it builds
        self.devices = [device for device in context.devices if devices is None or device in devices]
        self.names_odd_devices = devices is not None and len(self.devices) != len(devices)
        """Whether it names none, one twice or another context's, to which PyOpenCL has the answer."""
        self.program: Any = None
        self.failed = False
        """Whether the compiler refused: then its error is what the program gets."""
        self.compile_ns = 0
        self.table: tuple[Check, ...] = ()
        """The failure table of what was built or loaded."""

    def plain(self) -> Any:
        """PyOpenCL's own build, as if gpucache were not there."""
        return self._built(
            lambda source: compiler.build_plainly(
                self.context, source, self._as_given(), self._named, self._cache_dir
            )
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
