"""The table that rocFFT keeps its kernels in, and whether a database has it and nothing in its way.

A table is rocFFT's where rocFFT's own statements work on it, however it was made. Source: rocFFT,
``rtc_cache.cpp``. Must not know files.
"""

import re
import sqlite3
from contextlib import closing
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
MATCHES = "kernel_name = ? AND arch = ? AND hip_version = ? AND generator_sum = ?"
"""The condition of rocFFT's own lookup."""
SELECT = f"SELECT code FROM {TABLE} WHERE {MATCHES}"
STORE = f"INSERT OR REPLACE INTO {TABLE} ({', '.join(COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?)"
UTF8 = "UTF-8"
SUM_BYTES = 32
_OBJECTS_READ = 1000
_TEXT_READ = 65_536
_TRIAL = (
    "fft_rtc_fwd_len64_sp_ip_CI_sbrr",
    "gfx90a",
    60_241_133,
    bytes(SUM_BYTES),
    bytes(4096),
    1_700_000_000,
)
_TRIAL_BYTES = 1 << 20
"""No value may be longer, whatever the text asks for."""
_TRIAL_STEPS = 100_000
"""Instructions of SQLite's machine after which a statement is given up; rocFFT's take some dozens."""
_MAJOR, _MINOR = 10_000_000, 100_000
_DOTTED = re.compile(r"(\d{1,4})\.(\d{1,2})\.(\d{1,5})")


class Table(Enum):
    """What a database has for rocFFT's table."""

    OURS = "the table"
    ABSENT = "nothing at all"
    OTHER = "tables of others"
    OLD = "the table of a pre-release"
    ODD = "something else of its name"
    UNREAD = "the table, in a form that is not read here"


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
    encoding: str = UTF8
    """Of its texts, as SQLite names it; rocFFT's are UTF-8, and SQLite gives it any other as that."""


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
    encoding = text_encoding(connection)
    if odd := _odd(named, encoding):
        return Shape(Table.ODD, detail=odd, alone=alone)
    if unread := _unread(connection, named):
        return Shape(Table.UNREAD, detail=unread, alone=alone)
    triggers = any(thing.type == "trigger" for thing in things)
    return Shape(Table.OURS, named.text == CREATE, triggers=triggers, alone=alone, encoding=encoding)


def text_encoding(connection: sqlite3.Connection) -> str:
    """In which encoding a database keeps its texts; raises sqlite3.Error."""
    return str(connection.execute("PRAGMA encoding").fetchone()[0])


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


def _odd(named: _Thing, encoding: str) -> str:
    """Why rocFFT's statements fail on something called like its table; empty where they work."""
    if named.type != "table":
        return f"a {named.type} is called {TABLE}"
    if _is_virtual(named) or named.text == CREATE:
        return ""
    failed = _tried(named.text, encoding)
    return f"rocFFT's own statements fail on its table {TABLE} ({failed})" if failed else ""


def _unread(connection: sqlite3.Connection, named: _Thing) -> str:
    """Why a table on which they may work is not read here; nothing of it was touched before this is empty."""
    if _is_virtual(named):
        return f"a virtual table is called {TABLE}, and what that runs is not run here"
    listed = connection.execute(f"PRAGMA table_list({TABLE})").fetchall()
    if any(row[1] == TABLE and row[4] for row in listed):
        return f"its table {TABLE} has no row numbers, by which gpucache reads"
    return ""


def _is_virtual(named: _Thing) -> bool:
    return named.root < 1 or named.text.lstrip()[:14].upper() == "CREATE VIRTUAL"


def _tried(text: str, encoding: str) -> str:
    """Why rocFFT's INSERT and SELECT fail on a table of this text, in SQLite's words; empty where they work.

    They are run in memory, in a database that has nothing else and cannot reach anything.
    """
    if not text.upper().startswith("CREATE TABLE"):
        return "it was not made by CREATE TABLE"
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as trial:
        trial.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        trial.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _TRIAL_BYTES)
        trial.set_progress_handler(lambda: 1, _TRIAL_STEPS)
        try:
            trial.execute("PRAGMA trusted_schema=OFF")
            trial.execute(f"PRAGMA encoding='{encoding}'")
            trial.execute(text)
            trial.execute(STORE, _TRIAL)
            found = trial.execute(SELECT, _TRIAL[:4]).fetchone()
        except sqlite3.Error as error:
            return str(error)
    return "" if found == (_TRIAL[4],) else "what it stores is not found"


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
