"""What a CUDA program imports: ``compile_program``, ``Batch``, ``CheckedStream``, ``ProgramCache``.

Compiles with NVRTC in the caller's process after a miss; needs neither a driver nor a GPU for a named
architecture. A program never fails because of the cache. Loads cuda.bindings and cuda.core.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from cuda.core import Device, ObjectCode
from cuda.core.utils import ProgramCacheResource

from gpucache import __version__
from gpucache.backends.cuda import BACKEND, nvrtc
from gpucache.backends.cuda.checked import CheckedStream, remember
from gpucache.backends.interface import Compilation
from gpucache.backends.options import split
from gpucache.checks import Checked, include_dirs, instrumented
from gpucache.engine.lookup import get_or_build, not_kept
from gpucache.engine.prepare import prepare_again
from gpucache.engine.program_names import program_name
from gpucache.engine.store_layers import Layers
from gpucache.errors import (
    CacheMissError,
    CacheUnusableError,
    CompileError,
    NoDeviceError,
)
from gpucache.host.environment import environment
from gpucache.keys import cache_key, digest
from gpucache.library import arguments, process
from gpucache.library.batch import Batch as AnyBatch
from gpucache.library.batch import Routine
from gpucache.library.joined_sources import Part
from gpucache.model import (
    Artifact,
    ArtifactKind,
    BuildRequest,
    CacheKey,
    Check,
    Checks,
    Entry,
    EntryDetail,
    EntryHead,
    KeyField,
    Language,
    Program,
    Target,
)
from gpucache.outcomes import Hit
from gpucache.payload import PayloadKind, describe
from gpucache.store.interface import Damaged, Event, Found, ScannedEntry

__all__ = ["Batch", "CheckedStream", "ProgramCache", "compile_program"]

NAMESPACE = "cuda.core program cache"
_KINDS = {PayloadKind.CUBIN: "cubin", PayloadKind.PTX: "ptx", PayloadKind.LTOIR: "ltoir"}

_MAKERS: Mapping[StrEnum, Any] = {
    ArtifactKind.CUBIN: ObjectCode.from_cubin,
    ArtifactKind.PTX: ObjectCode.from_ptx,
    ArtifactKind.LTOIR: ObjectCode.from_ltoir,
}


def compile_program(
    source: str | bytes,
    *,
    target: str | None = None,
    options: str | Sequence[str] = (),
    name: str | None = None,
    name_expressions: Sequence[str] = (),
    include_path: Sequence[str | Path] = (),
    artifact_kind: str | None = None,
    headers: Sequence[str | Path] = (),
    checks: str = "none",
) -> ObjectCode:
    """A ``cuda.core.ObjectCode`` of CUDA C++, from the cache where it is there.

    ``target`` is ``sm_90``, ``compute_90`` or such with ``cuda:`` before it; without one it is the
    current device's architecture. ``name_expressions`` are C++ names, such as ``"scale<float>"``,
    that ``ObjectCode.get_kernel`` then takes. ``include_path`` are the folders searched for
    headers, among which the current directory is only if it is named; ``headers`` are those reached
    through a macro, named by hand. ``artifact_kind`` is ``cubin``, ``ptx`` or ``ltoir``; without one
    the target decides. ``checks`` turns on the checks that kernels make with ``gpucache/check.h``:
    ``none``, ``sync`` or ``async``. Such kernels are launched by a ``CheckedStream``. The folder of that
    header is searched where the source names it.

    Raises TypeError or ValueError for an argument that cannot be meant, CompileError with NVRTC's log,
    SourceError for a check whose message does not fit its operands, TargetError, NoDeviceError, and
    CacheMissError where GPUCACHE_REQUIRE is set and the cache misses.
    """
    text = arguments.source_bytes(source)
    mode = arguments.checks_mode(checks)
    wanted = _target(arguments.text_or_none("target", target))
    kind = arguments.text_or_none("artifact_kind", artifact_kind)
    if kind and kind not in list(_MAKERS):
        raise ValueError(f"artifact_kind must be one of {', '.join(_MAKERS)}, not {kind!r}")
    request = BuildRequest(
        program=Program(arguments.text_or_none("name", name) or program_name(text), Language.CUDA_CPP, text),
        target=wanted,
        options=split(arguments.build_options(options)),
        include_dirs=(*arguments.paths("include_path", include_path), *include_dirs(text, mode)),
        artifact_kind=ArtifactKind(kind) if kind else BACKEND.artifact_kind(wanted),
        name_expressions=arguments.texts("name_expressions", name_expressions),
        headers=arguments.paths("headers", headers, arguments.current_directory()),
        name_headers=arguments.NAME_HEADERS,
        cwd=arguments.current_directory(),
        searches_cwd=True,
        checks=mode,
    )
    layers, toolchain = process.layers(), nvrtc.toolchain(wanted)
    own = _OwnBuild(request)
    try:
        prepared = prepare_again(BACKEND, request, toolchain, environment(), layers)
        own.compilation = prepared.compilation
        outcome = get_or_build(layers, prepared, own.compile)
        process.tell(layers, prepared, outcome)
        if isinstance(outcome, Hit):
            head = outcome.head
            return _object_code(request, outcome.payload, head.lowered_names, head.failures)
    except CacheMissError:
        raise
    except Exception as error:
        if own.failed:
            raise  # the compiler's own answer
        process.uncached(layers, request.program.name, error)
    artifact = own.artifact or own.compile()
    table = instrumented(request).table
    return _object_code(request, artifact.payload, artifact.lowered_names, table)


class _OwnBuild:
    """The compile of one call, made at most once."""

    def __init__(self, request: BuildRequest) -> None:
        self._request = request
        self.compilation: Compilation | None = None
        """How to compile; None for the options as they were given, which is never kept."""
        self.artifact: Artifact | None = None
        self.failed = False
        """Whether NVRTC refused: then its error is what the program gets."""

    def compile(self) -> Artifact:
        """Ask NVRTC; raises CompileError."""
        try:
            if self.compilation is None:
                self.artifact = nvrtc.compile_as_asked(self._request)
            else:
                self.artifact = nvrtc.compile_source(self._request, self.compilation)
        except BaseException:
            self.failed = True
            raise
        return self.artifact


def _object_code(
    request: BuildRequest, payload: bytes, names: Mapping[str, str], table: tuple[Check, ...]
) -> ObjectCode:
    """An ``ObjectCode`` as ``cuda.core.Program.compile`` makes one, with lowered names as bytes."""
    maker = _MAKERS[request.artifact_kind]
    lowered = {expression: name.encode() for expression, name in names.items()}
    code = maker(payload, name=request.program.name, symbol_mapping=lowered)
    if request.checks is not Checks.NONE:
        remember(code, Checked(request.program.name, request.checks, table))
    return code


def _target(text: str | None) -> Target:
    if text is None:
        try:
            return Target("cuda", f"sm_{Device().arch}")
        except Exception as error:  # cuda.core's own, or a RuntimeError where the driver does not load
            raise NoDeviceError(
                "no CUDA device is here to compile for; name a target, such as target='sm_90'"
            ) from error
    return Target.parse(text if ":" in text else f"cuda:{text}")


class Batch(AnyBatch[ObjectCode, Any]):
    """Sources for one architecture that are compiled, kept and loaded as one module where they can be.

    The arguments are those of ``compile_program``, and hold for all sources. ``add`` gives a ``Routine``;
    nothing is compiled before the ``kernel`` or ``program`` of one is asked for. Raises as
    ``compile_program`` does, then. A ``CheckedStream`` launches kernels of ``routine.program``; a failed
    check names the source that it stands in.
    """

    refused = CompileError

    def __init__(
        self,
        *,
        target: str | None = None,
        options: str | Sequence[str] = (),
        include_path: Sequence[str | Path] = (),
        artifact_kind: str | None = None,
        headers: Sequence[str | Path] = (),
        checks: str = "none",
    ) -> None:
        super().__init__(checks)
        self._build = partial(
            compile_program,
            target=target,
            options=options,
            include_path=include_path,
            artifact_kind=artifact_kind,
            headers=headers,
            checks=checks,
        )

    def add(
        self, source: str | bytes, *, name: str | None = None, name_expressions: Sequence[str] = ()
    ) -> Routine[ObjectCode, Any]:
        """A source to be built with the others; ``name`` stands in the compiler's messages."""
        return self._add(source, name, arguments.texts("name_expressions", name_expressions))

    def build(self, part: Part, expressions: tuple[str, ...]) -> ObjectCode:
        """A ``cuda.core.ObjectCode``, which loads itself when its first kernel is asked for."""
        return self._build(part.source, name=part.name, name_expressions=expressions)

    def kernel_of(self, program: ObjectCode, name: str) -> Any:
        """A ``cuda.core.Kernel``."""
        return program.get_kernel(name)


