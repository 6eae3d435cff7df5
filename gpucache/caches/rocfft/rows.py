"""Rows of the table, read a few at a time: no lock is held between two reads, and no kernel is read whole.

Owns what is read of a row and what its key is. SQLite lets every column hold anything: whatever a row
holds is read, bounded, with the storage class it has. Must not know files.
"""

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpucache.caches.rocfft.schema import (
    COLUMNS,
    MATCHES,
    SUM_BYTES,
    TABLE,
    UTF8,
    format_hip,
    text_encoding,
)
from gpucache.errors import FormatError
from gpucache.units import printable

Value = int | float | bytes | None
VALUE_BYTES = 4096
"""Of a name, an architecture or a sum, how much is read; rocFFT's are far shorter."""
PREFIX_BYTES = 4096
_READ_AT_ONCE = 128
_KEY = ("kernel_name", "arch", "hip_version", "generator_sum")
_SHOWN_DIGITS = 12
_NS = 1_000_000_000
_LAST_NS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it was seen; texts are bytes."""

    rowid: int
    kernel_name: Value
    arch: Value
    hip_version: Value
    generator_sum: Value
    timestamp: Value
    types: tuple[str, ...]
    """The storage classes of the six columns."""
    lengths: tuple[int, ...]
    """The bytes of name, architecture, sum and code, however much of them was read."""
    answers: bool = True
    """Whether rocFFT's select for its key gives this row: SQLite takes some values for others."""

    @property
    def code_bytes(self) -> int:
        """The size of the kernel."""
        return self.lengths[3]

    @property
    def size_bytes(self) -> int:
        """What rocFFT's own trimming counts of a row."""
        return self.code_bytes + self.lengths[0]

    @property
    def key(self) -> str:
        """SHA-256 over the framed primary key; a storage class that rocFFT never writes is part of it."""
        hasher = hashlib.sha256()
        odd = [found for found, usual in zip(self.types, COLUMNS.values(), strict=True) if found != usual]
        for value in (*self.primary, *odd):
            raw = value if isinstance(value, bytes) else str(value).encode()
            hasher.update(len(raw).to_bytes(8, "little"))
            hasher.update(raw)
        return hasher.hexdigest()

    @property
    def primary(self) -> tuple[Value, Value, Value, Value]:
        """The four values that rocFFT looks a kernel up by."""
        return self.kernel_name, self.arch, self.hip_version, self.generator_sum

    @property
    def created_ns(self) -> int:
        """When it was stored, in nanoseconds; 0 where the row does not say."""
        seconds = self.timestamp if isinstance(self.timestamp, int) else 0
        return min(max(seconds * _NS, 0), _LAST_NS)

    @property
    def variant(self) -> str:
        """What else the key holds: a database may serve several installations of rocFFT at once."""
        return f"HIP {hip(self.hip_version)}, generator {digits(self.generator_sum)[:_SHOWN_DIGITS]}"

    @property
    def compared(self) -> tuple[tuple[str, str], ...]:
        """The fields, and the HIP version as its integer as well, since people know it as either."""
        number = self.hip_version
        return ((_KEY[2], str(number)), *self.fields) if isinstance(number, int) else self.fields

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The primary key as people read it."""
        shown = (text(self.kernel_name), text(self.arch), hip(self.hip_version), digits(self.generator_sum))
        return tuple(zip(_KEY, shown, strict=True))


def text(value: Value) -> str:
    """A value as text that can be shown."""
    raw = value if isinstance(value, bytes) else b"" if value is None else str(value).encode()
    return printable(raw, None)


def hip(value: Value) -> str:
    """A HIP version as people write it."""
    return format_hip(value) if isinstance(value, int) else text(value)


def digits(value: Value) -> str:
    """A sum as hex."""
    return value[:SUM_BYTES].hex() if isinstance(value, bytes) else text(value)


def damage(row: Row) -> str:
    """Why no lookup can find a row or use what it finds; empty for a row as rocFFT writes them."""
    if not row.answers:
        name, found = next(one for one in zip(COLUMNS, row.types, strict=True) if one[1] != COLUMNS[one[0]])
        return f"its {name} is {found} where rocFFT stores {COLUMNS[name]}, so no lookup finds it"
    if max(row.lengths[:3]) > VALUE_BYTES:
        return f"its key has values of up to {max(row.lengths[:3])} bytes, which rocFFT never makes"
    if not all(isinstance(value, bytes) and _is_text(value) for value in row.primary[:2]):
        return "its name or architecture is no text, so no lookup finds it"
    if row.lengths[2] != SUM_BYTES:
        return (
            f"its generator_sum has {row.lengths[2]} bytes where SHA-256 has {SUM_BYTES}, "
            "so no lookup finds it"
        )
    if not row.code_bytes:
        return (
            "it holds no code: rocFFT takes that for a miss, compiles the kernel at the next run and "
            "stores it where it may write"
        )
    return ""


def _is_text(value: bytes) -> bool:
    try:
        return "\0" not in value.decode()
    except UnicodeDecodeError:
        return False


def _bounded(column: str) -> str:
    whole = f"CAST({column} AS BLOB)"
    part = f"substr({whole}, 1, {VALUE_BYTES})"
    return f"CASE WHEN typeof({column}) IN ('text', 'blob') THEN {part} ELSE {column} END"


def _length(column: str) -> str:
    # Of a blob SQLite knows the length without reading it.
    return f"CASE typeof({column}) WHEN 'blob' THEN length({column}) ELSE length(CAST({column} AS BLOB)) END"


_VALUES = ", ".join(_bounded(column) for column in (*_KEY, "timestamp"))
_TYPES = ", ".join(f"typeof({column})" for column in COLUMNS)
_LENGTHS = ", ".join(_length(column) for column in ("kernel_name", "arch", "generator_sum", "code"))
_SELECT = f"SELECT rowid, {_VALUES}, {_TYPES}, {_LENGTHS} FROM {TABLE}"
_ANSWER = f"SELECT rowid FROM {TABLE} WHERE {MATCHES}"


def read_rows(connection: sqlite3.Connection) -> Iterator[Row]:
    """Every row in constant memory; raises sqlite3.Error, FormatError for a table that goes in circles."""
    last: int | None = None
    encoding = text_encoding(connection)
    while True:
        after = "" if last is None else f"WHERE rowid > {last}"
        found = connection.execute(f"{_SELECT} {after} ORDER BY rowid LIMIT {_READ_AT_ONCE}").fetchall()
        for values in found:
            row = _row(connection, values, encoding)
            if last is not None and row.rowid <= last:
                raise FormatError(f"the rows of {TABLE} are out of order")
            last = row.rowid
            yield row
        if len(found) < _READ_AT_ONCE:
            return


def read_row(connection: sqlite3.Connection, rowid: int) -> Row | None:
    """The row of a number; None where there is none; raises sqlite3.Error."""
    found = connection.execute(f"{_SELECT} WHERE rowid = ?", (rowid,)).fetchone()
    return None if found is None else _row(connection, found, text_encoding(connection))


def look_again(connection: sqlite3.Connection, row: Row) -> Row | None:
    """A row as it is now, wherever it was moved; None where it changed or is gone; raises sqlite3.Error."""
    if read_row(connection, row.rowid) == row:
        return row
    if damage(row):
        return None
    found = connection.execute(f"{_SELECT} WHERE {MATCHES}", bound(row)).fetchone()
    moved = None if found is None else _row(connection, found, text_encoding(connection))
    return moved if moved is not None and replace(moved, rowid=row.rowid) == row else None


def bound(row: Row) -> tuple[str, str, Value, Value]:
    """The primary key of a row as rocFFT binds it to find that."""
    name, arch, version, total = row.primary
    return _utf8(name), _utf8(arch), _whole(version), total


def _whole(value: Value) -> Value:
    """A number that was stored as something else; any other value as it is."""
    try:
        return value if value is None else int(value)
    except (ValueError, OverflowError):
        return value


def _utf8(value: Value) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def read_code(connection: sqlite3.Connection, row: Row, limit_bytes: int) -> bytes:
    """The kernel of a row; raises FormatError for more than a limit or none, sqlite3.Error."""
    if row.types[4] == "null":
        raise FormatError(f"the row of {text(row.kernel_name)} holds no code")
    if row.code_bytes > limit_bytes:
        raise FormatError(f"the row of {text(row.kernel_name)} claims more code than its file has bytes")
    return _code(connection, row, -1)


def read_prefix(connection: sqlite3.Connection, row: Row) -> bytes:
    """The beginning of a row's kernel; raises sqlite3.Error."""
    return _code(connection, row, PREFIX_BYTES)


