"""One database of rocFFT: its table and rows, the problems of both, and every change of it.

A table is rocFFT's if it has rocFFT's columns and no others, with texts in UTF-8. SQLite lets every column
contain anything: every row is read, bounded, with its storage class, a few rows at a time, so
that no lock is kept between two reads and no kernel is read whole. Only SQLite changes data, under its
own locks, and only in a table of rocFFT that runs nothing; a file that SQLite cannot open is renamed,
never removed. Source: rocFFT, ``rtc_cache.cpp`` and ``auxiliary.cpp`` of 2024 and 2026.
"""

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from gpucache.answers.entries import FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.caches.databases import (
    SIDES,
    WAL,
    OpenDatabase,
    SqliteFile,
    examine,
    open_reader,
    sides,
    stranger,
    told,
    words,
    writing,
)
from gpucache.caches.places import distrust
from gpucache.caches.rocfft.locations import MOVE
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.folders import Folder
from gpucache.payload import PayloadKind, describe
from gpucache.units import format_size, printable

TABLE = "cache_v1"
CREATE = (
    "CREATE TABLE cache_v1 (  kernel_name TEXT NOT NULL,  arch TEXT NOT NULL,  hip_version INTEGER NOT NULL,"
    "  generator_sum BLOB NOT NULL,  code BLOB NOT NULL,  timestamp INTEGER NOT NULL,  PRIMARY KEY ("
    "      kernel_name, arch, hip_version, generator_sum      ))"
)
"""The statement that rocFFT's table has in ``sqlite_master``, byte for byte."""
COLUMNS = {
    "kernel_name": "text",
    "arch": "text",
    "hip_version": "integer",
    "generator_sum": "blob",
    "code": "blob",
    "timestamp": "integer",
}
"""Columns in upstream's order, each with the storage class that rocFFT writes."""
KEY = ("kernel_name", "arch", "hip_version", "generator_sum")
MATCHES = " AND ".join(f"{column} = ?" for column in KEY)
"""The condition of rocFFT's own lookup."""
STORE = f"INSERT OR REPLACE INTO {TABLE} ({', '.join(COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?)"
NAMED = "rocfft_kernel_cache*.db"
VALUE_BYTES = 4096
"""The bytes of a name, an architecture or a sum that are read; rocFFT's are far shorter."""
PREFIX_BYTES = 4096
SUM_BYTES = 32
_OBJECTS_READ, _TEXT_READ, _ROWS_READ = 1000, 65_536, 128
_WHOLE_CHECK_BYTES = 256 << 20
"""Up to this size indexes are compared with the rows, too."""
_FAULTS_READ = 3
_VACUUM_SHARE = 5
"""With a fifth of all pages free, rocFFT's own trimming gives pages back."""
_ASIDE_LIMIT = 1000
_NS = 1_000_000_000
_LAST_NS = (1 << 63) - 1
_DIES = (
    "rocfft_setup ends the program with an uncaught exception (2024), or fails and a second call runs "
    "without any cache (2026)"
)
_CONSEQUENCE = "hipModuleLoad fails, and rocFFT never compiles the kernel anew"
_MISSES = "every lookup misses and every store fails, so all kernels are compiled at every run"
_OPEN = (
    "it is in write-ahead mode, or has a log or journal: a program has it open or died with it, and a copy "
    "of the file alone lacks its changes; once its programs have ended, run 'gpucache verify --cache rocfft "
    "--repair'"
)
_TRUNCATED, _CORRUPT = FindingKind.TRUNCATED, FindingKind.CORRUPT
_UNSUPPORTED, _LEFTOVER = FindingKind.UNSUPPORTED, FindingKind.LEFTOVER

# The table.


class Schema(NamedTuple):
    """The relation of a database's schema to rocFFT. If its table is not ``ours``, nothing of it is read."""

    ours: bool = False
    damage: str = ""
    """Why rocFFT cannot use its table, a sentence."""
    other: str = ""
    """Further tables, or other ones, as a sentence; rocFFT may still use the file."""
    alone: bool = True
    """Whether it contains rocFFT's table and no other, and nothing that a change would run."""


