"""NVRTC compiles of a command, served from the cache and published.

Owns what is known of each compile from the question to its end. What comes out of one compile is kept as an
entry for each kind of artifact, all under the same inputs: a cubin can then be loaded, listed, verified and
evicted like any other, and PTX that nobody asks for costs no hit anything but its own bytes. A hit has all of
them or is none, as a program may ask for any, and nothing could make one later: what NVRTC reads may change.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from gpucache.answers.lookup import Hit, Miss
from gpucache.answers.run import Intercepted, RunResult
from gpucache.engine.hits import build_log, find
from gpucache.engine.prepare import Prepared, of_kind, stamped
from gpucache.engine.store_layers import Layers, NoEntry
from gpucache.errors import GpucacheError, OptionError
from gpucache.intercept.nvrtc import Call, prepare_call, read_call
from gpucache.intercept.server import HEARD, PASSED, Handlers, Reply
from gpucache.intercept.session import Session, within
from gpucache.intercept.telling import Say, hit_line, is_required, miss_line, silent
from gpucache.intercept.wire import TOO_LARGE, Fields, Kind, fits, number
from gpucache.model import GIVEN_WITH, Artifact, ArtifactKind

_LOOKUP_S = 2.0
"""How long a program waits for the headers of a source to be read: less than its time-out."""
_SLOW = "its headers took too long to read, so nothing is kept for it; the next run remembers them"
_FIRST_PAYLOAD = 4
"""Where that stands in an answer, behind its kind; the others follow likewise."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """The kind of artifact by which a compile is no hit."""

    prepared: Prepared
    answer: NoEntry

    def explain(self, layers: Layers) -> Miss:
        """Why it is not there."""
        from gpucache.engine.explain import explain

        return explain(layers, self.prepared, self.answer)


@dataclass(frozen=True, slots=True)
class _Compile:
    """One compile that is to be told of."""

    question: tuple[bytes, ...]
    call: Call
    prepared: Prepared
    lacking: Lacking
    held: ExitStack
    """The lock of its key."""
    asked_ns: int
    """By the clock that all builds of a run share."""


@dataclass(frozen=True, slots=True)
class _Given:
    """What NVRTC gave."""

    code: int
    compile_ns: int
    """Without what it waited for other compiles of its process."""
    log: bytes
    artifacts: Mapping[str, bytes]
    names: Mapping[str, str]


class NVRTCServing(Session[_Compile]):
    """Answers a command's calls of NVRTC from layers of the cache."""

    def __init__(self, layers: Layers, say: Say = silent) -> None:
        """``say`` is told each hit and each miss when it is known."""
        super().__init__(layers, say)

    @property
    def handlers(self) -> Handlers:
        """What answers each kind of request."""
        return {Kind.COMPILE: self._compile, Kind.COMPILED: self._compiled}

    def finish(self) -> Sequence[Intercepted]:
        """What became of every compile, after the command's end."""
        for one in self._builds.values():
            self._note_miss(one.prepared, one.lacking.explain(self.layers))
            outcome = _outcome(one.prepared, RunResult.LEFT)
            self.done(replace(outcome, reason="its process ended before the compile did"))
            one.held.close()
        self._builds.clear()
        return self.ended()

    def _compile(self, fields: Fields) -> Reply:
        asked_ns = time.perf_counter_ns()
        question = fields.rest()
        call = read_call(Fields(question))
        if call.is_ours:
            return PASSED
        required, held = is_required(call.environ), ExitStack()
        try:
            prepared, found = self._look_up(call)
        except GpucacheError as error:
            outcome = Intercepted(call.file_name.given, "", RunResult.PASSED, reason=str(error))
            if required:
                return self.refuse(outcome)
            self.say(miss_line(outcome))
            self.done(outcome)
            return PASSED
        wanted = self.layers.target is not None and prepared.refusal is None
        if isinstance(found, Lacking) and wanted and not required:
            held = self.hold([prepared.key])
            found = find_all(self.layers, call, prepared)  # what had the lock may have published it
        if isinstance(found, Lacking):
            if required:
                miss = found.explain(self.layers)
                self._note_miss(prepared, miss)
                outcome = _outcome(prepared, RunResult.LEFT)
                return self.refuse(replace(outcome, verdict=miss.verdict, reason=miss.detail))
            token = self.begin(_Compile(question, call, prepared, found, held, asked_ns))
            return Reply(Kind.MISS, (token, number(wanted)))
        held.close()
        hits, log = found
        told = tuple(answer_fields(call, hits, log))
        outcome = replace(_outcome(prepared, RunResult.HIT), key=str(hits[0].key))
        if not fits(told):
            self.done(replace(outcome, result=RunResult.PASSED, reason=TOO_LARGE))
            return PASSED
        took_ns = time.perf_counter_ns() - asked_ns
        saved_ns = hits[0].head.compile_ns
        self.done(replace(outcome, begun_ns=asked_ns, build_ns=took_ns, saved_ns=saved_ns))
        self.say(hit_line(outcome, hits[0]))
        return Reply(Kind.HIT, told, then=lambda: self._keep_row(question, call, prepared, hits, told))

    def _look_up(self, call: Call) -> "tuple[Prepared, tuple[list[Hit], bytes] | Lacking]":
        """Look a call up; raises GpucacheError for one that cannot be kept, or takes too long."""

        def ask() -> "tuple[Prepared, tuple[list[Hit], bytes] | Lacking]":
            prepared = prepare_call(call, self.layers)
            return prepared, find_all(self.layers, call, prepared)

        try:  # what includes nothing reads nothing, and saves a thread
            return within(_LOOKUP_S, ask) if b"include" in call.source else ask()
        except TimeoutError:
            raise OptionError(_SLOW) from None

    def _keep_row(
        self,
        question: tuple[bytes, ...],
        call: Call,
        prepared: Prepared,
        hits: Sequence[Hit],
        told: Sequence[bytes],
    ) -> None:
        """Have the index answer the next time."""
        from gpucache.intercept.answering import of_compile

        self.rows.keep(
            lambda strict: of_compile(question, call, prepared, hits, told, strict),
            hits,
            [_FIRST_PAYLOAD + 2 * number for number in range(len(hits))],
            target=str(prepared.request.target),
            saved_ns=hits[0].head.compile_ns,
        )

    def _compiled(self, fields: Fields) -> Reply:
        token, given, ended_ns = fields.take(), _given(fields), time.perf_counter_ns()
        one = self.end(token)

        def settle() -> None:
            with one.held:
                outcome = self._settled(one, given)
            self.say(miss_line(outcome, given.compile_ns))
            self.done(replace(outcome, begun_ns=one.asked_ns, build_ns=ended_ns - one.asked_ns))

        return Reply(HEARD.kind, then=settle)

    def _settled(self, one: _Compile, given: _Given) -> Intercepted:
        """Publish what was compiled; what became of it."""
        from gpucache.engine.lookup import publish, why_not_kept

        prepared, store, miss = one.prepared, self.layers.target, one.lacking.explain(self.layers)
        self._note_miss(prepared, miss)
        outcome = replace(
            _outcome(prepared, RunResult.LEFT),
            key=str(prepared.key),
            verdict=miss.verdict,
            reason=miss.detail,
        )
        if given.code != 0:
            return replace(outcome, result=RunResult.FAILED)
        kinds = (prepared, *_others(prepared))
        if prepared.refusal is not None or store is None:
            return replace(outcome, reason=why_not_kept(self.layers, miss)[0])
        if any(_kind(kind).value not in given.artifacts for kind in kinds):
            return replace(outcome, reason="NVRTC did not return all the artifacts, so nothing was kept")
        refusal = _refusal(one, given)
        for kind in kinds:
            artifact = _artifact(one, given, _kind(kind), refusal)
            kept = publish(self.layers, store, stamped(kind, self.layers), artifact, miss)
            if kept.key is None:
                return replace(outcome, reason=kept.note)
        found = find_all(self.layers, one.call, prepared)
        if not isinstance(found, Lacking):
            told = tuple(answer_fields(one.call, *found))
            self._keep_row(one.question, one.call, prepared, found[0], told)
        return replace(outcome, result=RunResult.KEPT)


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


def _refusal(one: _Compile, given: _Given) -> str | None:
    """Why nothing of a compile is kept; None if all may be."""
    from gpucache.engine.lookup import LOG_LIMIT

    name = one.call.file_name
    told = (given.log, *given.artifacts.values(), *map(os.fsencode, given.names.values()))
    if any(map(name.is_in_numbers, told)):
        return "it contains its file name, which differs in each run, as numbers"
    if name.is_in(told) and not _is_of_name(one):
        return "what its file name has of this run may also come from its source"
    if len(name.to_keep(given.log)) > LOG_LIMIT:
        return "what the compiler said is longer than an entry keeps"
    return None


def _is_of_name(one: _Compile) -> bool:
    """Whether what was made up in a file name is in no text that was read, so that it came from the name."""
    try:
        return not one.call.file_name.is_in(_texts(one.call, one.prepared))
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
