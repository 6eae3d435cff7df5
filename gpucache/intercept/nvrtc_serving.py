"""NVRTC compiles of a command, served from the cache and published.

Owns what is known of each compile from the question to its end. What comes out of one compile is kept as an
entry for each kind of artifact, all under the same inputs: a cubin can then be loaded, listed, verified and
evicted like any other, and PTX that nobody asks for costs no hit anything but its own bytes. The first kind
decides whether there is a hit. What a hit does not bring is compiled by the command when it asks for it.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from threading import Event, Lock

from gpucache.engine.explain import explain
from gpucache.engine.journal import note_miss, note_process
from gpucache.engine.layers import Layers, NoEntry
from gpucache.engine.lookup import LOG_LIMIT, build, build_log, find, publish
from gpucache.engine.prepare import Prepared, of_kind
from gpucache.errors import GpucacheError
from gpucache.intercept.nvrtc import Call, prepare_call, read_call
from gpucache.intercept.server import HEARD, PASSED, Handlers, Reply
from gpucache.intercept.wire import Fields, Kind, WireError, number
from gpucache.model import Artifact, ArtifactKind, CacheKey
from gpucache.outcomes import Built, Hit, Intercepted, RunResult

_PUBLISH_WAIT_S = 2.0
"""How long a compile waits for the same one to be published."""
_SINGLE_FLIGHT_S = 5.0
_ALSO: Mapping[ArtifactKind, tuple[ArtifactKind, ...]] = {ArtifactKind.CUBIN: (ArtifactKind.PTX,)}
"""What else comes out of a compile, by what it is for."""


@dataclass
class _Compile:
    """One compile that is to be told of."""

    call: Call
    prepared: Prepared
    found: NoEntry
    outcome: Intercepted
    wanted: bool
    """Whether the command was asked for artifacts."""


@dataclass(frozen=True, slots=True)
class _Given:
    """What NVRTC gave."""

    code: int
    compile_ns: int
    log: bytes
    artifacts: Mapping[str, bytes]
    names: Mapping[str, str]


class NVRTCServing:
    """Answers a command's calls of NVRTC from layers of the cache."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._lock = Lock()
        self._tokens = count(1)
        self._compiles: dict[bytes, _Compile] = {}
        self._done: list[Intercepted] = []
        self._publishing: dict[CacheKey, Event] = {}

    @property
    def handlers(self) -> Handlers:
        """What answers each kind of request."""
        return {Kind.COMPILE: self._compile, Kind.COMPILED: self._compiled}

    def begin(self) -> None:
        """Nothing: an NVRTC is known when it is called."""

    def finish(self) -> Sequence[Intercepted]:
        """What became of every compile, after the command's end."""
        for one in self._compiles.values():
            note_miss(self._layers, one.prepared, explain(self._layers, one.prepared, one.found))
            self._done.append(replace(one.outcome, reason="its process ended before the compile did"))
        self._compiles.clear()
        hits = sum(one.result is RunResult.HIT for one in self._done)
        misses = sum(one.result not in (RunResult.HIT, RunResult.PASSED) for one in self._done)
        if hits + misses:
            note_process(self._layers, hits, misses)
        return tuple(self._done)

    def _compile(self, fields: Fields) -> Reply:
        started_ns = time.perf_counter_ns()
        call = read_call(fields)
        if call.is_ours:
            return PASSED
        try:
            prepared = prepare_call(call, self._layers)
        except GpucacheError as error:
            name = call.file_name.given
            self._tell(Intercepted(name, "", RunResult.PASSED, reason=str(error)))
            return Reply(Kind.PASS, (b"",))
        self._wait_for(prepared.key)
        answer = self._answer(call, prepared)
        request = prepared.request
        outcome = Intercepted(request.program.name, str(request.target), RunResult.LEFT)
        if isinstance(answer, NoEntry):
            wanted = self._layers.target is not None and prepared.refusal is None
            token = number(next(self._tokens))
            with self._lock:
                self._compiles[token] = _Compile(call, prepared, answer, outcome, wanted)
            return Reply(Kind.MISS, (token, number(wanted)))
        hits, log = answer
        found = hits[0]
        self._tell(
            replace(
                outcome,
                result=RunResult.HIT,
                key=str(found.key),
                build_ns=time.perf_counter_ns() - started_ns,
                saved_ns=found.head.compile_ns,
            )
        )
        return Reply(Kind.HIT, (b"", *_fields(call, hits, log)))

    def _answer(self, call: Call, prepared: Prepared) -> tuple[list[Hit], bytes] | NoEntry:
        """Sound entries of what comes out, the first kind first, and what NVRTC said."""
        found = find(self._layers, prepared)
        if isinstance(found, NoEntry):
            return found
        if not found.head.lowered_names.keys() >= set(call.name_expressions):
            return NoEntry()
        log = build_log(self._layers, found) if found.head.has_log else ""
        if found.head.has_log and not log:
            return NoEntry()  # what NVRTC said is gone, and the program may read it
        others = (find(self._layers, one) for one in _others(prepared))
        hits = [found, *(one for one in others if isinstance(one, Hit))]
        return hits, log.encode(errors="surrogateescape")

    def _compiled(self, fields: Fields) -> Reply:
        token, given = fields.take(), _given(fields)
        with self._lock:
            one = self._compiles.pop(token, None)
        if one is None:
            raise WireError("no compile has this token")
        one.outcome = replace(one.outcome, build_ns=given.compile_ns)
        published = Event()
        if one.wanted and given.code == 0:
            self._publishing[one.prepared.key] = published

        def settle() -> None:
            try:
                self._tell(self._settled(one, given))
            finally:
                published.set()

        return Reply(HEARD.kind, then=settle)

    def _settled(self, one: _Compile, given: _Given) -> Intercepted:
        """Publish what was compiled; what became of it."""
        miss = explain(self._layers, one.prepared, one.found)
        outcome = replace(one.outcome, verdict=miss.verdict, reason=miss.detail, key=str(one.prepared.key))
        if given.code != 0:
            note_miss(self._layers, one.prepared, miss)
            return replace(outcome, result=RunResult.FAILED)
        artifact = _artifact(one, given, one.prepared)
        if artifact is None:
            note_miss(self._layers, one.prepared, miss)
            return outcome
        kept = build(self._layers, one.prepared, lambda: artifact, miss, wait_s=_SINGLE_FLIGHT_S)
        if isinstance(kept, Built) and kept.key is None:
            return replace(outcome, reason=kept.note)
        for other in _others(one.prepared):
            also = _artifact(one, given, other)
            if also is not None and self._layers.target is not None:
                publish(self._layers, self._layers.target, other, also, miss)
        return replace(outcome, result=RunResult.KEPT, key=str(kept.key))

    def _tell(self, outcome: Intercepted) -> None:
        with self._lock:
            self._done.append(outcome)

    def _wait_for(self, key: CacheKey) -> None:
        """Wait while a compile of the same key is published, so that a program's next process finds it."""
        published = self._publishing.get(key)
        if published is not None:
            published.wait(_PUBLISH_WAIT_S)
            self._publishing.pop(key, None)