def _code(connection: sqlite3.Connection, row: Row, count: int) -> bytes:
    """So many bytes of the code, or all for -1: what is no blob as rocFFT gets it, which asks for one."""
    if row.types[4] in ("blob", "text"):
        with connection.blobopen(TABLE, "code", row.rowid, readonly=True) as blob:
            return blob.read(count)
    found = connection.execute(f"SELECT CAST(code AS BLOB) FROM {TABLE} WHERE rowid = ?", (row.rowid,))
    (value,) = found.fetchone() or (None,)
    return value if isinstance(value, bytes) else b""


def _row(connection: sqlite3.Connection, values: Sequence[object], encoding: str) -> Row:
    rowid, *rest = values
    types = tuple(str(value) for value in rest[5:11])
    kinds = (*types[:4], types[5])
    name, arch, version, total, stored = (
        _value(value, kind, encoding) for value, kind in zip(rest[:5], kinds, strict=True)
    )
    lengths = tuple(value if isinstance(value, int) else 0 for value in rest[11:])
    number = rowid if isinstance(rowid, int) else 0
    row = Row(number, name, arch, version, total, stored, types, lengths)
    if types[:4] == _USUAL:
        return row
    return replace(row, hip_version=_whole(version), answers=_answers(connection, row))


_USUAL = tuple(COLUMNS.values())[:4]


def _answers(connection: sqlite3.Connection, row: Row) -> bool:
    """Whether rocFFT's select gives a row in whose key something else is stored than rocFFT stores."""
    try:
        return any(found == (row.rowid,) for found in connection.execute(_ANSWER, bound(row)))
    except OverflowError:  # no number that SQLite knows
        return False


def _value(value: object, kind: str, encoding: str) -> Value:
    if isinstance(value, bytes) and kind == "text" and encoding != UTF8:
        return value.decode(encoding, "replace").encode()
    return value if isinstance(value, int | float | bytes) else None
