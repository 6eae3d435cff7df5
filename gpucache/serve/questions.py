"""A command's requests, kept as questions with their answers, for libraries that have no server.

A command runs as under ``gpucache run``, and all its requests are noted. After its end each question is
looked up once more: misses that were stored meanwhile are found, and files are in their final state. Owns the
way from a question to its answer; ``index`` owns the file, ``conditions`` what an answer depends on.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

from gpucache.answers.layer import Layered, LayerResult
from gpucache.engine.explain import explain
from gpucache.engine.stores import NoEntry, Stores
from gpucache.errors import GpucacheError
from gpucache.serve.answering import Rows, answered
from gpucache.serve.conditions import UncoveredError
from gpucache.serve.devices import Devices
from gpucache.serve.environment import Libraries
from gpucache.serve.index import Row, fits, row_of
from gpucache.serve.nvrtc import NVRTC
from gpucache.serve.opencl import Links, OpenCL, Parts, keys_of_part
from gpucache.serve.server import Handler, Handlers, Reply
from gpucache.serve.session import Asked, Compiler, Question, hits_of, targets_of
from gpucache.serve.wire import Fields, Kind

_QUESTIONS_CAP = 1 << 16
_BYTES_CAP = 1 << 30
"""The most questions of a command that are kept."""


class Questions:
    """The questions of a command, each once."""

    def __init__(self, stores: Stores, libraries: Libraries, devices: Devices | None = None) -> None:
        self._stores = stores
        self._devices = devices or Devices(stores)
        self._links = Links(self._devices, libraries)
        opencl = (OpenCL(self._devices, libraries), Parts(self._devices, libraries), self._links)
        compilers: tuple[Compiler[Any], ...] = (*opencl, NVRTC())
        self._compilers = {compiler.ask: compiler for compiler in compilers}
        self._lock = Lock()
        self._asked: dict[tuple[Kind, Question], Asked] = {}
        self._bytes = 0
        self.too_many = False
        """Whether there were more questions than are kept."""

    def heard(self, handlers: Handlers) -> Handlers:
        """The same handlers, with the questions that come to them kept."""
        return {
            kind: partial(self._hear, kind, handler) if kind in self._compilers else handler
            for kind, handler in handlers.items()
        }

    def answers(self) -> Iterator[tuple[Kind, Layered | None, Row | None]]:
        """The outcome of each question, with its record if it has one; a part has a record alone."""
        if any(kind is not Kind.COMPILE for kind, _ in self._asked):
            self._devices.begin()
        for (kind, question), asked in self._asked.items():
            yield kind, *self._answer(self._compilers[kind], question, asked)

    def keep_rows(self) -> None:
        """Have the user's root answer every question that is a hit, wherever it will be used."""
        rows, stores = Rows(self._stores), self._stores._replace(read_only=True)
        for (kind, question), asked in self._asked.items():
            compiler = self._compilers[kind]
            with suppress(GpucacheError):
                prepared = compiler.prepare(asked, stores)
                hits = hits_of(compiler.find(stores, asked, prepared))
                rows.keep(compiler, question, asked, prepared, hits)

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
            self._asked[kind, question] = asked or self._compilers[kind].read(Fields(question))

    def _answer(
        self, compiler: Compiler[Any], question: Question, asked: Asked
    ) -> tuple[Layered | None, Row | None]:
        left = Layered(asked.name, "", LayerResult.LEFT)
        if asked.is_ours:
            return replace(left, reason="a program of gpucache.cuda looks into the cache by itself"), None
        try:
            prepared = compiler.prepare(asked, self._stores)
            left = replace(left, program=prepared[0].request.program.name, target=targets_of(prepared))
            if compiler.ask is Kind.PART:
                keys = keys_of_part(prepared)
                mark = self._links.mark(prepared).encode()
                return None, row_of(answered(compiler, question, asked, prepared, keys, (b"", mark)))
            parts = compiler.find(self._stores, asked, prepared)
            for one, part in zip(prepared, parts, strict=True):
                if isinstance(part, NoEntry):
                    miss = explain(self._stores, one, part)
                    return replace(left, reason=f"{miss.verdict}: {miss.detail}"), None
            hits = hits_of(parts)
            given = compiler.fields(self._stores, asked, prepared, hits)
            keys = [hit.key for hit in hits]
            row = row_of(answered(compiler, question, asked, prepared, keys, given))
        except (GpucacheError, UncoveredError) as error:
            return replace(left, reason=str(error)), None
        if not fits(row):
            return replace(left, reason="it is larger than an index keeps"), None
        return replace(left, result=LayerResult.EXPORTED), row
