"""The index of a root: questions that were answered, for libraries that answer them without a server.

A root has them in the files of ``store.records``, each a record: XXH64 of the rest, then fields as
``wire`` has them.

A record's fields are a title for people; a note, which is counted with a hit; stamps of this machine's files
(``conditions``), which are read in the user's own root alone; the number of holes, of each the field of the
question that it is in, its place and size there, and its places in the answer; the number of fields of the
question, and these; the number of conditions, and five fields of each; the number of references, of each the
field of the answer that is empty and gets the payload of an entry, and that entry: its key, the checksum of
its description, when it was made; then the fields of the answer. A hole is a part that a program makes up for
each run. One of no size is at the end of the source, has its SHA-256 in place of places, with underscores in
the other holes, and the source is not in the record: so a record tells no more than its entry. Records of
compilers that go on at launches have the source, for ``Rows.asked``, as have those of older gpucaches, which
read no others. ``native/index.c`` is the other reader, and compares all other fields byte for byte.

Until version 4 a root had other files in ``index``, for its machine alone, and a layer one file with all
answers. Versions ignore each other's files, and a hit by key writes the row anew.
"""

import hashlib
import os
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

from gpucache.model import CacheKey
from gpucache.serve.wire import Kind, number
from gpucache.store.records import REFERENCE, Cursor, Row, references_of

ROWS_CAP = 8
"""The most rows of a question, with different conditions each: the latest stay."""
_SUM, _LENGTH = struct.Struct("<Q"), struct.Struct("<I")
_TAIL = 80
"""The bytes at a source's end that are in no digest, as PyOpenCL's mark differs in each run."""
_MADE_UP = b"pyopencl_defeat_cache_"
_NVRTC_LIBRARY, _NVRTC_NAME, _NVRTC_SOURCE = 4, 5, 6
SOURCE, DEVICES, DEVICE_FIELDS = 4, 6, 8
"""The places of the source and of the first device in a question, and how many fields a device has."""


class Hole(NamedTuple):
    """A part that a program makes up for each run: its place in the question, and in the answer's bytes."""

    field: int
    at: int
    size: int
    places: tuple[int, ...] = ()


class Condition(NamedTuple):
    """The conditions that must still be met; see ``conditions``."""

    kind: str
    place: bytes = b""
    text: bytes = b""
    value: bytes = b""
    more: bytes = b""


class Reference(NamedTuple):
    """An entry whose payload is a field of an answer."""

    field: int
    key: CacheKey
    checksum: bytes
    """The checksum of its description, which distinguishes it from other entries of this key."""
    created_ns: int


@dataclass(frozen=True, slots=True)
class Answered:
    """A question with its answer."""

    title: str
    kind: Kind
    question: tuple[bytes, ...]
    answer: tuple[bytes, ...]
    """The fields of a hit; a field that is an entry's payload is empty."""
    conditions: tuple[Condition, ...]
    holes: tuple[Hole, ...] = ()
    references: tuple[Reference, ...] = ()
    note: bytes = b""
    stamps: bytes = b""
    keeps_source: bool = False
    """Whether its record has the source itself."""


def is_compared(kind: Kind, field: int) -> bool:
    """Whether a field of a request is part of the question: its process, place and libraries are not."""
    if field <= 2:
        return False
    if kind is Kind.COMPILE:
        return field != _NVRTC_LIBRARY
    return field < DEVICES or (field - DEVICES) % DEVICE_FIELDS != 0


def source_field(kind: Kind) -> int:
    return _NVRTC_SOURCE if kind is Kind.COMPILE else SOURCE


def row_of(answered: Answered) -> Row:
    kind = answered.kind
    question = [field if is_compared(kind, at) else b"" for at, field in enumerate(answered.question)]
    for hole in answered.holes:
        field = question[hole.field]
        question[hole.field] = field[: hole.at] + b"_" * hole.size + field[hole.at + hole.size :]
    source = source_field(kind)
    total, of_source = int(kind), 0
    for at, field in enumerate(question):
        if not is_compared(kind, at):
            continue
        total = _digest(number(len(field)), total)
        if kind is Kind.COMPILE and at == _NVRTC_NAME:
            continue
        if at == source:
            begin = field[:-_TAIL] or field
            of_source = _digest(begin, kind)
            field = begin if _MADE_UP in field[len(begin) :] else field
        total = _digest(field, total)
    holes = [(*hole[:3], b"".join(map(_LENGTH.pack, hole.places))) for hole in answered.holes]
    if not answered.keeps_source and source < len(question):
        holes.append((source, len(question[source]), 0, hashlib.sha256(question[source]).digest()))
        question[source] = b""
    fields = [os.fsencode(answered.title), answered.note, answered.stamps, number(len(holes))]
    for *numbers, places in holes:
        fields += (*map(number, numbers), places)
    fields += (number(len(question)), *question, number(len(answered.conditions)))
    for one in answered.conditions:
        fields += (one.kind.encode(), *one[1:])
    fields.append(number(len(answered.references)))
    for reference in answered.references:
        entry = REFERENCE.pack(bytes.fromhex(reference.key.hex), reference.checksum, reference.created_ns)
        fields += (number(reference.field), entry)
    body = _framed([*fields, *answered.answer])
    return Row(of_source, total, _SUM.pack(_digest(body)) + body)


def place_of(row: Row) -> str:
    """The name of the file of a question in a root."""
    return f"{row.of_question:016x}"


def merged(new: Iterable[Row], old: Iterable[Row]) -> list[Row]:
    """The rows of a question, the latest first: of the same conditions the new one."""
    kept: dict[bytes, Row] = {}
    for row in (*new, *old):
        with suppress(struct.error, ValueError):
            kept.setdefault(_question(row.record), row)
    return list(kept.values())[:ROWS_CAP]


def question_of(row: Row) -> tuple[bytes, ...]:
    """The fields of a question, empty where they are not compared."""
    fields = Cursor(row.record, _SUM.size)
    fields.skip(3)
    fields.skip(4 * fields.number())
    return tuple(fields.take() for _ in range(fields.number()))


def travelling(row: Row) -> Row | None:
    """A row for another machine, with no stamp believed; None with a source, without an entry, or if it does
    not read."""
    with suppress(struct.error, ValueError):
        fields = Cursor(row.record, _SUM.size)
        title, note, stamps = (fields.take() for _ in range(3))
        begin = fields.at
        sizes = [[fields.take() for _ in range(4)][2] for _ in range(fields.number())]
        if b"0" in sizes and references_of(row):
            body = _framed([title, note, bytes(len(stamps))]) + row.record[begin:]
            return row._replace(record=_SUM.pack(_digest(body)) + body)
    return None


def _question(record: bytes) -> bytes:
    """A record up to its answer: the question that it answers."""
    fields = Cursor(record, _SUM.size)
    fields.skip(3)
    begin = fields.at
    for _ in range(fields.number()):
        fields.skip(4)
    fields.skip(fields.number())
    fields.skip(5 * fields.number())
    return record[begin : fields.at]


def view_of(conditions: Sequence[Condition]) -> bytes:
    """Conditions that a process confirms by itself, as it reads them in a record."""
    fields = (field for one in conditions for field in (one.kind.encode(), *one[1:]))
    return _framed([number(len(conditions)), *fields])


def _framed(fields: Iterable[bytes]) -> bytes:
    return b"".join(part for field in fields for part in (_LENGTH.pack(len(field)), field))


def _digest(data: bytes, seed: int = 0) -> int:
    return int(xxhash.xxh64_intdigest(data, seed))
