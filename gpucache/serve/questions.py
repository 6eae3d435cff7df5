"""A command's requests, kept as questions with their answers, for libraries that have no server.

A command runs as under ``gpucache run``, and all its requests are noted. After its end each question is
looked up once more: misses that were stored meanwhile are found, and files are in their final state. Owns the
way from a question to its row; ``index`` owns the file, ``conditions`` what an answer depends on.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

from gpucache.answers.export import Layered, LayerResult
from gpucache.answers.lookup import Hit
from gpucache.engine.explain import explain
from gpucache.engine.stores import NoEntry, Stores
from gpucache.errors import GpucacheError
from gpucache.model import Entry
from gpucache.serve.answering import Asked, Compiler, Question, Rows, hits_of, targets_of
from gpucache.serve.conditions import UncoveredError
from gpucache.serve.devices import Devices
from gpucache.serve.environment import Libraries
from gpucache.serve.opencl import Links, OpenCL, Parts, keys_of_part, mark_of
from gpucache.serve.server import Handler, Handlers, Reply
from gpucache.serve.wire import Fields, Kind

_QUESTIONS_CAP = 1 << 16
_BYTES_CAP = 1 << 30


class Questions:
    """The questions of a command, each once."""

    def __init__(self, stores: Stores, libraries: Libraries, devices: Devices | None = None) -> None:
        self._stores = stores
        self._devices = devices or Devices(stores)
        opencl = (make(self._devices, libraries) for make in (OpenCL, Parts, Links))
        self._compilers: dict[Kind, Compiler[Any]] = {compiler.ask: compiler for compiler in opencl}
        self._lock = Lock()
        self._asked: dict[tuple[Kind, Question], Asked] = {}
        self._bytes = 0
        self.too_many = False

    def heard(self, handlers: Handlers) -> Handlers:
        """Handlers that also remember the questions that they get."""
        return {
            kind: partial(self._hear, kind, handler) if kind in (Kind.COMPILE, *self._compilers) else handler
            for kind, handler in handlers.items()
        }

    def export(self, into: Stores) -> Iterator[Layered | None]:
        """Put the entries and rows of all questions into a root, and return the outcome of each.

        A part has a row alone, and no outcome. Raises OSError, CacheUnusableError.
        """
        if any(kind is not Kind.COMPILE for kind, _ in self._asked):
            self._devices.begin()
        both = into._replace(systems=tuple(self._stores.on_disk()))
        for (kind, question), asked in self._asked.items():
            yield self._export(self._compiler(kind), question, asked, both)

    def keep_rows(self) -> None:
        """Have the user's root answer every question that is a hit, wherever it will be used."""
        rows, stores = Rows(self._stores), self._stores._replace(read_only=True)
        for (kind, question), asked in self._asked.items():
            compiler = self._compiler(kind)
            with suppress(GpucacheError):
                prepared = compiler.prepare(asked, stores)
                hits = hits_of(compiler.find(stores, asked, prepared))
                rows.keep(compiler, question, asked, prepared, hits)

    def _compiler(self, kind: Kind) -> Compiler[Any]:
        """The compiler of a kind of request; most commands never need NVRTC's."""
        if kind is Kind.COMPILE and kind not in self._compilers:
            from gpucache.serve.nvrtc import NVRTC

            self._compilers[kind] = NVRTC()
        return self._compilers[kind]

    def _hear(self, kind: Kind, handler: Handler, fields: Fields) -> Reply:
        question = fields.rest()
        self.add(kind, question)
        return handler(Fields(question))

    def add(self, kind: Kind, question: Question, asked: Asked | None = None) -> None:
        """Keep a question, once, as it is read now: a file that was made up will be gone.

        Raises WireError.
        """
        with self._lock:
            if (kind, question) in self._asked:
                return
            self._bytes += sum(map(len, question))
            if len(self._asked) >= _QUESTIONS_CAP or self._bytes > _BYTES_CAP:
                self.too_many = True
                return
            self._asked[kind, question] = asked or self._compiler(kind).read(Fields(question))

    def _export(
        self, compiler: Compiler[Any], question: Question, asked: Asked, both: Stores
    ) -> Layered | None:
        rows = Rows(both)
        left = Layered(asked.name, "", LayerResult.LEFT)
        if asked.is_ours:
            return replace(left, reason="a program of gpucache.cuda looks into the cache by itself")
        try:
            prepared = compiler.prepare(asked, self._stores)
            left = replace(left, program=prepared[0].request.program.name, target=targets_of(prepared))
            if compiler.ask is Kind.PART:
                keys, mark = keys_of_part(prepared), mark_of(prepared)
                rows.keep_part(compiler, question, asked, prepared, keys, mark)
                return None
            parts = compiler.find(self._stores, asked, prepared)
            for one, part in zip(prepared, parts, strict=True):
                if isinstance(part, NoEntry):
                    miss = explain(self._stores, one, part)
                    return replace(left, reason=f"{miss.verdict}: {miss.detail}")
            for hit in hits_of(parts):
                _copy(hit, both)
            why = rows.keep(compiler, question, asked, prepared, hits_of(parts))
        except (GpucacheError, UncoveredError) as error:
            why = str(error)
        return replace(left, reason=why) if why else replace(left, result=LayerResult.EXPORTED)


def _copy(hit: Hit, both: Stores) -> None:
    """Put the entry of a hit, which some store has, into the first one."""
    for store in both.on_disk():
        sealed, detail = store.seal(hit.key), store.detail(hit.key)
        if sealed is not None and sealed[1] == hit.head and detail is not None:
            if store is not both.user and both.user is not None:
                both.user.publish(Entry(hit.key, hit.head, detail, hit.payload))
            return
