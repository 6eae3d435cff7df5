"""Databases opened without leaving files next to them, and writable when they are to be changed.

Owns the ways of opening that have no effect: a database with a rollback journal is read in place under
SQLite's own shared lock, which leaves no file; one in write-ahead mode without a log is opened as immutable,
as SQLite would otherwise create ``-wal`` and ``-shm``; one with a log, or with the journal of a dead writer,
is copied to a private directory and recovered there. Source: SQLite's "Write-Ahead Logging" and "File
Locking". Foreign schemas are not trusted. Must not know tables.

Owns SQLite's header and the files next to a database, and the formats whose entries are databases.
"""

import os
import re
import shutil
import signal
import sqlite3
import stat
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches import files
from gpucache.caches.files import Files, Identity
from gpucache.caches.format import Format, HeldError, UnjudgedError
from gpucache.caches.layout import Whose
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.folders import Folder
from gpucache.units import format_size

BUSY_SECONDS = 5.0
"""How long to wait for other processes' locks, as rocFFT does."""
COPY_LIMIT_BYTES = 4 << 30
_SAID_CHARS = 120
_ATTEMPTS = 3
_PIECE_BYTES = 1 << 20
_LEAST_LENGTH, _LARGEST_LENGTH = 1 << 20, 1_000_000_000
_LIMITS = (
    (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 1_000_000),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 10),
    (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
)
_PRAGMAS = ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0")
_PLAIN = (
    "page_size=4096",
    "auto_vacuum=NONE",
    "encoding='UTF-8'",
    "secure_delete=ON",
    "journal_mode=MEMORY",  # no journal next to a file that is discarded on failure
    "synchronous=OFF",
)
_HOT = ("SQLITE_READONLY_ROLLBACK", "SQLITE_READONLY_RECOVERY", "SQLITE_CANTOPEN")


MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
SIDES = ("-wal", "-shm", "-journal")
UNREAD = "give this user the right to read it and to enter its directory, or name another file"
VERSIONS = slice(18, 20)
"""The offset, in a database's header, of its write and read versions."""


class UnreadableError(CacheUnusableError):
    """This user may not read the file, or not search its directory."""


Stamp = tuple[Identity | None, ...]
"""A value that changes with a database, its log or its journal."""


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A database file's header; numbers are 0 if it has no possible value for them."""

    status: os.stat_result
    database: bool
    versions: tuple[int, int] = (0, 0)
    page_bytes: int = 0
    pages: int = 0
    header: bool = False

    @property
    def size_bytes(self) -> int:
        return self.status.st_size

    @property
    def wal(self) -> bool:
        return WAL in self.versions


NO_FILE = 1 << 62
"""The size given for a node that is not a regular file."""


class OpenDatabase:
    """A database open for reading until the last reference to it goes."""

    __slots__ = ("__weakref__", "_end", "connection", "rolled_back", "size_bytes", "stamp")

    def __init__(
        self,
        connection: sqlite3.Connection,
        seen: Stamp,
        size_bytes: int,
        private: Path | None = None,
        *,
        rolled_back: bool = False,
    ) -> None:
        self.connection = connection
        self.size_bytes = size_bytes
        self.rolled_back = rolled_back
        self.stamp = seen
        self._end = weakref.finalize(self, _end, connection, private)

    def close(self) -> None:
        self._end()


def _end(connection: sqlite3.Connection, private: Path | None) -> None:
    connection.close()
    if private is not None:
        shutil.rmtree(private, ignore_errors=True)


def open_reader(path: Path, file: SqliteFile) -> OpenDatabase:
    """A database that was examined and is not empty; raises FormatError, CacheUnusableError."""
    seen, beside = stamp(path), sides(path)
    for suffix, size in beside.items():
        if size == NO_FILE:  # SQLite would open a FIFO and wait for its other end
            raise FormatError(f"{path}{suffix} is not a regular file, so it is not opened; remove it")
    with told(path):
        if beside.get("-wal"):
            return _recovered(path, "-wal")
        try:
            connection = _reading(path, file.size_bytes, unchanging=file.wal)
        except sqlite3.OperationalError as error:
            if file.wal or error.sqlite_errorname not in _HOT or not beside.get("-journal"):
                raise
            return _recovered(path, "-journal")
        return OpenDatabase(connection, seen, file.size_bytes)


