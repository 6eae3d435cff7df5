"""The meaning of a command's NVRTC call: a request to our engine, kept as it was made.

Owns which NVRTC is called, and which calls the cache leaves alone. Looks nothing up and keeps nothing. Must
not load a GPU stack.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpucache.answers.lookup import Hit
from gpucache.backends.cuda import BACKEND, nvrtc
from gpucache.backends.cuda.options import FILE_NAME, request_as_asked
from gpucache.engine.prepare import Prepared, of_kind, prepare
from gpucache.errors import OptionError
from gpucache.intercept.file_names import FileName, read_name
from gpucache.intercept.server import require_same_files
from gpucache.intercept.session import Compiler
from gpucache.intercept.wire import Fields, Kind, WireError, number
from gpucache.model import GIVEN_WITH, ArtifactKind, BuildRequest, Target, Toolchain
from gpucache.sources import Memos

LIBRARY_PATH = "LD_LIBRARY_PATH"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of NVRTC as a command makes it."""

    files_seen: str
    """Which files its thread sees."""
    environ: Mapping[str, str]
    library: Path
    version: tuple[int, int]
    file_name: FileName
    source: bytes
    headers: tuple[tuple[str, bytes], ...]
    options: tuple[str, ...]
    name_expressions: tuple[str, ...]
    cwd: str

    @property
    def name(self) -> str:
        """The name of the source."""
        return self.file_name.given

    @property
    def is_ours(self) -> bool:
        """Whether gpucache's own library calls, which has looked it up already."""
        return self.file_name.given == FILE_NAME

    @property
    def request(self) -> BuildRequest:
        """The request; raises OptionError if its result cannot be cached."""
        return request_as_asked(
            self.source,
            self.file_name.kept,
            self.options,
            version=self.version,
            cwd=self.cwd,
            made_up=self.file_name.stems is not None,
            headers=self.headers,
            name_expressions=self.name_expressions,
        )


class NVRTC(Compiler[Call]):
    """Calls of NVRTC, whose parts are the kinds of artifacts that come out of one compile."""

    ask, told, backend = Kind.COMPILE, Kind.COMPILED, BACKEND
    refusals = (5, 6)
    """NVRTC_ERROR_INVALID_OPTION and NVRTC_ERROR_COMPILATION."""
    first_payload, tells_all, is_whole = 4, False, True

    def read(self, fields: Fields) -> Call:
        """A call of the fields of a request; raises WireError."""
        return read_call(fields)

    def prepare(self, asked: Call, memos: Memos | None = None) -> tuple[Prepared, ...]:
        """The lookup; raises OptionError, and NoDeviceError if NVRTC is incomplete."""
        first = prepare_call(asked, memos)
        others = GIVEN_WITH.get(ArtifactKind(first.request.artifact_kind), ())
        return (first, *(of_kind(first, other) for other in others))

    def is_complete(self, asked: Call, hits: Sequence[Hit], logs: Sequence[bytes]) -> bool:
        """Whether the log and all names are there, which may be asked for."""
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


def read_call(fields: Fields) -> Call:
    """A call of the fields of a request; raises WireError."""
    files_seen, cwd = fields.text(), fields.text()
    environ = _environment(fields.take())
    version = _version(fields.text())
    library, name, source = Path(os.path.normpath(fields.text())), fields.text(), fields.take()
    headers = tuple((fields.text(), fields.take()) for _ in range(fields.count()))
    options = tuple(fields.text() for _ in range(fields.count()))
    expressions = tuple(fields.text() for _ in range(fields.count()))
    fields.end()
    file_name = read_name(name, environ)
    return Call(files_seen, environ, library, version, file_name, source, headers, options, expressions, cwd)


def prepare_call(call: Call, memos: Memos | None = None) -> Prepared:
    """The lookup; raises OptionError, and NoDeviceError if NVRTC is incomplete."""
    require_same_files(call.files_seen, call.cwd)
    request = call.request
    toolchain = _toolchain(call.library, call.version, request.target, call.environ.get(LIBRARY_PATH, ""))
    prepared = prepare(BACKEND, request, toolchain, call.environ, memos)
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
def _toolchain(library: Path, version: tuple[int, int], target: Target, library_path: str) -> Toolchain:
    return nvrtc.toolchain_at(library, version, target, library_path)


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and minor.isdecimal() and len(text) < 16):
        raise WireError(f"{text!r} is no version")
    return int(major), int(minor)


@lru_cache(maxsize=16)
def _environment(data: bytes) -> Mapping[str, str]:
    """The variables of a program, each ended by NUL; the first of a name counts, as it does for getenv."""
    lines = reversed(data.decode("utf-8", "surrogateescape").split("\0"))
    return {name: value for name, _, value in (line.partition("=") for line in lines if "=" in line)}
