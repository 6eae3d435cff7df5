"""Rows of the table, read a few at a time: no lock is held between two reads, and no kernel is read whole.

Owns what is read of a row and what its key is. SQLite lets every column hold anything: whatever a row
holds is read, bounded, with the storage class it has. Must not know files.
"""

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpucache.caches.rocfft.schema import COLUMNS, SUM_BYTES, TABLE, format_hip
from gpucache.errors import FormatError

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
    return "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in raw.decode("utf-8", "replace")
    )


def hip(value: Value) -> str:
    """A HIP version as people write it."""
    return format_hip(value) if isinstance(value, int) else text(value)


def digits(value: Value) -> str:
    """A sum as hex."""
    return value[:SUM_BYTES].hex() if isinstance(value, bytes) else text(value)


def damage(row: Row) -> str:
    """Why no lookup can find a row or use what it finds; empty for a row as rocFFT writes them."""
    for (name, usual), found in zip(COLUMNS.items(), row.types, strict=True):
        if found != usual:
            return f"its {name} is {found} where rocFFT stores {usual}, so no lookup finds it"
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
            "it holds no code: rocFFT takes it for a hit, cannot load it and never compiles that kernel anew"
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
MATCHES = " AND ".join(f"{column} = ?" for column in _KEY)
"""The condition of rocFFT's own lookup."""


def read_rows(connection: sqlite3.Connection) -> Iterator[Row]:
    """Every row in constant memory; raises sqlite3.Error, FormatError for a table that goes in circles."""
    last: int | None = None
    while True:
        after = "" if last is None else f"WHERE rowid > {last}"
        found = connection.execute(f"{_SELECT} {after} ORDER BY rowid LIMIT {_READ_AT_ONCE}").fetchall()
        for values in found:
            row = _row(values)
            if last is not None and row.rowid <= last:
                raise FormatError(f"the rows of {TABLE} are out of order")
            last = row.rowid
            yield row
        if len(found) < _READ_AT_ONCE:
            return


def read_row(connection: sqlite3.Connection, rowid: int) -> Row | None:
    """The row of a number; None where there is none; raises sqlite3.Error."""
    found = connection.execute(f"{_SELECT} WHERE rowid = ?", (rowid,)).fetchone()
    return None if found is None else _row(found)


def look_again(connection: sqlite3.Connection, row: Row) -> Row | None:
    """A row as it is now, wherever it was moved; None where it changed or is gone; raises sqlite3.Error."""
    if read_row(connection, row.rowid) == row:
        return row
    if damage(row):
        return None
    found = connection.execute(f"{_SELECT} WHERE {MATCHES}", bound(row)).fetchone()
    moved = None if found is None else _row(found)
    return moved if moved is not None and replace(moved, rowid=row.rowid) == row else None


def bound(row: Row) -> tuple[str, str, Value, Value]:
    """The primary key of a sound row as rocFFT binds it."""
    name, arch, version, total = row.primary
    return _utf8(name), _utf8(arch), version, total


def _utf8(value: Value) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def read_code(connection: sqlite3.Connection, row: Row, limit_bytes: int) -> bytes:
    """The kernel of a row; raises FormatError for more than a limit or none, sqlite3.Error."""
    if row.types[4] not in ("blob", "text"):
        raise FormatError(f"the row of {text(row.kernel_name)} holds no code")
    with connection.blobopen(TABLE, "code", row.rowid, readonly=True) as blob:
        if len(blob) > limit_bytes:
            raise FormatError(f"the row of {text(row.kernel_name)} claims more code than its file has bytes")
        return blob.read()


def read_prefix(connection: sqlite3.Connection, row: Row) -> bytes:
    """The beginning of a row's kernel; raises sqlite3.Error."""
    if row.types[4] != "blob":
        return b""
    with connection.blobopen(TABLE, "code", row.rowid, readonly=True) as blob:
        return blob.read(PREFIX_BYTES)


def _row(values: Sequence[object]) -> Row:
    rowid, *rest = values
    name, arch, version, total, stored = (
        value if isinstance(value, int | float | bytes) else None for value in rest[:5]
    )
    lengths = tuple(value if isinstance(value, int) else 0 for value in rest[11:])
    types = tuple(str(value) for value in rest[5:11])
    number = rowid if isinstance(rowid, int) else 0
    return Row(number, name, arch, version, total, stored, types, lengths)
