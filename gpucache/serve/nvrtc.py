"""A command's NVRTC and hipRTC calls: requests to our engine, kept as they were made, served and published.

Owns which library is called, and which calls the cache leaves alone. Both have one interface, so what is said
here of NVRTC goes for hipRTC too. The result of one compile is kept as an
entry for each kind of artifact, all under the same inputs: a cubin can then be loaded, listed, verified and
evicted like any other, and unused PTX costs a hit only its own bytes. A hit needs all of them, as a program
may ask for any, and none could be made later: the files that NVRTC reads may change. Must not load a GPU
stack.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from gpucache.answers.lookup import Hit
from gpucache.answers.run import Intercepted, RunResult
from gpucache.backends.cuda import BACKEND as CUDA
from gpucache.backends.cuda import nvrtc
from gpucache.backends.cuda import options as of_cuda
from gpucache.backends.hip import BACKEND as HIP
from gpucache.backends.hip import hiprtc
from gpucache.backends.hip import options as of_hip
from gpucache.backends.interface import Backend
from gpucache.engine.hits import find
from gpucache.engine.prepare import Prepared, named, of_kind, prepare
from gpucache.engine.stores import Stores
from gpucache.errors import OptionError
from gpucache.host.deadlines import within
from gpucache.model import GIVEN_WITH, Artifact, ArtifactKind, BuildRequest, CacheKey, Target, Toolchain
from gpucache.serve.answering import Compiler, Part, Question, Rows
from gpucache.serve.conditions import Conditions, Met, UncoveredError, is_tied, require_covered
from gpucache.serve.environment import LIBRARY_PATH, step_s
from gpucache.serve.file_names import FileName, read_name
from gpucache.serve.index import Condition, Hole
from gpucache.serve.server import Reply, require_same_files
from gpucache.serve.session import Build, Session
from gpucache.serve.telling import Say, miss_line, silent
from gpucache.serve.wire import Fields, Kind, WireError, number, variables
from gpucache.sources import Memos
from gpucache.units import format_list

OWN_NAME = "gpucache.cuda"
"""The name of a source in a question of ``gpucache.cuda``, as ``cuda.questions`` has it."""
_LIBRARY, _NAME = 4, 5
"""The places of fields in a question."""
_MADE_UP = 8
"""How many characters a program makes up of a file's name."""


class Library(NamedTuple):
    """The differences between NVRTC and hipRTC. Their modules have functions of the same names."""

    mark: str
    """The text before the version in a request."""
    backend: Backend
    options: ModuleType
    compiler: ModuleType


_NVRTC = Library("", CUDA, of_cuda, nvrtc)
_HIPRTC = Library("hip ", HIP, of_hip, hiprtc)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of NVRTC as a command makes it."""

    rtc: Library

    files_seen: str
    environ: Mapping[str, str]
    library: Path
    version: tuple[int, int]
    file_name: FileName
    source: bytes
    headers: tuple[tuple[str, bytes], ...]
    options: tuple[str, ...]
    name_expressions: tuple[str, ...]
    cwd: str

    told_options = ""

    @property
    def name(self) -> str:
        return self.file_name.given

    @property
    def is_ours(self) -> bool:
        """Whether gpucache's own library calls, which has looked it up already."""
        return bool(self.file_name.given == self.rtc.options.FILE_NAME)

    @property
    def request(self) -> BuildRequest:
        """The request; raises OptionError if its result cannot be cached."""
        made: BuildRequest = self.rtc.options.request_as_asked(
            self.source,
            self.file_name.kept,
            self.options,
            version=self.version,
            cwd=self.cwd,
            made_up=self.file_name.stems is not None,
            headers=self.headers,
            name_expressions=self.name_expressions,
        )
        return made


