"""``compile_program`` by key: the request of a call, its entry, or NVRTC in the caller's process.

Imported by the first call that no row answers. A program never fails because of the cache.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cuda.core import Device, ObjectCode

from gpucache.answers.lookup import Hit
from gpucache.backends.cuda import BACKEND, nvrtc
from gpucache.backends.interface import Compilation
from gpucache.backends.options import LOADED, split
from gpucache.checks import include_dirs
from gpucache.cuda.questions import MAKERS, object_code
from gpucache.engine.hits import find
from gpucache.engine.prepare import prepare_again
from gpucache.errors import CacheMissError, NoDeviceError, TargetError
from gpucache.host.environment import environment_since
from gpucache.library import arguments, outcomes, process
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Check, Checks, Language, Program, Target


def compiled(given: tuple[Any, ...], question: tuple[bytes, ...]) -> ObjectCode:
    """The code for the arguments of ``compile_program``. Raises as ``compile_program`` does.

    ``question`` is the question that a row will answer the next time; empty if none does.
    """
    request = _kept_request(given, arguments.current_directory())
    stores = process.stores()
    toolchain = nvrtc.compiler_of(request.target, stores)
    own = _OwnBuild(request)
    try:
        prepared = prepare_again(BACKEND, request, toolchain, environment_since(LOADED), stores)
        own.compilation = prepared.compilation
        met = find(stores, prepared, whole=True)
        if isinstance(met, Hit):
            outcome: Hit | Artifact = met
        else:
            from gpucache.engine.prepare import named
            from gpucache.library.missing import build, reason

            nvrtc.require_target(request.target)
            request = own.request = request._replace(program=named(request.program))
            prepared = prepared._replace(request=request)
            outcome = build(stores, prepared, own.compile, reason(stores, prepared, met))
        if isinstance(outcome, Hit):
            if question and stores.keeps:
                _keep_row(stores, prepared, question, is_new=met is not outcome)
            outcomes.tell(stores, prepared, outcome)
            head = outcome.head
            name = request.program.name or head.program
            return _object_code(request, name, outcome.payload, head.lowered_names, head.failures)
    except (CacheMissError, TargetError):
        raise
    except Exception as error:
        if own.failed:
            raise  # the compiler's own result
        from gpucache.engine.prepare import named

        request = own.request = request._replace(program=named(request.program))
        process.uncached(stores, request.program.name, error)
    else:
        if question and stores.keeps:
            _keep_row(stores, prepared, question, is_new=True)
    artifact = own.artifact or own.compile()
    table: tuple[Check, ...] = ()
    if request.checks is not Checks.NONE:
        from gpucache.checks.calls import instrumented

        table = instrumented(request).table
    return _object_code(request, request.program.name, artifact.payload, artifact.lowered_names, table)


_REQUESTS_KEPT = 64
_SOURCE_BYTES_KEPT = 256 << 10
_requests: dict[tuple[Any, ...], BuildRequest] = {}
"""The last requests by the arguments of their calls, as programs repeat calls."""


def _kept_request(given: tuple[Any, ...], cwd: str) -> BuildRequest:
    """The request of a call, made again only for other arguments; raises TypeError or ValueError."""
    asking = (*[tuple(value) if type(value) is list else value for value in given], cwd)
    target = given[1]
    try:
        request = _requests.get(asking)
        if request is not None:
            return request
        made = (_any_source if target is not None else _any_source.__wrapped__)(*asking[1:])
    except TypeError:  # an argument without a hash is an iterator, or is refused
        made = _any_source.__wrapped__(*given[1:], cwd)
        asking = ()
    text = arguments.source_bytes(given[0])
    dirs = (*made.include_dirs, *include_dirs(text, made.checks))
    request = made._replace(program=made.program._replace(source=text), include_dirs=dirs)
    if asking and target is not None and len(text) <= _SOURCE_BYTES_KEPT:
        if len(_requests) >= _REQUESTS_KEPT:
            _requests.clear()  # another thread may do so between any two of these lines
        _requests[asking] = request
    return request


@lru_cache(maxsize=64)
def _any_source(
    target: object,
    options: object,
    name: object,
    name_expressions: object,
    include_path: object,
    artifact_kind: object,
    headers: object,
    checks: object,
    cwd: str,
) -> BuildRequest:
    """The request of a call without its source, which is all that differs between many calls."""
    wanted = _target(arguments.text_or_none("target", target))
    kind = arguments.text_or_none("artifact_kind", artifact_kind)
    if kind and kind not in list(MAKERS):
        raise ValueError(f"artifact_kind must be one of {', '.join(MAKERS)}, not {kind!r}")
    return BuildRequest(
        program=Program(arguments.text_or_none("name", name) or "", Language.CUDA_CPP, b""),
        target=wanted,
        options=split(arguments.build_options(options)),
        include_dirs=arguments.paths("include_path", include_path),
        artifact_kind=ArtifactKind(kind) if kind else BACKEND.artifact_kind(wanted),
        name_expressions=arguments.texts("name_expressions", name_expressions),
        headers=arguments.paths("headers", headers, cwd),
        name_headers=arguments.NAME_HEADERS,
        cwd=cwd,
        searches_cwd=True,
        checks=arguments.checks_mode(checks),
    )


class _OwnBuild:
    def __init__(self, request: BuildRequest) -> None:
        self.request = request
        self.compilation: Compilation | None = None
        """How to compile; None to use the options as given, whose result is never stored."""
        self.artifact: Artifact | None = None
        self.failed = False
        """Whether NVRTC refused; the program then gets NVRTC's error."""

    def compile(self) -> Artifact:
        """Ask NVRTC; raises CompileError."""
        try:
            if self.compilation is None:
                self.artifact = nvrtc.compile_as_asked(self.request)
            else:
                self.artifact = nvrtc.compile_source(self.request, self.compilation)
        except BaseException:
            self.failed = True
            raise
        return self.artifact


def _object_code(
    request: BuildRequest,
    name: str,
    payload: bytes,
    names: Mapping[str, str],
    table: tuple[Check, ...],
) -> ObjectCode:
    """An ``ObjectCode`` that knows the checks of its kernels."""
    code = object_code(request.artifact_kind, name, payload, names)
    if request.checks is not Checks.NONE:
        from gpucache.backends.cuda.checked import remember
        from gpucache.checks.failures import Checked

        remember(code, Checked(name, request.checks, table))
    return code


def _keep_row(stores: Any, prepared: Any, question: tuple[bytes, ...], *, is_new: bool) -> None:
    """Have a row answer the next such call, once the code is kept."""
    from gpucache.library.missing import LATER

    def keep() -> None:
        from gpucache.library import rows
        from gpucache.serve.answering import Rows
        from gpucache.serve.nvrtc import keep_call
        from gpucache.serve.wire import Kind

        library = rows.library()
        if library is None or not library.begun_ns:
            return
        kept = Rows(stores, library.begun_ns, lambda found: library.holds(rows.COMPILE, question, found))
        if not is_new and not kept.is_due(Kind.COMPILE, question):
            return
        if why := keep_call(kept, stores, question, prepared):
            kept.note_none(Kind.COMPILE, question, why)

    LATER.add(stores, prepared, keep)


def _target(text: str | None) -> Target:
    if text is None:
        try:
            return Target("cuda", f"sm_{Device().arch}")
        except Exception as error:  # cuda.core's own, or a RuntimeError where the driver does not load
            raise NoDeviceError(
                "no CUDA device to compile for was found; name a target, such as target='sm_90'"
            ) from error
    return Target.parse(text if ":" in text else f"cuda:{text}")
