"""The table that rocFFT keeps its kernels in, and whether a database has it and nothing in its way.

Source: rocFFT, ``rtc_cache.cpp``. Must not know files.
"""

import re
import sqlite3
from dataclasses import dataclass
from enum import Enum

from gpucache.errors import UsageError

TABLE = "cache_v1"
OLD_TABLE = "stockham_v1"
CREATE = (
    "CREATE TABLE cache_v1 (  kernel_name TEXT NOT NULL,  arch TEXT NOT NULL,  hip_version INTEGER NOT NULL,"
    "  generator_sum BLOB NOT NULL,  code BLOB NOT NULL,  timestamp INTEGER NOT NULL,  PRIMARY KEY ("
    "      kernel_name, arch, hip_version, generator_sum      ))"
)
"""The text that upstream leaves in ``sqlite_master``, byte for byte."""
COLUMNS = {
    "kernel_name": "text",
    "arch": "text",
    "hip_version": "integer",
    "generator_sum": "blob",
    "code": "blob",
    "timestamp": "integer",
}
"""Columns in upstream's order, each with the storage class of what rocFFT writes."""
SUM_BYTES = 32
_OBJECTS_READ = 1000
_TEXT_READ = 4096
_MAJOR, _MINOR = 10_000_000, 100_000
_DOTTED = re.compile(r"(\d{1,4})\.(\d{1,2})\.(\d{1,5})")


class Table(Enum):
    """What a database has for rocFFT's table."""

    OURS = "the table"
    ABSENT = "nothing at all"
    OTHER = "tables of others"
    OLD = "the table of a pre-release"
    ODD = "something else of its name"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the schema of a database is to rocFFT."""

    table: Table
    exact: bool = False
    """Whether the table was made by upstream's own text."""
    detail: str = ""
    """What is odd, as the end of a sentence."""
    triggers: bool = False
    """Whether a change of the table would run something."""
    alone: bool = True
    """Whether the database holds nothing else."""


@dataclass(frozen=True, slots=True)
class _Thing:
    type: str
    name: str
    table: str
    root: int
    text: str

    @property
    def own(self) -> bool:
        """Whether it is rocFFT's table or what SQLite adds to it."""
        plain = self.type in ("table", "index")
        return plain and (self.name == TABLE or self.name.startswith("sqlite_"))


def read_shape(connection: sqlite3.Connection) -> Shape:
    """The shape of an open database; raises sqlite3.Error."""
    things = list(_things(connection))
    if len(things) >= _OBJECTS_READ:
        return Shape(Table.OTHER, alone=False)
    alone = all(thing.own for thing in things)
    named = next((thing for thing in things if thing.name == TABLE), None)
    if named is None:
        return Shape(_without(things), alone=alone)
    odd = _odd(connection, named)
    if odd:
        return Shape(Table.ODD, detail=odd, alone=alone)
    triggers = any(thing.type == "trigger" for thing in things)
    return Shape(Table.OURS, named.text == CREATE, triggers=triggers, alone=alone)


def _things(connection: sqlite3.Connection) -> "list[_Thing]":
    rows = connection.execute(
        "SELECT type, name, tbl_name, rootpage, substr(sql, 1, ?) FROM sqlite_master LIMIT ?",
        (_TEXT_READ, _OBJECTS_READ),
    )
    return [
        _Thing(
            str(kind), str(name).lower(), str(table).lower(), root if isinstance(root, int) else 0, str(text)
        )
        for kind, name, table, root, text in rows
    ]


def _without(things: "list[_Thing]") -> Table:
    if any(thing.name == OLD_TABLE for thing in things):
        return Table.OLD
    return Table.ABSENT if all(thing.own for thing in things) else Table.OTHER


def _odd(connection: sqlite3.Connection, named: _Thing) -> str:
    """Why something called like the table is not the table; it is not read before this is empty."""
    if named.type != "table":
        return f"a {named.type} is called {TABLE}"
    if named.root < 1 or named.text.lstrip()[:14].upper() == "CREATE VIRTUAL":
        return f"a virtual table is called {TABLE}"
    columns = connection.execute(f"PRAGMA table_xinfo({TABLE})").fetchall()
    if sorted((str(row[1]), row[6]) for row in columns) != sorted((name, 0) for name in COLUMNS):
        return f"its table {TABLE} has other columns"
    listed = connection.execute(f"PRAGMA table_list({TABLE})").fetchall()
    if any(row[1] == TABLE and row[4] for row in listed):
        return f"its table {TABLE} has no row numbers"
    encoding = connection.execute("PRAGMA encoding").fetchone()[0]
    return "" if encoding == "UTF-8" else f"its texts are {encoding}"


def format_hip(version: int) -> str:
    """A ``HIP_VERSION`` (major x 10000000 + minor x 100000 + patch) as people write it: ``6.2.41133``."""
    if version < 0:
        return str(version)
    major, rest = divmod(version, _MAJOR)
    minor, patch = divmod(rest, _MINOR)
    return f"{major}.{minor}.{patch}"


def parse_hip(text: str) -> int:
    """The integer of ``6.2.41133`` or of itself; raises UsageError."""
    dotted = _DOTTED.fullmatch(text)
    if dotted is not None:
        major, minor, patch = map(int, dotted.groups())
        return major * _MAJOR + minor * _MINOR + patch
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return int(text)
    raise UsageError(
        f"{text!r} is not a HIP version; write it as 6.2.41133, or as the integer HIP_VERSION: 60241133"
    )
