"""Records beside the entries of a root: rows, which answer questions of programs, and memos.

A record has its own file in ``rows``, or is in one file with others if it is small, so that it takes as many
bytes as it has and not a block of the disk. ``native/index.c`` finds rows by the digest of their question.
Such a file is little-endian, replaced as a whole and never changed in place:

| offset | size | field |
|---|---|---|
| 0 | 8 | magic ``GPCINDEX`` |
| 8 | 4 | version, 5 |
| 12 | 4 | number of rows, at most 126 |
| 16 | 8 | size of the file |
| 24 | 8 | zero |
| 32 | 32 each | rows: digest of the source, digest of the question, place and size of the record |
| | | records: XXH64 of the rest, then what ``serve.index`` describes |

A memo is a row of no source, with its name and then its data, compressed by zlib, as its record, and the
beginning of the name as its question. Older gpucaches read only rows with their own files.
Must not know more of a row than the entries that it refers to.
"""

import struct
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import xxhash

from gpucache.model import CacheKey
from gpucache.store import layout, lock
from gpucache.store.bounded_folder import BoundedFolder, Bounds
from gpucache.store.root_folder import UNUSABLE, RootFolder

FILE_ROWS = 126
"""The most rows of a file: C reads its front as one block."""
SMALL_BYTES = 4 << 10
"""A larger record has its own file."""
UNPACKED_BYTES_CAP = 32 << 20
_MAGIC, _VERSION = b"GPCINDEX", 5  # of records with a source and with its digest
# A row names the headers of its answer, so rows of version 4 may lack one that the scanner of that time did
# not see. Entries need no such step: their key has the headers, so a scanner that sees more makes another.
REFERENCE = struct.Struct("<32s16sQ")
"""An entry that a row refers to: its key, the checksum of its description, when it was made."""
_HEADER, _ROW = struct.Struct("<8sIIQ8x"), struct.Struct("<QQQQ")
_SUM, _LENGTH = struct.Struct("<Q"), struct.Struct("<I")
_BOUNDS = Bounds(files=8192, file_bytes=4 << 20, total_bytes=128 << 20, seldom=True)
_SHARED_BOUNDS = _BOUNDS._replace(files=1 << 16, total_bytes=1 << 30)
_WAIT_S = 1.0
_SMALL_MEMOS = 16
"""How many memos are among the small records: of more the oldest get their own files."""
_DIGITS, _DATA, _FASTEST = 16, _SUM.size + 64, 1


class Row(NamedTuple):
    """A record, as it is in the file."""

    of_source: int
    of_question: int
    record: bytes

    @property
    def is_memo(self) -> bool:
        return self.of_source == 0

    @property
    def name(self) -> str:
        """The hex digits of a question, or the name of a memo."""
        name = self.record[_SUM.size : _DATA].decode("ascii", "replace")
        return name if self.is_memo else f"{self.of_question:016x}"


Choose = Callable[[list[Row]], list[Row]]


def rows_of(data: bytes) -> list[Row] | None:
    """The sound rows of a file; None if these bytes are none of this version."""
    with suppress(struct.error, ValueError):
        return list(_rows(data))
    return None


def _rows(data: bytes) -> Iterator[Row]:
    magic, version, count, size = _HEADER.unpack_from(data)
    if (magic, version, size) != (_MAGIC, _VERSION, len(data)) or count > FILE_ROWS:
        raise ValueError("no rows")
    for at in range(count):
        of_source, of_question, begin, length = _ROW.unpack_from(data, _HEADER.size + at * _ROW.size)
        if (size := size - length) < 0:
            raise ValueError("rows share records")  # which a small file can have of any size together
        record = data[begin : begin + length]
        if len(record) == length and record[: _SUM.size] == _sum(record[_SUM.size :]):
            yield Row(of_source, of_question, record)


def _sum(data: bytes) -> bytes:
    return _SUM.pack(xxhash.xxh64_intdigest(data))


def encode(rows: Sequence[Row]) -> bytes:
    begin = _HEADER.size + len(rows) * _ROW.size
    size = begin + sum(len(row.record) for row in rows)
    parts = [_HEADER.pack(_MAGIC, _VERSION, len(rows), size)]
    for row in rows:
        parts.append(_ROW.pack(*row[:2], begin, len(row.record)))
        begin += len(row.record)
    return b"".join((*parts, *(row.record for row in rows)))