class NVRTC(Compiler[Call]):
    """Calls of NVRTC, whose parts are the kinds of artifacts that come out of one compile."""

    ask, told, doubted = Kind.COMPILE, Kind.COMPILED, Kind.COMPILE_DOUBTED
    refusals = (5, 6)
    """NVRTC_ERROR_INVALID_OPTION and NVRTC_ERROR_COMPILATION."""
    first_payload, tells_all, is_whole = 4, False, True

    def read(self, fields: Fields) -> Call:
        return read_call(fields)

    def prepare(self, asked: Call, memos: Memos | None = None) -> tuple[Prepared, ...]:
        first = prepare_call(asked, memos)
        others = GIVEN_WITH.get(ArtifactKind(first.request.artifact_kind), ())
        return (first, *(of_kind(first, other) for other in others))

    def files(self, asked: Call) -> Sequence[Sequence[str]]:
        return [tuple(map(str, searched(asked)[1]))]

    def conditions(
        self, asked: Call, prepared: Sequence[Prepared], keys: Sequence[CacheKey], since_ns: int
    ) -> Met:
        return of_call(asked, prepared[0], keys[0], since_ns)

    def holes(self, question: Question, asked: Call, given: Sequence[bytes]) -> tuple[Hole, ...]:
        return _name_holes(asked, question[_NAME], given)

    def is_complete(self, asked: Call, hits: Sequence[Hit], logs: Sequence[bytes]) -> bool:
        head = hits[0].head
        return bool(logs[0] or not head.has_log) and head.lowered_names.keys() >= set(asked.name_expressions)

    def answer(self, asked: Call, hits: Sequence[Hit], logs: Sequence[bytes]) -> Iterator[bytes]:
        """The reply to a program, after a token that says that nothing more is to be reported."""
        own = asked.file_name.to_give
        yield from (b"", own(logs[0]), number(len(hits)))
        for hit in hits:
            yield from (hit.head.artifact_kind.encode(), own(hit.payload))
        yield number(len(asked.name_expressions))
        for expression in asked.name_expressions:
            lowered = hits[0].head.lowered_names[expression]
            yield from (os.fsencode(expression), own(os.fsencode(lowered)))


class OwnCalls(NVRTC):
    """Calls of ``gpucache.cuda``, which wants one kind of artifact."""

    first_payload = 1

    def answer(self, asked: Call, hits: Sequence[Hit], _logs: Sequence[bytes]) -> Iterator[bytes]:
        """A token, the code, the program's name, the kind, and each name expression with its symbol."""
        [hit] = hits
        yield from (b"", hit.payload, os.fsencode(hit.head.program), hit.head.artifact_kind.encode())
        for expression in asked.name_expressions:
            yield from (os.fsencode(expression), os.fsencode(hit.head.lowered_names[expression]))


def read_call(fields: Fields, known_name: str = "") -> Call:
    """A call of the fields of a request, whose source had a name in the cache; raises WireError."""
    files_seen, cwd = fields.text(), fields.text()
    environ = variables(fields.take())
    text = fields.text()
    rtc = _HIPRTC if text.startswith(_HIPRTC.mark) else _NVRTC
    version = _version(text.removeprefix(rtc.mark))
    library, name, source = Path(os.path.normpath(fields.text())), fields.text(), fields.take()
    headers = tuple((fields.text(), fields.take()) for _ in range(fields.count()))
    options = tuple(fields.text() for _ in range(fields.count()))
    expressions = tuple(fields.text() for _ in range(fields.count()))
    fields.end()
    file_name = read_name(name, environ, known_name)
    return Call(
        rtc, files_seen, environ, library, version, file_name, source, headers, options, expressions, cwd
    )


def prepare_call(call: Call, memos: Memos | None = None) -> Prepared:
    """The lookup; raises OptionError, and NoDeviceError if NVRTC is incomplete."""
    require_same_files(call.files_seen, call.cwd)
    request = call.request
    toolchain = _toolchain(
        call.rtc, call.library, call.version, request.target, call.environ.get(LIBRARY_PATH, "")
    )
    prepared = prepare(call.rtc.backend, request, toolchain, call.environ, memos)
    if call.file_name.stems is not None and prepared.closure.tells_name:
        raise OptionError("its source may use its file name, which differs in each run, so nothing is kept")
    folder, given = (name.rpartition("/")[0] for name in (call.file_name.kept, call.file_name.given))
    looked = [path for _, path, _ in prepared.closure.asked or () if path.startswith(f"{folder}/")]
    # The replacement directory does not exist, or a user has made it so that headers are found in it.
    if folder != given and any(".." in path.split("/") or path in prepared.closure.files for path in looked):
        raise OptionError(
            "it may include a header from above its source, whose directory differs in each run, or from the "
            "directory that replaces it, so nothing is kept for it"
        )
    return prepared


@lru_cache(maxsize=64)
def _toolchain(
    rtc: Library, library: Path, version: tuple[int, int], target: Target, library_path: str
) -> Toolchain:
    found: Toolchain = rtc.compiler.toolchain_at(library, version, target, library_path)
    return found


def searched(call: Call) -> tuple[list[Path], list[Path]]:
    """The missing paths where libraries of a call's NVRTC are searched, and its files."""
    library_path = call.environ.get(LIBRARY_PATH, "")
    found: tuple[list[Path], list[Path]] = call.rtc.compiler.search(call.library, call.version, library_path)
    return found


