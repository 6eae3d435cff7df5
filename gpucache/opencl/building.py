"""One build of a PyOpenCL program: from entries, by its compiler, or by PyOpenCL as without gpucache.

A program never fails because of the cache: any fault of the cache ends in a plain build by PyOpenCL.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyopencl as cl

from gpucache.answers.lookup import Hit
from gpucache.backends.opencl import BACKEND, compiler, platforms
from gpucache.backends.opencl.options import as_pyopencl_reads, command_line
from gpucache.backends.options import LOADED
from gpucache.engine.hits import build_log, find_all
from gpucache.engine.prepare import Prepared, prepare_again
from gpucache.engine.stores import Stores
from gpucache.errors import CacheMissError, CompileError
from gpucache.host.environment import environment_since
from gpucache.library import outcomes, process
from gpucache.model import BuildRequest, Check, Checks, Target
from gpucache.opencl import pyopencl_builds

ANY = Target(BACKEND.name, "any")
"""The target of a request until it is known which devices of the context it is for."""


def built(stores: Stores, request: BuildRequest, call: "Call") -> Any:
    if call.names_odd_devices:
        return call.plain()
    try:
        options = (*request.options, *as_pyopencl_reads(call.options), *_of_platform(call.context))
        request = request._replace(options=options)
        prepared = [_prepare(stores, device, request) for device in call.devices]
        if not call.reuse:
            return _answer(stores, prepared, call)
        from gpucache.opencl.reuse import reused

        try:
            program, call.table = reused(
                call.context, call.devices, prepared, lambda: (_answer(stores, prepared, call), call.table)
            )
        except cl.Error:
            call.failed = True  # the compiler's result, of this call or of the one that it waited for
            raise
        return program
    except (CacheMissError, Warning):
        raise
    except Exception as error:
        if call.failed:
            raise  # the compiler's own result
        from gpucache.engine.prepare import named

        process.uncached(stores, named(request.program).name, error)
    return call.program or call.plain()


def _of_platform(context: Any) -> Sequence[str]:
    """Options that PyOpenCL adds to each build on a platform, such as after ``pyopencl.enable_debugging``."""
    return cl._PLAT_BUILD_OPTIONS.get(context.devices[0].platform.name, [])


def _prepare(stores: Stores, device: Any, request: BuildRequest) -> Prepared:
    return prepare_again(
        BACKEND, request, platforms.toolchain(device, stores), environment_since(LOADED, cl.__name__), stores
    )


def _answer(stores: Stores, prepared: Sequence[Prepared], call: "Call") -> Any:
    """The program made from entries if all devices hit; else the compiler's, which is then stored."""
    found = find_all(stores, prepared)
    hits = [answer for answer in found if isinstance(answer, Hit)]
    if len(hits) < len(found):
        from gpucache.opencl.missing import answer_miss

        return answer_miss(stores, prepared, found, call)
    try:
        program = call.load(stores, prepared, hits)
    except CompileError as rejected:
        from gpucache.opencl.missing import replace_rejected

        return replace_rejected(stores, prepared, hits, call, str(rejected))
    if call.question and stores.keeps:
        from gpucache.opencl.missing import keep_row

        keep_row(stores, prepared, call, is_new=False)
    for device, one, hit in zip(call.devices, prepared, hits, strict=True):
        outcomes.tell(stores, one, hit)
        if one.compilation.inputs.local_sizes and one.lacking_sizes(hit.head):
            from gpucache.opencl.missing import learn_sizes

            learn_sizes(stores, device, one, hit)
    return program


class Call:
    """The request of one call, and its build from source: made at most once, for all its devices."""

    def __init__(
        self,
        context: Any,
        source: str | bytes,
        options: str | Sequence[str],
        request: BuildRequest,
        devices: Sequence[Any] | None,
        cache_dir: str | None = None,
        question: tuple[bytes, ...] = (),
        *,
        reuse: bool = False,
    ) -> None:
        self.context = context
        self.reuse = reuse
        self.source = source
        self.options = options
        self._request = request
        self.named = devices
        self._cache_dir = cache_dir  # the directory in which PyOpenCL keeps its builds
        self.question = question
        """The question that a row would answer; empty if none does."""
        self.devices = [device for device in context.devices if devices is None or device in devices]
        self.names_odd_devices = devices is not None and len(self.devices) != len(devices)
        """Whether it names no device, one twice, or another context's; PyOpenCL then reports the error."""
        self.created: Any = None
        """The binding's program that is to be built on a miss, if the caller has made it."""
        self.program: Any = None
        self.failed = False
        """Whether the compiler refused; the program then gets the compiler's error."""
        self.compile_ns = 0
        self.table: tuple[Check, ...] = ()

    def plain(self) -> Any:
        """PyOpenCL's own build, as if gpucache were not there."""
        if self._request.options or self.created:  # constants, which PyOpenCL's own class does not set
            return self.build_created(self.options, self._request)
        return self.build_by(
            lambda source: pyopencl_builds.build_plainly(
                self.context, source, self._as_given(), self.named, self._cache_dir
            )
        )

    def build_created(self, options: str | Sequence[str], request: BuildRequest) -> Any:
        """PyOpenCL's build without its cache, of a program with its specialization constants."""
        return self.build_by(
            lambda source: pyopencl_builds.build_as_pyopencl(
                self.context,
                source,
                options,
                self.named,
                self.created or compiler.created(self.context, source, request),
            )
        )

    def load(self, stores: Stores, prepared: Sequence[Prepared], hits: Sequence[Hit]) -> Any:
        """The program of entries, one per device; raises CompileError if the driver rejects one."""
        self.table = hits[0].head.failures if hits else ()
        return pyopencl_builds.build_binaries_as_pyopencl(
            self.context,
            self.source,
            self._as_given(),
            self.devices,
            [hit.payload for hit in hits],
            [
                partial(build_log, stores, one, hit) if hit.head.has_log else None
                for one, hit in zip(prepared, hits, strict=True)
            ],
        )

    def _as_given(self) -> str | Sequence[str]:
        """The options as the program gave them, with its directories."""
        if not self._request.include_dirs:
            return self.options
        import shlex

        given = shlex.split(self.options) if isinstance(self.options, str) else self.options
        return [*given, command_line(tuple(f"-I{path}" for path in self._request.include_dirs))]

    def build_by(self, make: Callable[[str | bytes], Any]) -> Any:
        """The program that ``make`` makes from the compiled source; raises the errors of ``make``."""
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
        from gpucache.checks.calls import instrumented  # few programs have checks

        done = instrumented(self._request)
        self.table = done.table
        return done.source
