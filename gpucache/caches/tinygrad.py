"""tinygrad's ``cache.db``: its compiled and tuned kernels, an SQLite database for all devices of a user.

Source: ``tinygrad/helpers.py`` and ``device.py`` of tinygrad 0.9.1 and 0.14.0; checked against files of both.
A table for each kind, such as ``compile_null_sm_80_22`` and ``beam_search_22``, ends in the number of the
format; its rows have the key, such as a whole source, and a pickle of the value, such as of the binary's
bytes. tinygrad unpickles a value whenever a program asks for its key; gpucache only lists opcodes. Nothing
has a time or a checksum, and nothing is ever removed, including the tables of older formats, which no newer
tinygrad reads. A program keeps the database open until it ends, 0.14.0 in write-ahead mode.
"""

import re
import sqlite3
from collections.abc import Iterator

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches import databases, pickles
from gpucache.caches.databases import DatabaseFormat
from gpucache.caches.files import Files
from gpucache.caches.layout import Layout, hashed
from gpucache.caches.learning_places import TinygradPlaces
from gpucache.caches.portable import Moving
from gpucache.errors import FormatError
from gpucache.payload import describe
from gpucache.units import format_size, printable

_NAME = r"(cache[\w-]*\.db)"
_TABLE = re.compile(rb"CREATE TABLE '[^']+_\d+' \([^()]*, val blob, PRIMARY KEY \([^()]*\)\)")
_TABLES = "SELECT name, sql FROM sqlite_master WHERE type = 'table' LIMIT 1000"
_NAMES = pickles.Names.of(
    "tinygrad", r"tinygrad\.(?:codegen(?:\.\w+)*|dtype|uop\.ops|ops|helpers|shape\.\w+|renderer):_?[A-Z]\w*"
)
_VALUE_BYTES = 256 << 20


class Tinygrad(TinygradPlaces, DatabaseFormat):
    """The database, as one entry: its rows have no times by which some could go first."""

    layout = Layout([_NAME, *(_NAME + side for side in databases.SIDES)], own=["downloads/"], key=hashed)
    opaque = (
        "its rows are found by the whole source of a kernel, in a table for each compiler and architecture, "
        "which 'gpucache inspect KEY' shows; DEBUG=8 makes tinygrad print those that it wants"
    )
    table = _TABLE
    consequence = "tinygrad fails at it at every start"
    row_fails = "tinygrad fails whenever a program wants it, as long as the row is there"
    moving = Moving(
        "code for a CPU is found on any CPU, so programs on another one could die; copy CACHEDB to "
        "machines of one CPU and GPU"
    )

    def broken(self, connection: sqlite3.Connection) -> Iterator[tuple[str, int, Problem]]:
        for table in _tables(connection):
            for row, length in connection.execute(f"SELECT rowid, length(val) FROM {_quoted(table)}"):
                if (length or 0) > _VALUE_BYTES:
                    continue  # larger than the limit for reading
                ((value,),) = connection.execute(f"SELECT val FROM {_quoted(table)} WHERE rowid = ?", (row,))
                wrong = _wrong(value if isinstance(value, bytes) else b"", table.startswith("compile_"))
                if wrong:
                    told = f"row {row} of its table {printable(table)} {wrong.detail}"
                    yield table, row, wrong._replace(detail=told)

    def content(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        yield "kind", entry.artifact_kind
        try:
            with self.database(item) as (connection, _):
                for table in _tables(connection):
                    total = f"SELECT count(*), total(length(val)) FROM {_quoted(table)}"
                    rows, size = next(connection.execute(total))
                    yield printable(table), f"{rows} rows, {format_size(int(size))}"
        except (sqlite3.Error, MemoryError, FormatError) as error:
            yield "rows", f"not counted: {error}"


def _tables(connection: sqlite3.Connection) -> list[str]:
    """The tables that are declared as tinygrad does."""
    declared = connection.execute(_TABLES).fetchall()
    return [name for name, sql in declared if _TABLE.fullmatch(str(sql).encode())]


def _quoted(table: str) -> str:
    return '"' + table.replace('"', '""') + '"'


def _wrong(value: bytes, compiled: bool) -> Problem | None:
    """Why tinygrad cannot use a value, or should not, as the rest of a sentence."""
    found, problem = pickles.values(value, 1, _NAMES)
    if problem:
        return problem
    binaries = [one for one in found if isinstance(one, bytes)]
    if compiled and not any(binaries):
        return Problem(FindingKind.CORRUPT, "holds no binary")
    broken = (describe(binary).problem for binary in binaries if compiled)
    why = next(filter(None, broken), None)
    return Problem(FindingKind.CORRUPT, f"has a broken binary: {why}") if why else None
