"""What a command asks for, kept as questions with their answers, for libraries that have no server.

A command runs as under ``gpucache run``, and all that it asks for is heard. After its end each question is
looked up once more: what was missed and kept meanwhile is found, and files are what they will be. Owns what
is made of a question; which file it becomes is ``index``'s, what an answer depends on ``conditions``'.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Lock

from gpucache.answers.layer import Layered, LayerResult
from gpucache.answers.lookup import Hit, Miss
from gpucache.answers.run import Intercepted
from gpucache.engine.explain import explain
from gpucache.engine.lookup import build_log, find
from gpucache.engine.store_layers import Layers, NoEntry
from gpucache.errors import GpucacheError
from gpucache.intercept.answering import of_compile, of_hits
from gpucache.intercept.conditions import UncoveredError
from gpucache.intercept.devices import Devices
from gpucache.intercept.environment import Libraries
from gpucache.intercept.file_names import FileName
from gpucache.intercept.index import Answered, Row, fits, row_of
from gpucache.intercept.nvrtc import prepare_call, read_call
from gpucache.intercept.nvrtc_serving import Lacking, answer_fields, find_all
from gpucache.intercept.opencl import prepare_build, read_build
from gpucache.intercept.server import Handler, Handlers, Reply, Service
from gpucache.intercept.wire import Fields, Kind, WireError

_QUESTIONS_CAP = 1 << 16
_BYTES_CAP = 1 << 30
"""The most that is kept of what a command asks."""
_PROBE_S = 60.0


class Questions:
    """What a command asks, each once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._asked: dict[tuple[Kind, tuple[bytes, ...]], FileName | None] = {}
        self._bytes = 0
        self.too_many = False
        """Whether more was asked than is kept."""

    def heard(self, service: Service) -> "Heard":
        """A service whose questions are kept."""
        return Heard(self, service)

    def add(self, kind: Kind, fields: tuple[bytes, ...]) -> None:
        """Keep a question, once; with the name of its source, as a file that was made up will be gone."""
        asked = (kind, fields)
        with self._lock:
            if asked in self._asked:
                return
            self._bytes += sum(map(len, fields))
            if len(self._asked) >= _QUESTIONS_CAP or self._bytes > _BYTES_CAP:
                self.too_many = True
                return
            self._asked[asked] = read_call(Fields(fields)).file_name if kind is Kind.COMPILE else None

    def __iter__(self) -> Iterator[tuple[Kind, tuple[bytes, ...], FileName | None]]:
        return ((*asked, name) for asked, name in self._asked.items())


class Heard:
    """Answers as another service does, and keeps what is asked."""

    def __init__(self, questions: Questions, service: Service) -> None:
        self._questions = questions
        self._service = service

    @property
    def handlers(self) -> Handlers:
        """What answers each kind of request."""
        asked = (Kind.BUILD, Kind.COMPILE)
        own = self._service.handlers.items()
        return {kind: self._hear(kind, one) if kind in asked else one for kind, one in own}

    def finish(self) -> Sequence[Intercepted]:
        """What became of each build."""
        return self._service.finish()

    def _hear(self, kind: Kind, handler: Handler) -> Handler:
        def hear(fields: Fields) -> Reply:
            given = fields.rest()
            self._questions.add(kind, given)
            return handler(Fields(given))

        return hear


class Answering:
    """Looks questions up, for an index."""

    def __init__(self, layers: Layers, libraries: Libraries) -> None:
        self._layers = layers
        self._libraries = libraries
        self._devices = Devices(layers, wait_s=_PROBE_S)
        self._began = False

    def answer(self, fields: tuple[bytes, ...], name: FileName | None) -> tuple[Layered, Row | None]:
        """What becomes of a question, of NVRTC if it has a name; with its record where there is one."""
        try:
            outcome, answered = self._build(fields) if name is None else self._call(fields, name)
        except WireError:
            return Layered("", "", LayerResult.LEFT, "it does not read"), None
        row = None if answered is None else row_of(answered)
        if row is not None and not fits(row):
            return replace(outcome, result=LayerResult.LEFT, reason="it is larger than an index keeps"), None
        return outcome, row

    def _build(self, fields: tuple[bytes, ...]) -> tuple[Layered, Answered | None]:
        if not self._began:
            self._devices.begin()
            self._began = True
        asked = read_build(Fields(fields), self._libraries)
        left = Layered(asked.name, "", LayerResult.LEFT)
        try:
            prepared = prepare_build(asked, self._devices, self._layers)
            left = replace(left, target=", ".join(str(one.request.target) for one in prepared))
            files = [self._devices.files(facts) for facts in asked.devices]
            hits = []
            for one in prepared:
                found = find(self._layers, one)
                if isinstance(found, NoEntry):
                    return replace(left, reason=_told(explain(self._layers, one, found))), None
                hits.append(found)
            given = [b"", *(part for hit in hits for part in (hit.payload, self._log(hit)))]
            answered = of_hits(fields, asked, prepared, hits, given, files)
        except (GpucacheError, UncoveredError) as error:
            return replace(left, reason=str(error)), None
        return replace(left, result=LayerResult.EXPORTED), answered

    def _call(self, fields: tuple[bytes, ...], name: FileName) -> tuple[Layered, Answered | None]:
        call = replace(read_call(Fields(fields)), file_name=name)
        left = Layered(call.file_name.given, "", LayerResult.LEFT)
        if call.is_ours:
            return replace(left, reason="a program of gpucache.cuda looks into the cache by itself"), None
        try:
            prepared = prepare_call(call, self._layers)
            request = prepared.request
            left = replace(left, program=request.program.name, target=str(request.target))
            found = find_all(self._layers, call, prepared)
            if isinstance(found, Lacking):
                return replace(left, reason=_told(found.explain(self._layers))), None
            answered = of_compile(fields, call, prepared, found[0], tuple(answer_fields(call, *found)))
        except (GpucacheError, UncoveredError) as error:
            return replace(left, reason=str(error)), None
        return replace(left, result=LayerResult.EXPORTED), answered

    def _log(self, hit: Hit) -> bytes:
        return build_log(self._layers, hit).encode() if hit.head.has_log else b""


def _told(miss: Miss) -> str:
    return f"{miss.verdict}: {miss.detail}"