def read_shape(connection: sqlite3.Connection) -> Schema:
    """The shape of an open database; raises sqlite3.Error."""
    rows = connection.execute(
        "SELECT type, name, rootpage, substr(sql, 1, ?) FROM sqlite_master LIMIT ?",
        (_TEXT_READ, _OBJECTS_READ),
    ).fetchall()
    things = [(str(kind), str(name).lower()) for kind, name, *_ in rows]
    alone = len(rows) < _OBJECTS_READ and all(
        kind in ("table", "index") and (name == TABLE or name.startswith("sqlite_")) for kind, name in things
    )
    more = "" if alone else "it contains more than rocFFT's table; rocFFT reads it anyway"
    if (number := next((at for at, (_, name) in enumerate(things) if name == TABLE), None)) is None:
        added = f"it is another program's, to which rocFFT adds its table; {MOVE}"
        return Schema(other="" if alone else added, alone=alone)
    (kind, _), (*_, root, text) = things[number], rows[number]
    if kind != "table":
        return Schema(damage=f"a {kind} is called {TABLE}", alone=alone)
    unknown = f"its table {TABLE} has a layout of no known rocFFT, so its kernels are not shown"
    listed = connection.execute(f"PRAGMA table_list({TABLE})").fetchall()
    # Nothing of a virtual table is used, and rows without numbers cannot be read in turn.
    virtual = not isinstance(root, int) or root < 1 or str(text).lstrip()[:14].upper() == "CREATE VIRTUAL"
    if virtual or any(row[1] == TABLE and row[4] for row in listed):
        return Schema(other=unknown, alone=alone)
    columns = {str(row[1]): str(row[2]).lower() for row in connection.execute(f"PRAGMA table_info({TABLE})")}
    if lacking := [name for name in COLUMNS if name not in columns]:
        return Schema(damage=f"its table {TABLE} has no column {lacking[0]}", alone=alone)
    if columns != COLUMNS or connection.execute("PRAGMA encoding").fetchone() != ("UTF-8",):
        return Schema(other=unknown, alone=alone)
    return Schema(ours=True, other=more, alone=alone)


def format_hip(version: int) -> str:
    """A ``HIP_VERSION`` (major x 10000000 + minor x 100000 + patch) as people write it: ``6.2.41133``."""
    if version < 0:
        return str(version)
    return f"{version // 10_000_000}.{version // 100_000 % 100}.{version % 100_000}"


# Rows.


class KernelRow(NamedTuple):
    """A row as it was seen."""

    rowid: int
    kernel_name: str
    arch: str
    hip_version: int
    generator_sum: str
    """The checksum of rocFFT's generator, as hex."""
    seconds: int
    """When it was stored, as rocFFT reads that; 0 if the row does not say."""
    code_bytes: int
    formed: bool
    """Whether each value of its key has the type and length that rocFFT writes; else no lookup finds it."""
    path: Path = Path()
    file_ns: int = 0
    """When its database was written."""

    @property
    def size_bytes(self) -> int:
        """The row's size as rocFFT's own trimming counts it."""
        return self.code_bytes + len(self.kernel_name.encode())

    @property
    def key(self) -> str:
        """SHA-256 over the framed primary key; the number of a row that has no such key is part of it."""
        hasher = hashlib.sha256()
        odd = [] if self.formed else [str(self.rowid).encode()]
        name, arch, version, total = self.primary
        for raw in (name.encode(), arch.encode(), str(version).encode(), total, *odd):
            hasher.update(len(raw).to_bytes(8, "little"))
            hasher.update(raw)
        return hasher.hexdigest()

    @property
    def primary(self) -> tuple[str, str, int, bytes]:
        """The primary key as rocFFT binds it to find the row."""
        return self.kernel_name, self.arch, self.hip_version, bytes.fromhex(self.generator_sum)

    @property
    def written_ns(self) -> int:
        """When the row was stored, in nanoseconds; if it does not say, when its file was written."""
        return min(max(self.seconds * _NS, 0), _LAST_NS) or self.file_ns

    @property
    def fields(self) -> dict[str, str]:
        return {
            "kernel_name": printable(self.kernel_name, None),
            "arch": printable(self.arch, None),
            "hip_version": format_hip(self.hip_version),
            "generator_sum": self.generator_sum,
        }

    @property
    def damage(self) -> str:
        """Why no lookup can find or use it; empty for a row as rocFFT writes them."""
        if (
            not self.formed
            or "\0" in self.kernel_name + self.arch
            or "\ufffd" in self.kernel_name + self.arch
        ):
            return "a value of its key is not as rocFFT stores it, so no lookup finds it"
        return "" if self.code_bytes else "it has no code: rocFFT compiles the kernel again"


