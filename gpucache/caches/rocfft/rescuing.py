"""A damaged database made anew of the rows that can still be read, in the place of the old one.

Owns which rows those are: a page that is bad takes only its own rows away. A row is found by walking the
table from both ends and by its index, and read by itself. The damaged file is renamed, never removed. Must
not decide that a database is damaged.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpucache.caches.databases import Reader, creating, open_reader, told
from gpucache.caches.rocfft.checks import row_trouble
from gpucache.caches.rocfft.mending import move_aside
from gpucache.caches.rocfft.publishing import prepared
from gpucache.caches.rocfft.rows import Row, bound, read_code, read_row
from gpucache.caches.rocfft.schema import CREATE, TABLE, Table, read_shape
from gpucache.caches.sqlite_file import examine, stamp
from gpucache.errors import FormatError, UsageError

_STORE = f"INSERT OR IGNORE INTO {TABLE} VALUES (?, ?, ?, ?, ?, ?)"
_WALKS = (
    f"SELECT rowid FROM {TABLE} NOT INDEXED ORDER BY rowid",
    f"SELECT rowid FROM {TABLE} NOT INDEXED ORDER BY rowid DESC",
    f"SELECT rowid FROM {TABLE} INDEXED BY sqlite_autoindex_{TABLE}_1",
)
_ROWS_READ = 10_000_000


def rescue(path: Path) -> str:
    """Put a damaged database out of the way, and a new one of its sound rows in its place.

    What was done, as a clause; empty where the file stays as it is. Raises CacheUnusableError.
    """
    reader = _readable(path)
    if reader is None:
        return _moved(path)
    try:
        with prepared(path) as temporary:
            saved = _copy(reader, temporary)
            if not saved or stamp(path) != reader.stamp:
                raise _NothingError
            _like(temporary, path)
            aside = move_aside(path)
            if aside is None:
                raise _StaysError
    except _StaysError:
        return ""
    except _NothingError:
        return _moved(path)
    except UsageError:  # a program made a new one meanwhile
        return f"; it was moved away, and a program that started meanwhile made {path} anew"
    finally:
        reader.close()
    rows = "1 row was" if saved == 1 else f"{saved} rows were"
    return f"; {rows} saved into a new database at {path}, and the damaged one is {aside}"


class _NothingError(Exception):
    """No row can be read."""


class _StaysError(Exception):
    """The file may not be moved."""


def _moved(path: Path) -> str:
    aside = move_aside(path)
    return "" if aside is None else f"; no row could be read, and it is {aside} now"


def _readable(path: Path) -> Reader | None:
    """A database whose schema still reads and is rocFFT's alone; None for any other."""
    with suppress(FormatError):
        file = examine(path)
        if file is None or not file.header:
            return None
        reader = open_reader(path, file)
        with suppress(FormatError), told(path):
            shape = read_shape(reader.connection)
            if shape.table is Table.OURS and shape.alone:
                return reader
        reader.close()
    return None


def _copy(reader: Reader, temporary: Path) -> int:
    """Copy the sound rows into a new database; how many."""
    saved = 0
    with creating(temporary) as connection:
        connection.execute("BEGIN")
        connection.execute(CREATE)
        for row, code in _sound(reader):
            saved += connection.execute(_STORE, (*bound(row), code, row.timestamp)).rowcount
        connection.execute("COMMIT")
    return saved


def _sound(reader: Reader) -> Iterator[tuple[Row, bytes]]:
    connection = reader.connection
    for rowid in sorted(_numbers(connection)):
        with suppress(sqlite3.Error, FormatError, OverflowError):
            row = read_row(connection, rowid)
            if row is not None and row_trouble(connection, row, reader.size_bytes) is None:
                yield row, read_code(connection, row, reader.size_bytes)


def _numbers(connection: sqlite3.Connection) -> set[int]:
    """The numbers of all rows that something still leads to."""
    found: set[int] = set()
    for walk in _WALKS:
        with suppress(sqlite3.Error):
            for (rowid,) in connection.execute(walk):
                found.add(rowid)
                if len(found) >= _ROWS_READ:
                    break
    return found


def _like(temporary: Path, path: Path) -> None:
    """Give a new file the owner and the mode of the old one, but for what makes it untrusted."""
    with suppress(OSError):
        status = path.lstat()
        temporary.chmod(stat.S_IMODE(status.st_mode) & 0o755 | stat.S_IRUSR | stat.S_IWUSR)
        os.chown(temporary, status.st_uid, status.st_gid)
