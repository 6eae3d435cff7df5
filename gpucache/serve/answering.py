"""The content of compilers' requests and answers, and the answers that the index of a root keeps.

Owns which parts of an answer are kept where, and when a question gets a file in a root. ``index`` owns the
file's format, ``conditions`` what an answer depends on, ``opencl`` and ``nvrtc`` each a compiler's requests.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Generic, Protocol, TypeVar

from gpucache.answers.lookup import Hit
from gpucache.engine.hits import build_log, find
from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import NoEntry, Stores
from gpucache.errors import GpucacheError
from gpucache.model import CacheKey
from gpucache.serve.conditions import NEW, Met, UncoveredError
from gpucache.serve.index import (
    Answered,
    Hole,
    Reference,
    merged,
    place_of,
    question_of,
    row_of,
    view_of,
)
from gpucache.serve.wire import Fields, Kind
from gpucache.sources import Memos
from gpucache.store.records import Row, encode, references_of

_DAY_S = 24 * 60 * 60
Question = tuple[bytes, ...]
Part = Hit | NoEntry
"""The result of the lookup for one device, or for one kind of artifact."""


class Asked(Protocol):
    """A build as a command asks for it."""

    @property
    def name(self) -> str:
        """The program's name, for people."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables of the program."""

    @property
    def is_ours(self) -> bool:
        """Whether gpucache's own library asks, which has looked it up already."""

    @property
    def told_options(self) -> str:
        """The build options as logs repeat them."""


A = TypeVar("A", bound=Asked)


class Compiler(ABC, Generic[A]):
    """The content of one compiler's requests, and of their answers."""

    ask: ClassVar[Kind]
    told: ClassVar[Kind]
    doubted: ClassVar[Kind]
    """The kinds of a question, of the build's result, and of a program that sees other files."""
    refusals: ClassVar[tuple[int, ...]]
    first_payload: ClassVar[int]
    """The place of the first payload in an answer; every second field after it has a further one."""
    tells_all: ClassVar[bool]
    """Whether the end of a hit or of a passed build is reported too."""
    is_whole: ClassVar[bool]
    """Whether all parts come out of one compile, so that they are kept and found together or not at all."""

    @abstractmethod
    def read(self, fields: Fields) -> A:
        """The build of a question; raises WireError."""

    @abstractmethod
    def prepare(self, asked: A, memos: Memos | None = None) -> tuple[Prepared, ...]:
        """The lookup for each part; raises GpucacheError for a build that is not cached."""

    @abstractmethod
    def answer(self, asked: A, hits: Sequence[Hit], logs: Sequence[bytes]) -> Iterator[bytes]:
        """The fields of a hit; the first is a token."""

    def is_complete(self, _asked: A, _hits: Sequence[Hit], _logs: Sequence[bytes]) -> bool:
        return True

    @abstractmethod
    def files(self, asked: A) -> Sequence[Sequence[str]]:
        """The files of the compiler of each device; raises TargetError, NoDeviceError."""

    @abstractmethod
    def conditions(
        self, asked: A, prepared: Sequence[Prepared], keys: Sequence[CacheKey], since_ns: int
    ) -> Met:
        """The conditions of an answer found by some keys; compilers are known as they were at ``since_ns``.

        Raises UncoveredError.
        """

    @abstractmethod
    def holes(self, question: Question, asked: A, given: Sequence[bytes]) -> tuple[Hole, ...]:
        """The parts of a question and its answer that each process makes up; raises UncoveredError."""

    def find(self, stores: Stores, asked: A, prepared: Sequence[Prepared]) -> tuple[Part, ...]:
        """The result for each part from local caches; after the first miss, useless parts are skipped."""
        stores, parts = stores._replace(remote=None), list[Part]()
        for one in prepared:
            lacks = self.is_whole and any(isinstance(part, NoEntry) for part in parts)
            parts.append(NoEntry() if lacks else find(stores, one))
        return self._usable(stores, asked, prepared, parts)

    def find_elsewhere(
        self, stores: Stores, asked: A, prepared: Sequence[Prepared], found: Sequence[Part]
    ) -> tuple[Part, ...]:
        from gpucache.engine.elsewhere import ask

        return self._usable(stores, asked, prepared, ask(stores, prepared, found))

    def _usable(
        self, stores: Stores, asked: A, prepared: Sequence[Prepared], parts: Sequence[Part]
    ) -> tuple[Part, ...]:
        hits = hits_of(parts)
        if len(hits) == len(parts):
            logs = logs_of(stores, asked, prepared, hits)
            if not self.is_complete(asked, hits, logs):
                return tuple(NoEntry() for _ in parts)
        return tuple(parts)

    def fields(
        self, stores: Stores, asked: A, prepared: Sequence[Prepared], hits: Sequence[Hit]
    ) -> tuple[bytes, ...]:
        return tuple(self.answer(asked, hits, logs_of(stores, asked, prepared, hits)))