_NUMBER = "CASE typeof({0}) WHEN 'integer' THEN {0} ELSE 0 END"
_TEXT = f"CAST(substr(CAST({{0}} AS BLOB), 1, {VALUE_BYTES}) AS TEXT)"
_FORMED = " AND ".join(
    (
        *(f"typeof({one}) = '{kind}'" for one, kind in tuple(COLUMNS.items())[:4]),
        *(f"length(CAST({one} AS BLOB)) <= {VALUE_BYTES}" for one in KEY[:2]),
        f"length(generator_sum) = {SUM_BYTES}",
    )
)
_SELECT = (
    f"SELECT rowid, {', '.join(map(_TEXT.format, KEY[:2]))}, {_NUMBER.format('hip_version')}, "
    f"lower(hex(substr(CAST(generator_sum AS BLOB), 1, {SUM_BYTES}))), {_NUMBER.format('timestamp')}, "
    # SQLite knows the length of a blob without reading it.
    "ifnull(CASE typeof(code) WHEN 'blob' THEN length(code) ELSE length(CAST(code AS BLOB)) END, 0), "
    f"{_FORMED} FROM {TABLE}"
)


def read_rows(connection: sqlite3.Connection, path: Path = Path(), file_ns: int = 0) -> Iterator[KernelRow]:
    """Every row in constant memory; raises sqlite3.Error, FormatError for a table that goes in circles."""
    last: int | None = None
    while True:
        after = "" if last is None else f"WHERE rowid > {last}"
        found = connection.execute(f"{_SELECT} {after} ORDER BY rowid LIMIT {_ROWS_READ}").fetchall()
        for values in found:
            row = KernelRow._make((*values, path, file_ns))
            if last is not None and row.rowid <= last:
                raise FormatError(f"the rows of {TABLE} are out of order")
            last = row.rowid
            yield row
        if len(found) < _ROWS_READ:
            return


def look_again(connection: sqlite3.Connection, row: KernelRow) -> KernelRow | None:
    """The present state of a row, also after a move; None if it changed or is gone. Raises sqlite3.Error."""
    for where, values in (("rowid = ?", (row.rowid,)), (MATCHES, row.primary)):
        for found in connection.execute(f"{_SELECT} WHERE {where}", values):
            now = row._replace(**dict(zip(KernelRow._fields, (*found[:7], bool(found[7])), strict=False)))
            if now._replace(rowid=row.rowid) == row:
                return now
    return None


def read_code(connection: sqlite3.Connection, row: KernelRow, limit_bytes: int) -> bytes:
    """The kernel of a row; raises FormatError for more than a limit or none, sqlite3.Error."""
    if not 0 < row.code_bytes <= limit_bytes:
        raise FormatError(
            f"the row of {printable(row.kernel_name)} has no code, or more than its file has bytes"
        )
    return read_prefix(connection, row, -1)


def read_prefix(connection: sqlite3.Connection, row: KernelRow, count: int = PREFIX_BYTES) -> bytes:
    """Some bytes of a row's kernel, or all for -1; raises sqlite3.Error."""
    with (
        suppress(sqlite3.OperationalError),
        connection.blobopen(TABLE, "code", row.rowid, readonly=True) as blob,
    ):
        return blob.read(count)
    # A value that is neither bytes nor text is cast, as in rocFFT's query.
    found = connection.execute(f"SELECT CAST(code AS BLOB) FROM {TABLE} WHERE rowid = ?", (row.rowid,))
    (value,) = found.fetchone() or (None,)
    return value if isinstance(value, bytes) else b""


# Problems.


def row_problem(connection: sqlite3.Connection, row: KernelRow, limit_bytes: int) -> Problem | None:
    """The problems of a row and its code; raises sqlite3.Error, FormatError."""
    return judged(row, b"" if row.damage else read_code(connection, row, limit_bytes))


