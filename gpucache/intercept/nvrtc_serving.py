"""NVRTC compiles of a command, served from the cache and published.

Owns what is known of each compile from the question to its end. What comes out of one compile is kept as an
entry for each kind of artifact, all under the same inputs: a cubin can then be loaded, listed, verified and
evicted like any other, and PTX that nobody asks for costs no hit anything but its own bytes. A hit has all of
them or is none, as a program may ask for any, and nothing could make one later: what NVRTC reads may change.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from threading import Event, Lock

from gpucache.answers.lookup import Built, Hit, Miss
from gpucache.answers.run import Intercepted, RunResult
from gpucache.engine.explain import explain
from gpucache.engine.journal import note_miss, note_process
from gpucache.engine.lookup import LOG_LIMIT, build, build_log, find, publish, why_not_kept
from gpucache.engine.nearest import was_ever_built
from gpucache.engine.prepare import Prepared, of_kind
from gpucache.engine.store_layers import Layers, NoEntry
from gpucache.errors import GpucacheError
from gpucache.intercept.answering import Question, Rows, of_compile
from gpucache.intercept.nvrtc import Call, prepare_call, read_call
from gpucache.intercept.server import HEARD, PASSED, Handlers, Reply
from gpucache.intercept.telling import Say, hit_line, is_required, miss_line, refused, silent
from gpucache.intercept.wire import TOO_LARGE, Fields, Kind, WireError, fits, number
from gpucache.model import GIVEN_WITH, Artifact, ArtifactKind, CacheKey, Language, Program
from gpucache.sources import is_settled

_PUBLISH_WAIT_S = 2.0
"""How long a compile waits for the same one to be published."""
_SINGLE_FLIGHT_S = 5.0
_UNKNOWN_WAIT_S = 0.05
"""How long a program waits for the headers of a source to be read that nobody has seen before."""
_YOUNG_NS = 2_000_000_000
"""How far clocks of file systems may be behind."""
_WORKERS = 8
_FIRST_PAYLOAD = 4
"""Where that stands in an answer, behind its kind; the others follow likewise."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is known of a compile when it is looked up."""

    prepared: Prepared
    found: "tuple[list[Hit], bytes] | Lacking"
    """Sound entries of all that comes out, the first kind first, with what NVRTC said."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """The kind of artifact by which a compile is no hit."""

    prepared: Prepared
    answer: NoEntry

    def explain(self, layers: Layers) -> Miss:
        """Why it is not there."""
        return explain(layers, self.prepared, self.answer)


@dataclass(frozen=True, slots=True)
class _Compile:
    """One compile that is to be told of."""

    question: Question
    call: Call
    asked: "Future[_Asked]"
    asked_ns: int
    """By the clock that all builds of a run share."""
    begun_ns: int
    """When it was asked for; 0 if the command waited for the lookup, and compiled afterwards."""


@dataclass(frozen=True, slots=True)
class _Given:
    """What NVRTC gave."""

    code: int
    compile_ns: int
    """Without what it waited for other compiles of its process."""
    log: bytes
    artifacts: Mapping[str, bytes]
    names: Mapping[str, str]


class NVRTCServing:
    """Answers a command's calls of NVRTC from layers of the cache."""

    def __init__(self, layers: Layers, say: Say = silent) -> None:
        """``say`` is told each hit and each miss when it is known."""
        self._layers = layers
        self._say = say
        self._lock = Lock()
        self._tokens = count(1)
        self._compiles: dict[bytes, _Compile] = {}
        self._workers = ThreadPoolExecutor(_WORKERS, "gpucache-nvrtc")
        self._done: list[Intercepted] = []
        self._publishing: dict[CacheKey, Event] = {}
        self._rows = Rows(layers)

    @property
    def handlers(self) -> Handlers:
        """What answers each kind of request."""
        return {Kind.COMPILE: self._compile, Kind.COMPILED: self._compiled}

    def finish(self) -> Sequence[Intercepted]:
        """What became of every compile, after the command's end."""
        self._workers.shutdown(wait=False, cancel_futures=True)
        for one in self._compiles.values():
            if _is_known(one.asked):
                prepared, found = one.asked.result().prepared, one.asked.result().found
                if isinstance(found, Lacking):
                    note_miss(self._layers, prepared, found.explain(self._layers))
                outcome = _outcome(prepared, RunResult.LEFT)
                self._done.append(replace(outcome, reason="its process ended before the compile did"))
        self._compiles.clear()
        hits = sum(one.result is RunResult.HIT for one in self._done)
        misses = sum(one.result not in (RunResult.HIT, RunResult.PASSED) for one in self._done)
        if hits + misses:
            note_process(self._layers, hits, misses)
        return tuple(self._done)

    def _compile(self, fields: Fields) -> Reply:
        started_ns, now_ns = time.perf_counter_ns(), time.time_ns()
        question = fields.rest()
        call = read_call(Fields(question))
        if call.is_ours:
            return PASSED
        required = is_required(call.environ)
        asked = self._workers.submit(self._ask, call)
        try:
            answer = asked.result(_UNKNOWN_WAIT_S if not required and self._is_unknown(call) else None)
        except TimeoutError:
            return self._miss(_Compile(question, call, asked, started_ns, now_ns), wanted=True)
        except GpucacheError as error:
            outcome = Intercepted(call.file_name.given, "", RunResult.PASSED, reason=str(error))
            if required:
                return self._refuse(outcome)
            self._say(miss_line(outcome))
            self._tell(outcome)
            return PASSED
        if isinstance(answer.found, Lacking):
            if required:
                miss = answer.found.explain(self._layers)
                note_miss(self._layers, answer.prepared, miss)
                outcome = _outcome(answer.prepared, RunResult.LEFT)
                return self._refuse(replace(outcome, verdict=miss.verdict, reason=miss.detail))
            wanted = self._layers.target is not None and answer.prepared.refusal is None
            return self._miss(_Compile(question, call, asked, started_ns, 0), wanted=wanted)
        hits, log = answer.found
        told = tuple(answer_fields(call, hits, log))
        outcome = replace(_outcome(answer.prepared, RunResult.HIT), key=str(hits[0].key))
        if not fits(told):
            self._tell(replace(outcome, result=RunResult.PASSED, reason=TOO_LARGE))
            return PASSED
        took_ns = time.perf_counter_ns() - started_ns
        saved_ns = hits[0].head.compile_ns
        self._tell(replace(outcome, begun_ns=started_ns, build_ns=took_ns, saved_ns=saved_ns))
        self._say(hit_line(outcome, hits[0]))
        return Reply(Kind.HIT, told, then=lambda: self._keep_row(question, call, answer.prepared, hits, told))

    def _keep_row(
        self, question: Question, call: Call, prepared: Prepared, hits: Sequence[Hit], told: Sequence[bytes]
    ) -> None:
        """Have the index answer the next time."""
        self._rows.keep(
            lambda strict: of_compile(question, call, prepared, hits, told, strict),
            hits,
            [_FIRST_PAYLOAD + 2 * number for number in range(len(hits))],
            target=str(prepared.request.target),
            saved_ns=hits[0].head.compile_ns,
        )

    def _refuse(self, outcome: Intercepted) -> Reply:
        """Have a compile fail, because its program demands a hit."""
        outcome, reply = refused(outcome)
        self._say(miss_line(outcome))
        self._tell(outcome)
        return reply

    def _is_unknown(self, call: Call) -> bool:
        """Whether no build of a source is recorded, so that there is no entry of it.

        Its headers may take longer to read than is fit to let a program wait in vain. Records may be lost:
        then an entry that is there all the same is found the next time, as the headers are remembered.
        """
        if self._layers.target is None:
            return False
        program = Program(call.file_name.kept, Language.CUDA_CPP, call.source)
        return not was_ever_built(self._layers.on_disk(), program)

    def _miss(self, one: _Compile, *, wanted: bool) -> Reply:
        token = number(next(self._tokens))
        with self._lock:
            self._compiles[token] = one
        return Reply(Kind.MISS, (token, number(wanted)))

    def _ask(self, call: Call) -> _Asked:
        """Look a call up; raises GpucacheError for one that cannot be kept."""
        prepared = prepare_call(call, self._layers)
        self._wait_for(prepared.key)
        return _Asked(prepared, find_all(self._layers, call, prepared))

    def _compiled(self, fields: Fields) -> Reply:
        token, given, ended_ns = fields.take(), _given(fields), time.perf_counter_ns()
        with self._lock:
            one = self._compiles.pop(token, None)
        if one is None:
            raise WireError("no compile has this token")
        published = Event()
        if _is_known(one.asked) and given.code == 0:
            self._publishing[one.asked.result().prepared.key] = published

        def settle() -> None:
            try:
                outcome = self._settled(one, given)
                self._say(miss_line(outcome, given.compile_ns))
                self._tell(replace(outcome, begun_ns=one.asked_ns, build_ns=ended_ns - one.asked_ns))
            finally:
                published.set()

        return Reply(HEARD.kind, then=settle)

    def _settled(self, one: _Compile, given: _Given) -> Intercepted:
        """Publish what was compiled; what became of it."""
        try:
            asked = one.asked.result()
        except GpucacheError as error:
            return Intercepted(one.call.file_name.given, "", RunResult.PASSED, reason=str(error))
        prepared = asked.prepared
        lacking = asked.found if isinstance(asked.found, Lacking) else Lacking(prepared, NoEntry())
        miss = lacking.explain(self._layers)
        outcome = replace(
            _outcome(prepared, RunResult.LEFT),
            key=str(prepared.key),
            verdict=miss.verdict,
            reason=miss.detail,
        )
        if given.code != 0:
            note_miss(self._layers, prepared, miss)
            return replace(outcome, result=RunResult.FAILED)
        kinds = (prepared, *_others(prepared))
        if prepared.refusal is not None or self._layers.target is None:
            note_miss(self._layers, prepared, miss)
            return replace(outcome, reason=why_not_kept(self._layers, miss)[0])
        if any(_kind(kind).value not in given.artifacts for kind in kinds):
            note_miss(self._layers, prepared, miss)
            return replace(outcome, reason="NVRTC did not return all the artifacts, so nothing was kept")
        refusal = _refusal(one, given, prepared)
        for kind in kinds:
            artifact = _artifact(one, given, _kind(kind), refusal)
            kept = self._keep(kind, artifact, miss, is_first=kind is prepared)
            if isinstance(kept, Built) and kept.key is None:
                return replace(outcome, reason=kept.note)
        found = find_all(self._layers, one.call, prepared)
        if not isinstance(found, Lacking):
            told = tuple(answer_fields(one.call, *found))
            self._keep_row(one.question, one.call, prepared, found[0], told)
        return replace(outcome, result=RunResult.KEPT)

    def _keep(self, prepared: Prepared, artifact: Artifact, miss: Miss, *, is_first: bool) -> Hit | Built:
        """Publish one kind of what was compiled; the first stands for all where several processes compile."""
        if not is_first and self._layers.target is not None:
            return publish(self._layers, self._layers.target, prepared, artifact, miss)
        return build(self._layers, prepared, lambda: artifact, miss, wait_s=_SINGLE_FLIGHT_S)

    def _tell(self, outcome: Intercepted) -> None:
        with self._lock:
            self._done.append(outcome)

    def _wait_for(self, key: CacheKey) -> None:
        """Wait while a compile of the same key is published, so that a program's next process finds it."""
        published = self._publishing.get(key)
        if published is not None:
            published.wait(_PUBLISH_WAIT_S)
            self._publishing.pop(key, None)