class ProgramCache(ProgramCacheResource):  # type: ignore[misc] # cuda.core publishes no types
    """A cache for ``cuda.core.Program.compile(cache=...)``, kept in gpucache's root.

    cuda.core hands over 32 opaque bytes, so these entries live in a namespace of their own and can
    say no more of themselves than ``opaque-key``; they are checked and bounded like all others.
    ``compile_program`` is the better door: it keys headers and keeps the lowered names of templates.

    A damaged entry is a miss. Storing never fails because of the cache: where nothing can be kept,
    nothing is, and a line is logged.
    """

    def __init__(self, layers: Layers | None = None) -> None:
        self._layers = layers if layers is not None else process.layers()

    def __getitem__(self, key: bytes | str) -> bytes:
        wanted = _key(key)
        if not self._layers.disabled:
            for store in self._layers.on_disk():
                answer = store.get(wanted)
                if isinstance(answer, Found):
                    return answer.payload
                if isinstance(answer, Damaged):
                    process.say_once(f"an entry of cuda.core was {answer.damage}: {answer.detail}")
        if self._layers.require:
            raise CacheMissError(
                "a program of cuda.core is not in the cache, and GPUCACHE_REQUIRE is set: opaque-key: "
                "cuda.core tells nothing of it; gpucache.cuda.compile_program can say why"
            )
        raise KeyError(key)

    def __setitem__(self, key: bytes | str, value: bytes | bytearray | memoryview | ObjectCode) -> None:
        entry = _entry(key, _payload(value))
        store = self._layers.target
        if store is None:
            return
        try:
            store.publish(entry)
        except (OSError, CacheUnusableError) as error:
            process.say_once(f"programs of cuda.core are not kept: {not_kept(store.root, error)}")
            return
        store.record(NAMESPACE, Event(entry.head.created_ns, "built", str(entry.key), entry.head.target))
        if self._layers.trim is not None:
            with suppress(OSError, CacheUnusableError):
                self._layers.trim()

    def __delitem__(self, key: bytes | str) -> None:
        wanted = _key(key)
        for scanned in self._own():
            if scanned.key == wanted and self._layers.target is not None:
                self._layers.target.remove(scanned, "deleted by its program")
                return
        raise KeyError(key)

    def __len__(self) -> int:
        return sum(1 for _ in self._own())

    def clear(self) -> None:
        """Remove every entry of this namespace."""
        for scanned in self._own():
            if self._layers.target is not None:
                self._layers.target.remove(scanned, "cleared by its program")

    def _own(self) -> Iterator[ScannedEntry]:
        if self._layers.user is not None:
            with suppress(CacheUnusableError):  # nothing can be said of a root that cannot be listed
                for scanned in self._layers.user.scan():
                    if scanned.head is not None and scanned.head.program == NAMESPACE:
                        yield scanned


def _fields(key: bytes | str) -> tuple[KeyField, ...]:
    if not isinstance(key, str | bytes | bytearray):
        raise TypeError(f"cache keys must be bytes or str, got {type(key).__name__}")
    opaque = key.encode() if isinstance(key, str) else bytes(key)
    return (KeyField("namespace", NAMESPACE), KeyField("opaque key", opaque.hex()))


def _key(key: bytes | str) -> CacheKey:
    return cache_key(_fields(key))


def _entry(key: bytes | str, payload: bytes) -> Entry:
    info = describe(payload)
    head = EntryHead(
        program=NAMESPACE,
        target=f"cuda:{info.architecture}" if info.architecture else "cuda:unknown",
        artifact_kind=_KINDS.get(info.kind, info.kind.value),
        created_ns=time.time_ns(),
        compile_ns=0,
        payload_sha256=digest(payload),
    )
    fields = _fields(key)
    return Entry(cache_key(fields), head, EntryDetail(fields, "", __version__), payload)


def _payload(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, ObjectCode):
        code = value.code
        return Path(code).read_bytes() if isinstance(code, str) else bytes(code)
    raise TypeError(f"cache values must be bytes-like or ObjectCode, got {type(value).__name__}")