def hits_of(parts: Sequence[Part]) -> list[Hit]:
    return [part for part in parts if isinstance(part, Hit)]


def logs_of(stores: Stores, asked: Asked, prepared: Sequence[Prepared], hits: Sequence[Hit]) -> list[bytes]:
    """The compiler's log of each build, in the words of this request."""
    pairs = zip(prepared, hits, strict=True)
    logs = (build_log(stores, one, hit, asked.told_options) if hit.head.has_log else "" for one, hit in pairs)
    return [log.encode(errors="surrogateescape") for log in logs]


def targets_of(prepared: Sequence[Prepared]) -> str:
    return ", ".join(dict.fromkeys(str(one.request.target) for one in prepared))


def answered(
    compiler: Compiler[A],
    question: Question,
    asked: A,
    prepared: Sequence[Prepared],
    keys: Sequence[CacheKey],
    given: Sequence[bytes],
    since_ns: int = sys.maxsize,
) -> Answered:
    """The answer to a question, found by some keys, of given fields. Raises UncoveredError, TargetError."""
    met = compiler.conditions(asked, prepared, keys, since_ns)
    holes = compiler.holes(question, asked, given)
    part = "a part, " if compiler.ask is Kind.PART else ""
    title = f"{part}{prepared[0].request.program.name} for {targets_of(prepared)}"
    return Answered(title, compiler.ask, question, tuple(given), met.conditions, holes, stamps=met.stamps)


def _place(kind: Kind, question: Question) -> str:
    return place_of(row_of(Answered("", kind, question, (), ())))


def _built_for(hits: Sequence[Hit]) -> list[bytes]:
    """The local sizes that all of some entries are compiled for."""
    sizes = set.intersection(*(set(hit.head.local_sizes) for hit in hits))
    return sorted(",".join(map(str, size)).encode() for size in sizes)