def find_all(layers: Layers, call: Call, prepared: Prepared) -> tuple[list[Hit], bytes] | Lacking:
    """Sound entries of all that comes out of a call, the first kind first, with what NVRTC said."""
    hits = []
    for kind in (prepared, *_others(prepared)):
        found = find(layers, kind)
        if isinstance(found, NoEntry):
            return Lacking(kind, found)
        hits.append(found)
    log = build_log(layers, hits[0]) if hits[0].head.has_log else ""
    told = bool(log) or not hits[0].head.has_log  # else what NVRTC said is gone, and may be asked for
    if not told or not hits[0].head.lowered_names.keys() >= set(call.name_expressions):
        return Lacking(prepared, NoEntry())
    return hits, log.encode(errors="surrogateescape")


def _is_known(asked: "Future[_Asked]") -> bool:
    """Whether a lookup has come to an end, and to an answer."""
    return asked.done() and not asked.cancelled() and asked.exception() is None


def _outcome(prepared: Prepared, result: RunResult) -> Intercepted:
    return Intercepted(prepared.request.program.name, str(prepared.request.target), result)


def _kind(prepared: Prepared) -> ArtifactKind:
    return ArtifactKind(prepared.request.artifact_kind)


def _others(prepared: Prepared) -> Iterator[Prepared]:
    """The same inputs for what else comes out of a compile."""
    return (of_kind(prepared, other) for other in GIVEN_WITH.get(_kind(prepared), ()))


