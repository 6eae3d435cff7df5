"""Answers for an index: of a build or of an NVRTC call, whole for a layer, by reference for a root.

Owns which parts of an answer are kept where, and when a question gets a file in the user's root. ``index``
owns the file's format, ``conditions`` what an answer depends on.
"""

from collections.abc import Sequence
from dataclasses import replace

from gpucache.answers.lookup import Hit
from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import Stores
from gpucache.errors import GpucacheError
from gpucache.model import CacheKey
from gpucache.serve.conditions import Strict, UncoveredError, of_build, of_call
from gpucache.serve.index import (
    Answered,
    Hole,
    Reference,
    encode,
    fits,
    merged,
    place_of,
    question_of,
    row_of,
    rows_of,
)
from gpucache.serve.nvrtc import Call
from gpucache.serve.opencl import DEFEATER
from gpucache.serve.opencl import Asked as OpenCLAsked
from gpucache.serve.session import A, Compiler, Question, targets_of
from gpucache.serve.wire import Kind

_NAME, _SOURCE = 5, 4
_MADE_UP = 8
"""How many characters a program makes up of a file's name."""


def answered(
    compiler: Compiler[A],
    question: Question,
    asked: A,
    prepared: Sequence[Prepared],
    keys: Sequence[CacheKey],
    given: Sequence[bytes],
    strict: Strict | None = None,
) -> Answered:
    """The answer to a question, found by some keys, of given fields. Raises UncoveredError, TargetError."""
    holes: tuple[Hole, ...] = ()
    if isinstance(asked, Call):
        conditions = of_call(asked, prepared[0], keys[0], strict)
        holes = _name_holes(asked, question[_NAME], given)
    else:
        assert isinstance(asked, OpenCLAsked)
        conditions = of_build(asked, prepared, keys, compiler.files(asked), strict)
        if mark := DEFEATER.search(question[_SOURCE]):
            holes = (Hole(_SOURCE, mark.start(1), len(mark[1])),)
    part = "a part, " if compiler.ask is Kind.PART else ""
    title = f"{part}{prepared[0].request.program.name} for {targets_of(prepared)}"
    return Answered(title, compiler.ask, question, tuple(given), conditions, holes)


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


def _built_for(hits: Sequence[Hit]) -> list[bytes]:
    """The local sizes that all of some entries are compiled for."""
    sizes = set.intersection(*(set(hit.head.local_sizes) for hit in hits))
    return sorted(",".join(map(str, size)).encode() for size in sizes)


class Rows:
    """The answers in the user's root: a question answered by key is answered from there the next time."""

    def __init__(self, stores: Stores, strict: Strict | None = None) -> None:
        """With ``strict`` they are for this machine alone, else for wherever the root will be."""
        self._stores = stores
        self._strict = strict

    def keep(
        self,
        compiler: Compiler[A],
        question: Question,
        asked: A,
        prepared: Sequence[Prepared],
        hits: Sequence[Hit],
    ) -> bool:
        """Keep the answer to a build that was a hit, or that has just been stored; whether it can be kept."""
        store = self._stores.target
        if store is None or len(hits) != len(prepared):
            return False
        given = compiler.fields(self._stores, asked, prepared, hits)
        payloads = [compiler.first_payload + 2 * number for number in range(len(hits))]
        try:
            keys = [hit.key for hit in hits]
            whole = answered(compiler, question, asked, prepared, keys, given, self._strict)
            references = [self._reference(place, hit) for place, hit in zip(payloads, hits, strict=True)]
        except (UncoveredError, GpucacheError, OSError):
            return False  # the server answers it the next time, too
        answer = [b"" if place in payloads else field for place, field in enumerate(whole.answer)]
        target = targets_of(prepared)
        note = b"%d\t%s\t%s\t%s" % (
            max(hit.head.compile_ns for hit in hits),
            hits[0].key.hex.encode(),
            target.encode("unicode_escape"),
            whole.title.removesuffix(f" for {target}").encode("unicode_escape"),
        )
        row = row_of(whole)
        if any(one.compilation.late for one in prepared):
            answer[0] = b" ".join((b"@" + place_of(row).encode(), *_built_for(hits)))
        row = row_of(replace(whole, answer=tuple(answer), references=tuple(references), note=note))
        folder = store.rows if self._strict is None else store.index
        before = folder.get(place_of(row))
        rows = merged([row], rows_of(before) or () if before else ())
        return all(map(fits, rows)) and folder.put(place_of(row), encode(rows))

    def asked(self, place: str) -> Question | None:
        """The fields of a question in a row of any root, without those of a process; None if it is gone."""
        for store in self._stores.on_disk():
            for folder in (store.index, store.rows):
                for row in rows_of(folder.get(place) or b"") or ():
                    return question_of(row)
        return None

    def _reference(self, place: int, hit: Hit) -> Reference:
        """The entry of a hit, if it is still the one that was found; raises UncoveredError."""
        for store in self._stores.on_disk():
            sealed = store.seal(hit.key)
            if sealed is not None and sealed[1] == hit.head:
                return Reference(place, hit.key, sealed[0], hit.head.created_ns)
        raise UncoveredError("its entry has been replaced")