def peek(path: Path, file: SqliteFile) -> sqlite3.Connection:
    """A database from its own file alone, without its log; raises FormatError, CacheUnusableError."""
    with told(path):
        return _reading(path, file.size_bytes, unchanging=True)


def in_memory(data: bytes, place: Path) -> sqlite3.Connection:
    """A database image, read in memory; raises FormatError, which names its origin."""
    with told(place):
        connection = _connect("file::memory:", len(data))
        with _or_closed(connection):
            connection.deserialize(data)
            connection.execute("PRAGMA query_only=ON")
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        return connection


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing database for changes; raises FormatError, CacheUnusableError.

    SQLite removes or overwrites any file named like its log or journal, so such a file must be one.
    """
    if strange := stranger(path):
        text = f"{strange} is not a file of SQLite, which would remove it; move it elsewhere"
        raise CacheUnusableError(text)
    with told(path), closing(_connect(f"{_uri(path)}?mode=rw", path.lstat().st_size)) as connection:
        yield connection


@contextmanager
def creating(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an empty file as a database whose bytes depend only on the data written."""
    with told(path), closing(_connect(f"{_uri(path)}?mode=rw", _LARGEST_LENGTH)) as connection:
        for pragma in _PLAIN:
            connection.execute(f"PRAGMA {pragma}")
        yield connection


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Translate SQLite's errors into FormatError, or CacheUnusableError if the file may be sound."""
    try:
        yield
    except (sqlite3.Error, OverflowError, ValueError, MemoryError) as error:
        name = getattr(error, "sqlite_errorname", "")
        said = words(str(error)) or type(error).__name__
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            text = f"{path} is locked by a program that writes to it; try again once that is done"
            raise CacheUnusableError(text) from error
        if name.startswith(("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_FULL", "SQLITE_READONLY")) or (
            name.startswith("SQLITE_IOERR") and name != "SQLITE_IOERR_SHORT_READ"
        ):
            raise CacheUnusableError(f"{path} cannot be used ({said}); {_remedy(name, path)}") from error
        raise FormatError(f"{path} cannot be read as a database: {said}") from error
    except OSError as error:
        remedy = _remedy("", path)
        raise CacheUnusableError(f"{path} cannot be used ({error.strerror}); {remedy}") from error


def words(said: str) -> str:
    """SQLite's message, short and printable, as it may quote any bytes of a file."""
    shown = "".join(
        char if char.isprintable() and char != "\N{REPLACEMENT CHARACTER}" else " " for char in said
    )
    shown = " ".join(shown.split())
    return shown if len(shown) <= _SAID_CHARS else f"{shown[:_SAID_CHARS]}..."


def _remedy(name: str, path: Path) -> str:
    """The remedy for a file that cannot be used, by SQLite's name for the reason."""
    if name.startswith("SQLITE_FULL"):
        return f"make room on the file system of {path.parent}"
    if name.startswith("SQLITE_IOERR"):
        return f"look at the disk under {path.parent}, and copy the readable rows"
    return f"give this user the right to write to the file and to {path.parent}, or name another file"