def of_call(call: Call, prepared: Prepared, key: CacheKey, since_ns: int = sys.maxsize) -> Met:
    """The conditions of the answer to a call of NVRTC or hipRTC; raises UncoveredError."""
    if call.headers:
        raise UncoveredError("it has headers in memory, whose own includes an index does not follow")
    require_covered(prepared, key, call.cwd)
    found = Conditions(
        call.cwd, tied=is_tied(call.rtc.backend, prepared, key, call.environ), since_ns=since_ns
    )
    if call.file_name.stems is not None:
        found.stand_alone(call.file_name.given, call.file_name.kept)
    found.add_closure(prepared, call.rtc.backend, call.environ)
    found.add_variables(call.rtc.options.VARIABLES, call.environ)
    passed, files = searched(call)
    found.add_compiler(_LIBRARY, str(call.library), list(map(str, files)), call.environ)
    for path in passed:
        found.add(Condition("A", b"", os.fsencode(path)))
    if prepared.compilation.rule.makes_up_folders and prepared.closure.tells_name:
        found.add_variables(call.rtc.options.FOLDERS, call.environ)
    if prepared.compilation.rule.system:  # of hipRTC
        found.add_system(*call.rtc.options.system(call.environ)[1:])
    return found.all()


def _name_holes(call: Call, name: bytes, given: Sequence[bytes]) -> tuple[Hole, ...]:
    """The made-up part of a source's name, and its places in the answer; raises UncoveredError."""
    if call.file_name.stems is None:
        return ()
    stem = call.file_name.stems[0]
    if name.count(stem) != 1 or len(stem) < _MADE_UP:
        raise UncoveredError("the made-up part of its file's name occurs twice")
    places, begin = [], 0
    for field in given:
        begin += 4  # its length
        at = field.find(stem)
        while at >= 0:
            places.append(begin + at + len(stem) - _MADE_UP)
            at = field.find(stem, at + len(stem))
        begin += len(field)
    return (Hole(_NAME, name.index(stem) + len(stem) - _MADE_UP, _MADE_UP, tuple(places)),)


def keep_call(kept: Rows, stores: Stores, question: Question, prepared: Prepared) -> str:
    """Write the row of a call of our library that has an entry; returns why it cannot. Raises WireError."""
    prepared = prepared._replace(request=prepared.request._replace(program=named(prepared.request.program)))
    found = find(stores._replace(read_only=True, remote=None), prepared, whole=True)
    hits = [found] if isinstance(found, Hit) else []
    return kept.keep(OwnCalls(), question, read_call(Fields(question)), [prepared], hits)


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and minor.isdecimal() and len(text) < 16):
        raise WireError(f"{text!r} is not a version")
    return int(major), int(minor)


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
    """Serves a command's calls of NVRTC from the stores."""

    def __init__(self, stores: Stores, say: Say = silent) -> None:
        super().__init__(NVRTC(), stores, say)

    def look_up(self, asked: Call) -> tuple[tuple[Prepared, ...], tuple[Part, ...]]:
        """Look a call up, within a limit. A source without includes reads no files and needs no thread."""
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
        miss = self.missed(one, given.code)
        if given.code != 0:
            self.show_failure(one.prepared[:1], given.log)
            return replace(one.outcome, result=RunResult.FAILED)
        kinds = [ArtifactKind(each.request.artifact_kind) for each in one.prepared]
        if one.wanted and given.artifacts.keys() != {kind.value for kind in kinds}:
            made, known = (format_list(sorted(each)) for each in (given.artifacts, kinds))
            why = f"the compiler returned {made} where gpucache knows {known}, so nothing was kept"
            return replace(one.outcome, reason=why)
        from gpucache.engine.stores import record_build

        hits, why = list[Hit](), ""
        for kind, each in zip(kinds, one.prepared, strict=True):
            artifact = _artifact(one.asked, given, kind, refusal)
            kept = self.publish(one, each, artifact, miss, records=False)
            if isinstance(kept, str):
                why = kept
                break
            hits.append(kept)
        if hits and self.stores.target is not None:
            record_build(self.stores.target, one.prepared[0].request.program, *hits)
        if why:
            return replace(one.outcome, reason=why)
        self.show(one.prepared, hits)
        self.keep_row(one, hits)
        return replace(one.outcome, result=RunResult.KEPT)


def _given(fields: Fields) -> _Given:
    code, compile_ns, log = fields.number(), fields.number(), fields.take()
    artifacts = {fields.text(): fields.take() for _ in range(fields.count())}
    names = {fields.text(): fields.text() for _ in range(fields.count())}
    fields.end()
    return _Given(code, compile_ns, log, artifacts, names)


def _artifact(call: Call, given: _Given, kind: ArtifactKind, refusal: str | None) -> Artifact:
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
    """Whether the made-up part of a file name is in none of the texts, so that it comes from the name."""
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