def _others(prepared: Prepared) -> Iterator[Prepared]:
    """The same inputs for what else comes out of a compile."""
    kind = ArtifactKind(prepared.request.artifact_kind)
    return (of_kind(prepared, other) for other in _ALSO.get(kind, ()))


def _fields(call: Call, hits: Sequence[Hit], log: bytes) -> Iterator[bytes]:
    """What a program is answered."""
    own = call.file_name.to_give
    yield own(log)
    yield number(len(hits))
    for hit in hits:
        yield from (hit.head.artifact_kind.encode(), own(hit.payload))
    yield number(len(call.name_expressions))
    for expression in call.name_expressions:
        lowered = hits[0].head.lowered_names[expression]
        yield from (os.fsencode(expression), own(os.fsencode(lowered)))


def _given(fields: Fields) -> _Given:
    code, compile_ns, log = fields.number(), fields.number(), fields.take()
    artifacts = {fields.text(): fields.take() for _ in range(fields.count())}
    names = {fields.text(): fields.text() for _ in range(fields.count())}
    fields.end()
    return _Given(code, compile_ns, log, artifacts, names)


def _artifact(one: _Compile, given: _Given, prepared: Prepared) -> Artifact | None:
    """What is kept of one kind; None if NVRTC gave none."""
    kind = ArtifactKind(prepared.request.artifact_kind)
    payload, name = given.artifacts.get(kind.value), one.call.file_name
    if payload is None:
        return None
    kept = name.to_keep(payload), name.to_keep(given.log)
    names = {key: os.fsdecode(name.to_keep(os.fsencode(value))) for key, value in given.names.items()}
    log = kept[1].decode(errors="surrogateescape")
    refusal = None
    if (*kept, names) != (payload, given.log, given.names) and not _is_of_name(one):
        refusal = "what its file name has of this run may also come from its source"
    elif len(log.encode(errors="surrogatepass")) > LOG_LIMIT:
        refusal = "what the compiler said is longer than an entry keeps"
    return Artifact(kind, kept[0], log, given.compile_ns, names, refusal=refusal)


def _is_of_name(one: _Compile) -> bool:
    """Whether what was made up in a file name is in no text that was read, so that it came from the name."""
    try:
        return not one.call.file_name.is_elsewhere(_texts(one))
    except OSError:
        return False


def _texts(one: _Compile) -> Iterator[bytes]:
    """All that a compile reads but the name of its source."""
    yield one.call.source
    for header, text in one.call.headers:
        yield from (os.fsencode(header), text)
    yield from map(os.fsencode, (*one.call.options, *one.call.name_expressions))
    for file in one.prepared.closure.files:
        yield Path(file).read_bytes()