def answer_fields(call: Call, hits: Sequence[Hit], log: bytes) -> Iterator[bytes]:
    """What a program is answered, behind a token that says that nothing more is to be told."""
    own = call.file_name.to_give
    yield b""
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


def _artifact(one: _Compile, given: _Given, kind: ArtifactKind, refusal: str | None) -> Artifact:
    """What is kept of one kind."""
    name = one.call.file_name
    payload, log = name.to_keep(given.artifacts[kind.value]), name.to_keep(given.log)
    names = {key: os.fsdecode(name.to_keep(os.fsencode(value))) for key, value in given.names.items()}
    said = log.decode(errors="surrogateescape")
    return Artifact(kind, payload, said, given.compile_ns, names, refusal=refusal)


def _refusal(one: _Compile, given: _Given, prepared: Prepared) -> str | None:
    """Why nothing of a compile is kept; None if all may be."""
    name = one.call.file_name
    told = (given.log, *given.artifacts.values(), *map(os.fsencode, given.names.values()))
    if one.begun_ns and not is_settled(prepared.closure, one.begun_ns - _YOUNG_NS):
        return "its headers were read while it was compiled, and some may have changed; the next run tells"
    if any(map(name.is_in_numbers, told)):
        return "it contains its file name, which differs in each run, as numbers"
    if name.is_in(told) and not _is_of_name(one, prepared):
        return "what its file name has of this run may also come from its source"
    if len(name.to_keep(given.log)) > LOG_LIMIT:
        return "what the compiler said is longer than an entry keeps"
    return None


def _is_of_name(one: _Compile, prepared: Prepared) -> bool:
    """Whether what was made up in a file name is in no text that was read, so that it came from the name."""
    try:
        return not one.call.file_name.is_in(_texts(one.call, prepared))
    except OSError:
        return False


def _texts(call: Call, prepared: Prepared) -> Iterator[bytes]:
    """All that a compile reads but the name of its source."""
    yield call.source
    for header, text in call.headers:
        yield from (os.fsencode(header), text)
    yield from map(os.fsencode, (*call.options, *call.name_expressions))
    for file in prepared.closure.files:
        yield Path(file).read_bytes()
