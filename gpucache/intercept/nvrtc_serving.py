"""NVRTC compiles of a command, served from the cache and published.

The result of one compile is kept as an entry for each kind of artifact, all under the same inputs: a cubin
can then be loaded, listed, verified and evicted like any other, and unused PTX costs a hit only its own
bytes. A hit needs all of them, as a program may ask for any, and none could be made later: the files that
NVRTC reads may change.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpucache.answers.run import Intercepted, RunResult
from gpucache.engine.prepare import Prepared
from gpucache.engine.store_layers import Layers
from gpucache.errors import OptionError
from gpucache.intercept.environment import step_s
from gpucache.intercept.nvrtc import NVRTC, Call
from gpucache.intercept.server import Reply
from gpucache.intercept.session import Build, Part, Session, within
from gpucache.intercept.telling import Say, miss_line, silent
from gpucache.intercept.wire import Fields
from gpucache.model import Artifact, ArtifactKind

_SLOW = "its headers took too long to read, so nothing is kept for it; the next run remembers them"


@dataclass(frozen=True, slots=True)
class _Given:
    """The results of NVRTC."""

    code: int
    compile_ns: int
    """Without the wait for other compiles of its process."""
    log: bytes
    artifacts: Mapping[str, bytes]
    names: Mapping[str, str]


class NVRTCServing(Session[Call]):
    """Answers a command's calls of NVRTC from layers of the cache."""

    def __init__(self, layers: Layers, say: Say = silent) -> None:
        """``say`` is called with each hit and each miss when it is known."""
        super().__init__(NVRTC(), layers, say)

    def look_up(self, asked: Call) -> tuple[tuple[Prepared, ...], tuple[Part, ...]]:
        """The same, for a while; a source without includes reads nothing, and saves a thread."""
        if b"include" not in asked.source:
            return super().look_up(asked)
        try:
            return within(step_s(), lambda: super(NVRTCServing, self).look_up(asked))
        except TimeoutError:
            raise OptionError(_SLOW) from None

    def _told(self, fields: Fields) -> Reply:
        token, given = fields.take(), _given(fields)
        refusal = _refusal(self.known(token), given)  # which may read headers

        def settle(one: Build[Call]) -> Intercepted:
            outcome = self._settled(one, given, refusal)
            self.say(miss_line(outcome, given.compile_ns))
            return outcome

        return self.settled(token, settle)

    def _settled(self, one: Build[Call], given: _Given, refusal: str | None) -> Intercepted:
        """Publish the compiled artifacts; returns the outcome."""
        miss = self.missed(one)
        if given.code != 0:
            return replace(one.outcome, result=RunResult.FAILED)
        kinds = [ArtifactKind(each.request.artifact_kind) for each in one.prepared]
        if one.wanted and any(kind.value not in given.artifacts for kind in kinds):
            why = "NVRTC did not return all the artifacts, so nothing was kept"
            return replace(one.outcome, reason=why)
        for kind, each in zip(kinds, one.prepared, strict=True):
            if why_not := self.publish(one, each, _artifact(one.asked, given, kind, refusal), miss):
                return replace(one.outcome, reason=why_not)
        self.keep_found(one)
        return replace(one.outcome, result=RunResult.KEPT)


def _given(fields: Fields) -> _Given:
    code, compile_ns, log = fields.number(), fields.number(), fields.take()
    artifacts = {fields.text(): fields.take() for _ in range(fields.count())}
    names = {fields.text(): fields.text() for _ in range(fields.count())}
    fields.end()
    return _Given(code, compile_ns, log, artifacts, names)


def _artifact(call: Call, given: _Given, kind: ArtifactKind, refusal: str | None) -> Artifact:
    """The entry of one kind of artifact."""
    name = call.file_name
    payload, log = name.to_keep(given.artifacts.get(kind.value, b"")), name.to_keep(given.log)
    names = {key: os.fsdecode(name.to_keep(os.fsencode(value))) for key, value in given.names.items()}
    said = log.decode(errors="surrogateescape")
    return Artifact(kind, payload, said, given.compile_ns, names, refusal=refusal)


def _refusal(one: Build[Call], given: _Given) -> str | None:
    """Why nothing of a compile is kept; None if all may be."""
    from gpucache.engine.lookup import LOG_LIMIT

    name = one.asked.file_name
    told = (given.log, *given.artifacts.values(), *map(os.fsencode, given.names.values()))
    if any(map(name.is_in_numbers, told)):
        return "it contains its file name, which differs in each run, as numbers"
    if name.is_in(told) and not _is_of_name(one):
        return "the made-up part of its file name may also come from its source"
    if len(name.to_keep(given.log)) > LOG_LIMIT:
        return "the compiler's log is longer than an entry can contain"
    return None


def _is_of_name(one: Build[Call]) -> bool:
    """Whether the made-up part of a file name is in no text that was read, so that it came from the name."""
    try:
        return not one.asked.file_name.is_in(_texts(one.asked, one.prepared[0]))
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