class Rows:
    """The answers in a root: a question answered by key is answered from there the next time."""

    def __init__(
        self,
        stores: Stores,
        since_ns: int = sys.maxsize,
        confirmed: Callable[[bytes], bool] = lambda _: True,
        together: int = 1,
    ) -> None:
        """Rows go into the target of ``stores``. Compilers are known as they were at ``since_ns``.

        A row is kept only if its conditions, as a record has them, are ``confirmed``. So many are written
        ``together``: see ``flush``.
        """
        self._stores = stores
        self._since_ns = since_ns
        self._confirmed = confirmed
        self._together = together
        self._waiting: list[Row] = []

    def keep(
        self,
        compiler: Compiler[A],
        question: Question,
        asked: A,
        prepared: Sequence[Prepared],
        hits: Sequence[Hit],
    ) -> str:
        """Write the row of a build that was a hit or was just stored; returns why none can be written."""
        if len(hits) != len(prepared):
            return "a part of it has no entry"
        given = compiler.fields(self._stores, asked, prepared, hits)
        payloads = [compiler.first_payload + 2 * number for number in range(len(hits))]
        try:
            keys = [hit.key for hit in hits]
            whole = answered(compiler, question, asked, prepared, keys, given, self._since_ns)
            if not self._confirmed(view_of(whole.conditions)):
                return "its process sees other files, or has loaded another compiler"
            references = [self._reference(place, hit) for place, hit in zip(payloads, hits, strict=True)]
        except (UncoveredError, GpucacheError, OSError) as error:
            return str(error)  # a server answers it the next time, too
        answer = [b"" if place in payloads else field for place, field in enumerate(whole.answer)]
        target = targets_of(prepared)
        note = b"%d\t%s\t%s\t%s" % (
            max(hit.head.compile_ns for hit in hits),
            hits[0].key.hex.encode(),
            target.encode("unicode_escape"),
            whole.title.removesuffix(f" for {target}").encode("unicode_escape"),
        )
        late = any(one.compilation.late for one in prepared)
        if late:
            answer[0] = b" ".join((b"@" + _place(compiler.ask, question).encode(), *_built_for(hits)))
        whole = replace(whole, answer=tuple(answer), references=tuple(references), note=note)
        return self.put(row_of(replace(whole, keeps_source=late)))

    def keep_part(
        self,
        compiler: Compiler[A],
        question: Question,
        asked: A,
        part: Sequence[Prepared],
        keys: Sequence[CacheKey],
        mark: bytes,
    ) -> None:
        """Write the row of a part, which names no entry. Raises UncoveredError, GpucacheError."""
        self.put(row_of(answered(compiler, question, asked, part, keys, (b"", mark), self._since_ns)))

    def put(self, row: Row) -> str:
        """Add a row to those of its question; returns why that is not possible."""
        if self._stores.target is None:
            return "nothing can be written to the cache"
        self._waiting.append(row)
        kept = len(self._waiting) < self._together or self.flush()
        return "" if kept else "it is larger than a row may be"

    def flush(self) -> bool:
        """Write the rows that wait for others; returns whether all could be kept."""
        waiting, self._waiting = self._waiting, []
        new = dict[str, list[Row]]()
        for row in filter(self._has_entries, reversed(waiting)):
            new.setdefault(place_of(row), []).append(row)
        store = self._stores.target if new else None
        chosen = ((place, partial(merged, rows)) for place, rows in new.items())
        return store is None or store.rows.keep_all(chosen) == new.keys()

    def _has_entries(self, row: Row) -> bool:
        """Whether the entries of a row are there: they may have been evicted while it waited."""
        stores = [*self._stores.on_disk()]
        return all(any(store.contains(key) for store in stores) for key in references_of(row))

    def is_due(self, kind: Kind, question: Question) -> bool:
        """Whether to write the row of a question that hit by key; not on the day after a failure."""
        store, place = self._stores.target, _place(kind, question)
        age_s = None if store is None else store.rows.age_s(place)
        if store is None or age_s is None or age_s > _DAY_S:
            return True
        return bool(store.rows.of(place))  # of other conditions, as of another header

    def note_none(self, kind: Kind, question: Question, why: str) -> None:
        """Note for a day that no row can be made, unless there are some, or one can be made in a minute."""
        store, place = self._stores.target, _place(kind, question)
        if store is not None and not why.endswith(NEW) and not store.rows.of(place):
            store.rows.put(place, encode(()))

    def asked(self, place: str) -> Question | None:
        """The question of a row in any root, without the fields of its process; None if the row is gone."""
        self.flush()
        for store in self._stores.on_disk():
            for row in store.rows.of(place):
                return question_of(row)
        return None

    def _reference(self, place: int, hit: Hit) -> Reference:
        """The entry of a hit, if it is still the one that was found; raises UncoveredError."""
        for store in self._stores.on_disk():
            sealed = store.seal(hit.key)
            if sealed is not None and sealed[1] == hit.head:
                return Reference(place, hit.key, sealed[0], hit.head.created_ns)
        raise UncoveredError("its entry has been replaced")
