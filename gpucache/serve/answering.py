"""Answers for the index of a root: of a build or of an NVRTC call, by reference to entries.

Owns which parts of an answer are kept where, and when a question gets a file in a root. ``index`` owns the
file's format, ``conditions`` what an answer depends on.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpucache.answers.lookup import Hit
from gpucache.engine.hits import find
from gpucache.engine.prepare import Prepared, named
from gpucache.engine.stores import Stores
from gpucache.errors import GpucacheError
from gpucache.model import CacheKey, Language
from gpucache.serve.conditions import NEW, UncoveredError, of_build, of_call
from gpucache.serve.index import (
    Answered,
    Hole,
    Reference,
    Row,
    encode,
    merged,
    place_of,
    question_of,
    row_of,
    rows_of,
    view_of,
)
from gpucache.serve.nvrtc import Call, OwnCalls, read_call
from gpucache.serve.opencl import DEFEATER
from gpucache.serve.opencl import Asked as OpenCLAsked
from gpucache.serve.session import A, Compiler, Question, targets_of
from gpucache.serve.wire import Fields, Kind

_NAME, _SOURCE = 5, 4
_DAY_S = 24 * 60 * 60
_MADE_UP = 8
"""How many characters a program makes up of a file's name."""


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
    holes: tuple[Hole, ...] = ()
    if isinstance(asked, Call):
        met = of_call(asked, prepared[0], keys[0], since_ns)
        holes = _name_holes(asked, question[_NAME], given)
    else:
        assert isinstance(asked, OpenCLAsked)
        met = of_build(asked, prepared, keys, compiler.files(asked), since_ns)
        if asked.language is not Language.SPIR_V and (mark := DEFEATER.search(question[_SOURCE])):
            holes = (Hole(_SOURCE, mark.start(1), len(mark[1])),)
    part = "a part, " if compiler.ask is Kind.PART else ""
    title = f"{part}{prepared[0].request.program.name} for {targets_of(prepared)}"
    return Answered(title, compiler.ask, question, tuple(given), met.conditions, holes, stamps=met.stamps)


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
    ) -> None:
        """Rows go into the target of ``stores``. Compilers are known as they were at ``since_ns``.

        A row is kept only if its conditions, as a record has them, are ``confirmed``.
        """
        self._stores = stores
        self._since_ns = since_ns
        self._confirmed = confirmed

    def keep(
        self,
        compiler: Compiler[A],
        question: Question,
        asked: A,
        prepared: Sequence[Prepared],
        hits: Sequence[Hit],
    ) -> str:
        """Keep the answer to a build that was a hit, or that has just been stored; why it cannot be kept."""
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

    def put(self, row: Row) -> str:
        """Add a row to those of its question; why that is not possible."""
        store = self._stores.target
        if store is None:
            return "nothing can be written to the cache"
        before = store.rows.get(place_of(row))
        rows = merged([row], rows_of(before) or () if before else ())
        while rows and not store.rows.put(place_of(row), encode(rows)):
            rows.pop()  # the oldest: each has the whole source
        return "" if rows else "it is larger than a row may be"

    def is_due(self, kind: Kind, question: Question) -> bool:
        """Whether the row of a question that hit by key is to be written; not if none could be for a day."""
        store, place = self._stores.target, _place(kind, question)
        age_s = None if store is None else store.rows.age_s(place)
        if store is None or age_s is None or age_s > _DAY_S:
            return True
        return bool(rows_of(store.rows.get(place) or b""))  # of other conditions, as of another header

    def note_none(self, kind: Kind, question: Question, why: str) -> None:
        """Note for a day that no row can be made, unless there are some, or one can be made in a minute."""
        store, place = self._stores.target, _place(kind, question)
        if store is not None and not why.endswith(NEW) and not rows_of(store.rows.get(place) or b""):
            store.rows.put(place, encode(()))

    def asked(self, place: str) -> Question | None:
        """The fields of a question in a row of any root, without those of a process; None if it is gone."""
        for store in self._stores.on_disk():
            for row in rows_of(store.rows.get(place) or b"") or ():
                return question_of(row)
        return None

    def _reference(self, place: int, hit: Hit) -> Reference:
        """The entry of a hit, if it is still the one that was found; raises UncoveredError."""
        for store in self._stores.on_disk():
            sealed = store.seal(hit.key)
            if sealed is not None and sealed[1] == hit.head:
                return Reference(place, hit.key, sealed[0], hit.head.created_ns)
        raise UncoveredError("its entry has been replaced")


def keep_call(kept: Rows, stores: Stores, question: Question, prepared: Prepared) -> str:
    """Keep the row of a call of our library that has an entry; why it cannot be kept. Raises WireError."""
    prepared = prepared._replace(request=prepared.request._replace(program=named(prepared.request.program)))
    found = find(stores._replace(read_only=True, remote=None), prepared, whole=True)
    hits = [found] if isinstance(found, Hit) else []
    return kept.keep(OwnCalls(), question, read_call(Fields(question)), [prepared], hits)