class Cursor:
    """Goes through the fields of a record; raises struct.error or ValueError after their end."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def take(self) -> bytes:
        (length,) = _LENGTH.unpack_from(self._data, self.at)
        begin = self.at + _LENGTH.size
        self.at = begin + length
        if self.at > len(self._data):
            raise ValueError("a field is longer than its record")
        return self._data[begin : self.at]

    def number(self) -> int:
        return int(self.take())

    def skip(self, count: int) -> None:
        for _ in range(count):
            self.take()


def references_of(row: Row) -> list[CacheKey]:
    """The keys of the entries that an answer refers to; raises ValueError or struct.error."""
    fields = Cursor(row.record, _SUM.size)
    fields.skip(3)
    fields.skip(4 * fields.number())
    fields.skip(fields.number())
    fields.skip(5 * fields.number())
    pairs = [(fields.take(), fields.take()) for _ in range(fields.number())]
    return [CacheKey(REFERENCE.unpack(entry)[0].hex()) for _, entry in pairs]


class Records(BoundedFolder):
    """Rows, by the hex digits of their question, or memos: small ones together, others in own files."""

    def __init__(self, root: RootFolder, suffix: str, bounds: Bounds) -> None:
        super().__init__(root, layout.ROWS, suffix, bounds)
        self._shared = BoundedFolder(root, layout.BASE, ".row", _BOUNDS)

    def of(self, name: str, *, use: bool = False) -> list[Row]:
        """The records of a name; the ``use`` of a file is recorded."""
        return [*self._own(name, use=use), *(row for row in self._small() if row.name == name)]

    def each(self) -> Iterator[Row]:
        """All rows."""
        for _, data in self.all():
            yield from rows_of(data) or ()
        yield from (row for row in self._small() if not row.is_memo)

    def keep(self, name: str, choose: Choose) -> bool:
        """Replace the records of a name by what is chosen of them; returns whether any are kept."""
        return name in self.keep_all([(name, choose)])

    def keep_all(self, chosen: Iterable[tuple[str, Choose]]) -> set[str]:
        """Replace the records of several names, the latest first, while no other process does so.

        Returns the names of which any are kept: of records that do not fit the last go.
        """
        kept = dict[str, bool]()
        with (
            suppress(*UNUSABLE),
            self._root.make(*layout.LOCKS) as folder,
            lock.single_flight(folder, layout.ROWS_LOCK, _WAIT_S) as alone,
        ):
            before = dict[str, list[Row]]()
            for row in self._small():
                before.setdefault(row.name, []).append(row)
            together, apart, small = dict[str, bool](), dict[str, list[Row]](), before.copy()
            for name, choose in chosen:
                rows = choose([*self._own(name), *small.pop(name, ())])
                count = sum(map(len, (rows, *small.values())))
                if not alone or count > FILE_ROWS or any(len(row.record) >= SMALL_BYTES for row in rows):
                    apart[name] = rows
                    continue
                together[name] = bool(rows)
                small = {name: rows, **small}
                memos = [one for one, each in small.items() if each and each[0].is_memo]
                apart |= {one: small.pop(one) for one in memos[_SMALL_MEMOS:]}
            data = encode([row for each in small.values() for row in each])
            if alone and (small == before or self._shared.put(layout.RECORDS_NAME, data)):
                kept = together
            for name in kept:
                self.remove(name)
            for name, rows in apart.items():
                while rows and not self.put(name, encode(rows)):
                    rows.pop()
                kept[name] = bool(rows)
        return {name for name, are in kept.items() if are}

    def forget(self, keys: Container[str]) -> None:
        """Drop the rows that refer to any of these entries, which were removed."""

        def stays(row: Row) -> bool:
            with suppress(ValueError, struct.error):
                return row.is_memo or not any(one.hex in keys for one in references_of(row))
            return False

        names = {row.name for row in self.each() if not stays(row)}
        self.keep_all((name, lambda rows: [*filter(stays, rows)]) for name in sorted(names))

    def _own(self, name: str, *, use: bool = False) -> list[Row]:
        found = rows_of(self.get(name, use=use) or b"") or ()
        return [row for row in found if row.name == name]

    def _small(self) -> list[Row]:
        return rows_of(self._shared.get(layout.RECORDS_NAME) or b"") or []


def rows(root: RootFolder) -> Records:
    return Records(root, ".row", _SHARED_BOUNDS if root.shared else _BOUNDS)


class Memos:
    """Data that processes remember to save time."""

    def __init__(self, root: RootFolder) -> None:
        bounds = Bounds(files=1024, file_bytes=4 << 20, total_bytes=16 << 20)
        self._records = Records(root, ".memo", bounds)

    def recall(self, name: str, *, use: bool) -> bytes | None:
        """The data kept under a name; None if it is missing or damaged."""
        for row in self._records.of(name, use=use):
            unpacking = zlib.decompressobj()
            with suppress(zlib.error):
                data = unpacking.decompress(row.record[_DATA:], UNPACKED_BYTES_CAP)
                return data if unpacking.eof else None
        return None

    def remember(self, name: str, data: bytes) -> None:
        if len(data) <= UNPACKED_BYTES_CAP:
            body = name.encode("ascii") + zlib.compress(data, _FASTEST)
            row = Row(0, int(name[:_DIGITS], 16), _sum(body) + body)
            self._records.keep(name, lambda _: [row])