def judged(row: KernelRow, code: bytes) -> Problem | None:
    """The problems that the beginning of the code shows; damage is certain only if it is the whole code."""
    if row.damage:
        return Problem(_CORRUPT, row.damage)
    return misfit(code, row.arch, whole=len(code) == row.code_bytes)


def misfit(code: bytes, arch: str, *, whole: bool = True) -> Problem | None:
    """The problem of a row's code for an architecture; None if there is none.

    rocFFT stores the output of hiprtc: an ELF file for an AMD GPU, or a clang offload bundle.
    """
    info = describe(code)
    portable = info.kind in (PayloadKind.SPIRV, PayloadKind.LLVM_BITCODE) and arch.startswith("amdgcnspirv")
    if portable or info.kind is PayloadKind.OFFLOAD_BUNDLE:
        return None
    wanted = arch.partition(":")[0]
    if info.kind is not PayloadKind.AMDGPU:
        wrong = f"its code is {info.kind} and not for an AMD GPU"
    elif info.architecture not in (None, wanted):
        wrong = f"its code is for {info.architecture} and its row says {wanted}"
    elif info.problem and whole:
        return Problem(_CORRUPT, f"its code is damaged ({info.problem}): {_CONSEQUENCE}")
    else:
        return None
    return Problem(FindingKind.MISLABELLED, f"{wrong}: {_CONSEQUENCE}")


def file_problems(path: Path) -> Iterator[tuple[Path, Problem]]:
    """The problems of a database and the files next to it, by file; raises CacheUnusableError."""
    try:
        file = examine(path)
    except FormatError as error:
        detail = f"{error}, so rocFFT cannot keep its kernels there; {MOVE}"
        yield path, Problem(FindingKind.MISPLACED, detail)
        return
    beside = sides(path)
    if file is None:
        for suffix in beside:
            yield Path(f"{path}{suffix}"), Problem(FindingKind.ORPHAN, "its database is gone; remove it")
        return
    if distrusted := distrust(file.status, move=MOVE):
        detail = f"{distrusted}; any user who can write it can give your GPU code to run"
        yield path, Problem(FindingKind.UNTRUSTED, detail)
    least = max(file.pages * file.page_bytes, file.page_bytes)
    logged = beside.get("-wal") or beside.get("-journal")  # which may contain the rest
    if not file.size_bytes:
        return
    if not (file.database and file.header and file.page_bytes):
        kind = _TRUNCATED if file.database and not file.header else _CORRUPT
        detail = f"it is not an SQLite database, or ends inside its header: {_DIES}; move it away"
        yield path, Problem(kind, detail)
    elif file.size_bytes < least and not logged:
        yield path, Problem(_TRUNCATED, f"it has {file.size_bytes} bytes and claims {least}: {_MISSES}")
    else:
        yield from ((path, problem) for problem in _inside(path, file, beside))
        if strange := stranger(path):
            detail = "it is not SQLite's, which would remove it: nothing is changed; move it elsewhere"
            yield path.with_name(strange), Problem(_LEFTOVER, detail)


def _inside(path: Path, file: SqliteFile, beside: Mapping[str, int]) -> Iterator[Problem]:
    try:
        with closing(open_reader(path, file)) as reader, told(path):
            if file.wal or beside.get("-wal") or "-shm" in beside or reader.rolled_back:
                yield Problem(_LEFTOVER, _OPEN)
            shape = read_shape(reader.connection)
            if shape.damage:
                yield Problem(_CORRUPT, f"{words(shape.damage)}: {_DIES}")
            elif shape.other or max(file.versions) > WAL:
                yield Problem(_UNSUPPORTED, shape.other or "it was written by a newer SQLite than this one")
            if shape.ours and (said := _faults(reader, shape)):
                detail = f"its pages contradict each other ({said}): lookups may miss or fail"
                yield Problem(_CORRUPT, detail)
    except FormatError as error:
        yield Problem(_CORRUPT, f"{error}: {_MISSES}")