@contextmanager
def _or_closed(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _uri(path: Path) -> str:
    place = quote(os.fsencode(path.absolute().as_posix()))
    return f"file:{place if place.startswith('/') else '/' + place}"


def _reading(path: Path, size_bytes: int, *, unchanging: bool = False) -> sqlite3.Connection:
    connection = _connect(f"{_uri(path)}?mode=ro{'&immutable=1' if unchanging else ''}", size_bytes)
    with _or_closed(connection):
        connection.execute("PRAGMA query_only=ON")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    return connection


def _connect(uri: str, size_bytes: int) -> sqlite3.Connection:
    """A connection that opens no transactions itself; invalid UTF-8 becomes replacement characters."""
    connection = sqlite3.connect(
        uri, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True
    )
    with _or_closed(connection):
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        if hasattr(connection, "enable_load_extension"):
            connection.enable_load_extension(False)
        longest = min(max(size_bytes, _LEAST_LENGTH), _LARGEST_LENGTH)
        for limit, value in ((sqlite3.SQLITE_LIMIT_LENGTH, longest), *_LIMITS):
            connection.setlimit(limit, value)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    return connection


def _recovered(path: Path, suffix: str) -> OpenDatabase:
    for _ in range(_ATTEMPTS):
        before = stamp(path)
        private = Path(tempfile.mkdtemp(prefix="gpucache-sqlite-"))
        try:
            copied = _copy(path, ("", suffix), private)
            if stamp(path) == before:
                copy = private / "copy"  # into which its log or journal is worked
                with closing(_connect(f"{_uri(copy)}?mode=rw", copied)) as connection:
                    connection.execute("PRAGMA journal_mode=DELETE").fetchone()
                    connection.execute("SELECT 1 FROM sqlite_master").fetchone()
                connection = _reading(copy, copied, unchanging=True)
                return OpenDatabase(connection, before, copied, private, rolled_back=suffix == "-journal")
            shutil.rmtree(private)
        except BaseException:
            shutil.rmtree(private, ignore_errors=True)
            raise
    raise CacheUnusableError(f"{path} changes while it is read; try again once its programs have ended")


def _copy(path: Path, suffixes: tuple[str, ...], private: Path) -> int:
    """Copy a database and a file next to it; returns their size, checked beforehand against the limit."""
    names = [path.name + suffix for suffix in suffixes]
    with Folder.at(path.parent) as folder:
        total = sum(folder.lstat(name).st_size for name in names)
        if total > COPY_LIMIT_BYTES:
            raise CacheUnusableError(
                f"{path} can only be read from a copy, and {format_size(total)} is above the "
                f"{format_size(COPY_LIMIT_BYTES)} that are copied; end the programs that use it"
            )
        for name, suffix in zip(names, suffixes, strict=True):
            with files.opened(folder, name) as (fd, status), (private / f"copy{suffix}").open("xb") as out:
                left = min(status.st_size, total)
                while left > 0 and (piece := os.read(fd, min(left, _PIECE_BYTES))):
                    out.write(piece)
                    left -= len(piece)
    return total


ROLLBACK, WAL = 1, 2


def examine(path: Path) -> SqliteFile | None:
    """A file's header; None if there is no file.

    Raises FormatError for a link or a node that is not a file, UnreadableError, CacheUnusableError.
    """
    try:
        with Folder.at(path.parent) as folder, files.opened(folder, path.name) as (fd, status):
            return _sqlite_file(os.read(fd, HEADER_BYTES), status)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise UnreadableError(f"{path} cannot be read ({error.strerror}); {UNREAD}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CacheUnusableError(f"{path} cannot be read ({why}); name another file") from error


def _sqlite_file(head: bytes, status: os.stat_result) -> SqliteFile:
    if not head.startswith(MAGIC):
        return SqliteFile(status, database=False)
    if len(head) < HEADER_BYTES:
        return SqliteFile(status, database=True)
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    sound = 512 <= page <= 65536 and page & (page - 1) == 0
    # The number of pages counts only if its writer also wrote the change counter.
    counted = head[24:28] == head[92:96]
    pages = int.from_bytes(head[28:32], "big") if counted else 0
    return SqliteFile(status, True, (head[18], head[19]), page if sound else 0, pages, header=True)


_BEGINNINGS = {
    "-wal": (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"),
    "-shm": ((3007000).to_bytes(4, "little"), (3007000).to_bytes(4, "big")),
    "-journal": (b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",),
}
"""How the files next to a database begin; SQLite or a crash can leave zeros instead."""


def sides(path: Path) -> Mapping[str, int]:
    """The files next to a database by their suffix, each with its size; ``NO_FILE`` for other nodes."""
    found = {}
    for suffix in SIDES:
        status = _status(path, suffix)
        if status is not None:
            found[suffix] = status.st_size if stat.S_ISREG(status.st_mode) else NO_FILE
    return found


def stranger(path: Path) -> str:
    """The name of a file in the place of one of SQLite's that is not SQLite's; empty for none."""
    with suppress(OSError, FormatError), Folder.at(path.parent) as folder:
        for suffix, size in sides(path).items():
            name = path.name + suffix
            start = files.read_part(folder, name, 0, 8) if size != NO_FILE else b"?"
            if any(start) and not start.startswith(_BEGINNINGS[suffix]):
                return name
    return ""


def stamp(path: Path) -> Stamp:
    """A value that changes with a database and its log or journal."""
    found = [_status(path, suffix) for suffix in ("", "-wal", "-journal")]
    return tuple(None if status is None else Identity.of(status) for status in found)


def _status(path: Path, suffix: str) -> os.stat_result | None:
    try:
        return path.with_name(path.name + suffix).lstat()
    except (OSError, ValueError):  # the second if the path has no name, like the root directory
        return None


_COPIED_BYTES = 128 << 20
_MOST = 20
"""The number of a database's broken rows that are listed individually."""
_BEGINNING_BYTES = 64 << 10
_EMPTY_BYTES = 1
"""SQLite takes a file of one byte for an empty one, as it writes such a byte itself on some systems."""


class DatabaseFormat(Format):
    """A cache whose entries are databases; the first file of an entry is the database."""

    largest_bytes = 4 << 30
    consequence: ClassVar[str]
    """The effect on programs whose database cannot be read; ends the sentences about that."""

    table: ClassVar[re.Pattern[bytes] | None] = None
    """The statement that makes one of its tables, if other programs use the same name for databases."""
    served = "its owner would open it; which of its rows programs get, their keys decide"
    row_fails: ClassVar[str] = ""
    """The effect of a broken row that a repair removes alone; ends the sentences about that."""

    @classmethod
    def whose(cls, path: Path) -> Whose:
        """The owner by the names, or by the tables if the database has any."""
        found = super().whose(path)
        if found is not Whose.OWN or cls.table is None:
            return found
        starts = [_start(one) for one in islice(path.glob("*.db"), _MOST)]
        tables = [one for one in starts if b"CREATE TABLE" in one]
        return Whose.FOREIGN if tables and not any(map(cls.table.search, tables)) else found

    def broken(self, connection: sqlite3.Connection) -> Iterator[tuple[str, int, Problem]]:
        """The rows that a repair removes alone: their table, number and problem; may raise sqlite3.Error."""
        yield from ()

    def rows(self, item: Files, connection: sqlite3.Connection) -> Iterator[Problem]:
        """Problems in the rows of a sound database; may raise sqlite3.Error."""
        for _, _, one in islice(self.broken(connection), _MOST):
            yield one._replace(detail=f"{one.detail}; {self.row_fails}")

    def fix(self, item: Files, problems: Sequence[Problem]) -> Sequence[Problem]:
        wrong = [one for one in problems if one.kind in self.fixes]
        if not wrong or not self.row_fails or not all(self.row_fails in one.detail for one in wrong):
            return super().fix(item, problems)
        with self.database(item) as (connection, _):
            rows = [(table.replace('"', '""'), row) for table, row, _ in self.broken(connection)]
        try:
            with writing(item.path) as connection:
                connection.execute("BEGIN IMMEDIATE")  # for the removal alone, as programs may not wait long
                for table, row in rows:
                    connection.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (row,))
                connection.execute("COMMIT")
        except (CacheUnusableError, FormatError) as error:
            raise HeldError(str(error)) from error
        return problems

    def look(self, item: Files) -> CacheEntry:
        problem = self.look_at_database(item)
        start = item.part(item.names[0], 0, _BEGINNING_BYTES)  # whose head may be broken
        shows = self.table is None or bool(self.table.search(start))
        return self.entry(item)._replace(artifact_kind="database", damage=problem, shows=shows)

    def look_at_database(self, item: Files) -> Problem | None:
        """A problem visible at a glance: it is not a database, or a file next to it has lost its database."""
        name = item.names[0]
        if name.endswith(SIDES):
            return Problem(FindingKind.ORPHAN, "its database is gone, so SQLite throws it away")
        start = item.part(name, 0, len(MAGIC))
        if len(start) > _EMPTY_BYTES and start != MAGIC:
            return Problem(FindingKind.MISLABELLED, f"it is not an SQLite database; {self.consequence}")
        return None

    def check(self, item: Files) -> Iterator[Problem]:
        if problem := self.look_at_database(item):
            yield problem
            return
        if item.seen[item.names[0]].st_size <= _EMPTY_BYTES:
            return
        try:
            with self.database(item) as (connection, file):
                if file.pages * file.page_bytes > file.size_bytes:
                    yield Problem(FindingKind.TRUNCATED, f"its last pages are gone; {self.consequence}")
                    return
                said = str(next(connection.execute("PRAGMA quick_check(1)"))[0])
                if said != "ok":
                    yield self._damaged(f"SQLite reports damage ({words(said)})")
                else:
                    yield from self.rows(item, connection)
        except UnjudgedError:
            raise
        except FormatError as error:
            yield self._damaged(f"SQLite cannot read it ({error})")
        except (sqlite3.Error, MemoryError) as error:
            yield self._damaged(f"SQLite cannot read it ({words(str(error))})")

    @contextmanager
    def database(self, item: Files) -> Iterator[tuple[sqlite3.Connection, SqliteFile]]:
        """A database and its header: a copy in memory, which leaves the access time alone, or for a large
        one, or one with a log, the file itself. Raises FormatError, UnjudgedError for one that is locked.
        """
        file = examine(item.path)
        if file is None:
            raise FileNotFoundError(item.path)
        log = any(item.seen[name].st_size for name in item.names[1:])
        try:
            if log or file.size_bytes > _COPIED_BYTES:
                reader = open_reader(item.path, file)
                with closing(reader):
                    yield reader.connection, file
            else:
                data = bytearray(self.payload(item))
                data[VERSIONS] = bytes((ROLLBACK, ROLLBACK))
                with closing(in_memory(bytes(data), item.path)) as connection:
                    yield connection, file
        except CacheUnusableError as error:
            raise UnjudgedError(str(error)) from error

    def removal_order(self, names: Sequence[str]) -> Sequence[str]:
        """The database first: without its log it may be damaged, while a log alone does no harm."""
        return sorted(names)

    def lock(self, item: Files) -> AbstractContextManager[None]:
        """Take a lease of the database, so that no program has it open; on Windows the removal itself fails.
        None if a link, a pipe or the like is in its place."""
        if not stat.S_ISREG(item.seen[item.names[0]].st_mode):
            return nullcontext()

        def take(fd: int) -> str:
            why = _held(fd)
            return why and f"{why} {item.path} open, which could store nothing more; end it first"

        return self.holding(*item.parts, item.names[0], take=take)

    def _damaged(self, why: str) -> Problem:
        return Problem(FindingKind.CORRUPT, f"{why}; {self.consequence}")


def _start(path: Path) -> bytes:
    """The pages at the beginning of a database, which declare its tables; empty for anything else."""
    with suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode):
            with path.open("rb") as file:
                return file.read(_BEGINNING_BYTES)
    return b""


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether there is a table of this name, not a view, which can have endless rows."""
    found = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (name,)).fetchall()
    return found == [("table",)]


def _held(fd: int) -> str:
    """The other processes that may have a file open, as the beginning of a sentence; empty if none."""
    if sys.platform == "linux":
        import fcntl

        try:
            # The default signal would end this process, if a program opened the file now.
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except BlockingIOError:
            return "a program has"
        except OSError:  # such as a file system without leases
            return "it is not known whether a program has"
    return ""
