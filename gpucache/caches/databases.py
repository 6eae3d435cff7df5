"""Databases opened without leaving files next to them, and writable when they are to be changed.

Owns the ways of opening that have no effect: a database with a rollback journal is read in place under
SQLite's own shared lock, which leaves no file; one in write-ahead mode without a log is opened as immutable,
as SQLite would otherwise create ``-wal`` and ``-shm``; one with a log, or with the journal of a dead writer,
is copied to a private directory and recovered there. Source: SQLite's "Write-Ahead Logging" and "File
Locking". Foreign schemas are not trusted. Must not know tables.
"""

import os
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from enum import Enum
from pathlib import Path
from urllib.parse import quote

from gpucache.caches import files
from gpucache.caches.sqlite_file import NO_FILE, SqliteFile, Stamp, sides, stamp, stranger
from gpucache.errors import CacheUnusableError, FormatError
from gpucache.folders import Folder
from gpucache.units import format_size

BUSY_SECONDS = 5.0
"""How long to wait for other processes' locks, the same as rocFFT itself."""
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


class Way(Enum):
    """How a database was opened for reading."""

    DIRECT = "where it lies"
    UNCHANGING = "where it lies, without locks"
    WITH_LOG = "from a copy with its log"
    ROLLED_BACK = "from a copy, rolled back"


class Reader:
    """A database open for reading until the last reference to it goes."""

    __slots__ = ("__weakref__", "_end", "connection", "size_bytes", "stamp", "way")

    def __init__(
        self, connection: sqlite3.Connection, seen: Stamp, size_bytes: int, way: Way, private: Path | None
    ) -> None:
        self.connection = connection
        self.size_bytes = size_bytes
        self.way = way
        self.stamp = seen
        self._end = weakref.finalize(self, _end, connection, private)

    def close(self) -> None:
        """Give file and private copy back."""
        self._end()


def _end(connection: sqlite3.Connection, private: Path | None) -> None:
    connection.close()
    if private is not None:
        shutil.rmtree(private, ignore_errors=True)


def open_reader(path: Path, file: SqliteFile) -> Reader:
    """A database that was examined and is not empty; raises FormatError, CacheUnusableError."""
    seen, beside = stamp(path), sides(path)
    for suffix, size in beside.items():
        if size == NO_FILE:  # SQLite would open a FIFO and wait for its other end
            raise FormatError(f"{path}{suffix} is no regular file, so the database is not opened; remove it")
    with told(path):
        if beside.get("-wal"):
            return _recovered(path, "-wal", Way.WITH_LOG)
        if file.wal:
            connection = _reading(path, file.size_bytes, unchanging=True)
            return Reader(connection, seen, file.size_bytes, Way.UNCHANGING, None)
        try:
            connection = _reading(path, file.size_bytes)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname not in _HOT or not beside.get("-journal"):
                raise
            return _recovered(path, "-journal", Way.ROLLED_BACK)
        return Reader(connection, seen, file.size_bytes, Way.DIRECT, None)


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
    """An existing database, open for changes; raises FormatError, CacheUnusableError.

    SQLite removes or overwrites any file named like its log or journal, so such a file must be one.
    """
    if strange := stranger(path):
        text = f"{strange} is no file of SQLite, which would remove it; move it elsewhere"
        raise CacheUnusableError(text)
    with told(path), closing(_connect(f"{_uri(path)}?mode=rw", path.lstat().st_size)) as connection:
        yield connection


@contextmanager
def creating(path: Path) -> Iterator[sqlite3.Connection]:
    """An empty file, open to become a database whose bytes depend only on the data written."""
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
    """SQLite's message as safe and short text: it quotes arbitrary bytes of a file."""
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
        return f"look at the disk under {path.parent}, and copy what still reads"
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


def _recovered(path: Path, suffix: str, way: Way) -> Reader:
    for _ in range(_ATTEMPTS):
        before = stamp(path)
        private = Path(tempfile.mkdtemp(prefix="gpucache-sqlite-"))
        try:
            copied = _copy(path, ("", suffix), private)
            if stamp(path) == before:
                return _recovered_copy(before, private, copied, way)
            shutil.rmtree(private)
        except BaseException:
            shutil.rmtree(private, ignore_errors=True)
            raise
    raise CacheUnusableError(f"{path} changes while it is read; try again once its programs have ended")


def _recovered_copy(seen: Stamp, private: Path, size_bytes: int, way: Way) -> Reader:
    """A reader of a private copy, into which its log or journal was worked first."""
    copy = private / "copy"
    with closing(_connect(f"{_uri(copy)}?mode=rw", size_bytes)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").fetchone()
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    return Reader(_reading(copy, size_bytes, unchanging=True), seen, size_bytes, way, private)


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
                _pour(fd, min(status.st_size, total), out.write)
    return total


def _pour(fd: int, count: int, write: Callable[[bytes], object]) -> None:
    offset = 0
    while offset < count:
        piece = os.pread(fd, min(count - offset, _PIECE_BYTES), offset)
        if not piece:
            return
        write(piece)
        offset += len(piece)