def _faults(reader: OpenDatabase, shape: Schema) -> str:
    """The problems that SQLite finds in the pages; empty for sound ones. Raises sqlite3.Error."""
    check = "integrity_check" if reader.size_bytes <= _WHOLE_CHECK_BYTES else "quick_check"
    found = reader.connection.execute(f"PRAGMA {check}({_FAULTS_READ if shape.alone else TABLE})")
    said = [str(row[0]) for row in found.fetchmany(_FAULTS_READ)]
    return "" if said == ["ok"] else words("; ".join(said))


# Changes.


@contextmanager
def changing(path: Path) -> Iterator[sqlite3.Connection]:
    """One transaction on rocFFT's table; raises FormatError, CacheUnusableError."""
    with writing(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        shape = read_shape(connection)
        if not (shape.ours and shape.alone):
            raise FormatError(f"{path} does not contain rocFFT's table alone; it is left unchanged")
        yield connection
        connection.execute("COMMIT")  # uncommitted changes are lost when the connection closes


def delete(path: Path, rows: Sequence[KernelRow]) -> list[Kept | None]:
    """Delete rows that are unchanged since the scan, all in one transaction; None for each that is gone."""
    kept: list[Kept | None] = []
    try:
        with changing(path) as connection:
            for row in rows:
                found = look_again(connection, row)
                kept.append(Kept() if found is None else None)
                if found is not None:
                    connection.execute(f"DELETE FROM {TABLE} WHERE rowid = ?", (found.rowid,))
    except (FormatError, CacheUnusableError) as error:
        return [Kept(str(error))] * len(rows)
    return kept


def give_back(path: Path) -> tuple[str, ...]:
    """Shrink a database of which a fifth or more is free; the sentences that report it."""
    try:
        file = examine(path)
        if file is None or not file.size_bytes:
            return ()
        with writing(path) as connection:
            free, pages = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("freelist_count", "page_count")
            )
            if not free or free * _VACUUM_SHARE < pages:
                return ()
            share = f"{100 * free // pages} % of {path.name}"
            if not read_shape(connection).alone:
                return (f"{share} is free and stays so, as it contains more than rocFFT's table",)
            connection.execute("VACUUM")
    except (FormatError, CacheUnusableError) as error:
        return (f"free pages were not given back: {error}",)
    gained = file.size_bytes - path.stat().st_size
    return (f"{share} was free, so VACUUM gave {format_size(max(gained, 0))} back",)


def close_log(path: Path) -> None:
    """Merge a log or a dead writer's journal into rocFFT's database and leave write-ahead mode.

    If other programs have it open, SQLite refuses and nothing changes.
    """
    try:
        file = examine(path)
        if file is None or not file.header:
            return
        with closing(open_reader(path, file)) as reader, told(path):
            plain = read_shape(reader.connection).alone
        if plain:
            with writing(path) as connection:
                connection.execute("SELECT 1 FROM sqlite_master").fetchone()
                connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    except (FormatError, CacheUnusableError):
        return


def move_aside(path: Path) -> Path | None:
    """Rename a damaged database and its side files, so that rocFFT makes a new one; its new place.

    Refused, with None, for a file that neither begins as a SQLite database nor has a name that rocFFT
    gives, and for a database with other programs' tables.
    """
    with told(path), Folder.at(path.parent) as folder:
        if not _may_go(path):
            return None
        taken = {entry.name for entry in folder.entries()}
        names = (f"{path.name}.corrupt{number or ''}" for number in range(_ASIDE_LIMIT))
        free = (name for name in names if taken.isdisjoint(name + suffix for suffix in ("", *SIDES)))
        aside = next(free, None)
        if aside is None:
            what = f"{folder.path} has {_ASIDE_LIMIT} damaged databases of {path.name}"
            raise CacheUnusableError(f"{what}; remove them")
        # A journal or log first: next to a new database it would be merged into that.
        for suffix in (*sides(path), ""):
            folder.move(path.name + suffix, folder, aside + suffix)
    return path.with_name(aside)


def _may_go(path: Path) -> bool:
    file = examine(path)
    if file is None or not file.database:
        return file is not None and fnmatch(path.name, NAMED)
    try:
        with writing(path) as connection:
            connection.execute("BEGIN EXCLUSIVE")  # no other program is in the middle of anything
            return read_shape(connection).alone
    except CacheUnusableError:
        return False
    except FormatError:
        return True
