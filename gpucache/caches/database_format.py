"""Formats whose entries are SQLite databases, each with SQLite's log or journal next to it.

Owns the reading of such an entry, SQLite's own checks of it, and its removal. A program that has a removed
database open writes to a file without a name, or fails to write at all, so removal first takes a Linux lease,
which is granted only for a file that no other process has open. Must not know tables.
"""

import os
import signal
import sqlite3
import stat
import sys
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import ClassVar

from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches import databases, sqlite_file
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.format import HeldError, UnjudgedError
from gpucache.errors import CacheUnusableError, FormatError

_COPIED_BYTES = 128 << 20
_EMPTY_BYTES = 1
"""SQLite takes a file of one byte for an empty one, as it writes such a byte itself on some systems."""


class DatabaseFormat(FilesFormat):
    """A cache whose entries are databases; the first file of an entry is the database."""

    largest_bytes = 4 << 30
    consequence: ClassVar[str]
    """The effect on programs whose database cannot be read; ends the sentences about that."""

    @abstractmethod
    def rows(self, item: Files, connection: sqlite3.Connection) -> Iterator[Problem]:
        """Problems in the rows of a sound database; may raise sqlite3.Error."""

    def look_at_database(self, item: Files) -> Problem | None:
        """A problem visible at a glance: it is not a database, or a file next to it has lost its database."""
        name = item.names[0]
        if name.endswith(sqlite_file.SIDES):
            return Problem(FindingKind.ORPHAN, "its database is gone, so SQLite throws it away")
        start = item.part(name, 0, len(sqlite_file.MAGIC))
        if len(start) > _EMPTY_BYTES and start != sqlite_file.MAGIC:
            return Problem(FindingKind.MISLABELLED, f"it is no database of SQLite's; {self.consequence}")
        return None

    def check(self, item: Files) -> Iterator[Problem]:
        """Check that SQLite finds it intact, and check its rows; an empty database is a new one."""
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
                    yield self._damaged(f"SQLite reports damage ({databases.words(said)})")
                else:
                    yield from self.rows(item, connection)
        except UnjudgedError:
            raise
        except FormatError as error:
            yield self._damaged(f"SQLite cannot read it ({error})")
        except (sqlite3.Error, MemoryError) as error:
            yield self._damaged(f"SQLite cannot read it ({databases.words(str(error))})")

    @contextmanager
    def database(self, item: Files) -> Iterator[tuple[sqlite3.Connection, sqlite_file.SqliteFile]]:
        """A database and its header: a copy in memory, which leaves the access time alone, or for a large
        one, or one with a log, the file itself. Raises FormatError, UnjudgedError for one that is locked.
        """
        file = sqlite_file.examine(item.path)
        if file is None:
            raise FileNotFoundError(item.path)
        log = any(item.seen[name].st_size for name in item.names[1:])
        try:
            if log or file.size_bytes > _COPIED_BYTES:
                reader = databases.open_reader(item.path, file)
                with closing(reader):
                    yield reader.connection, file
            else:
                data = bytearray(self.payload(item))
                data[sqlite_file.VERSIONS] = bytes((sqlite_file.ROLLBACK, sqlite_file.ROLLBACK))
                with closing(databases.in_memory(bytes(data), item.path)) as connection:
                    yield connection, file
        except CacheUnusableError as error:
            raise UnjudgedError(str(error)) from error

    def removal_order(self, names: Sequence[str]) -> Sequence[str]:
        """The database first: without its log it may be damaged, while a log alone does no harm."""
        return sorted(names)

    @contextmanager
    def lock(self, item: Files) -> Iterator[None]:
        """Take a lease of the database, so that no program has it open; on Windows the removal itself fails.
        None if a link, a pipe or the like is in its place."""
        if not stat.S_ISREG(item.seen[item.names[0]].st_mode):
            yield
            return
        with item.open() as folder:
            fd = folder.open_file(item.names[0])
        try:
            if why := _held(fd):
                raise HeldError(f"{why} {item.path} open, which could store nothing more; end it first")
            yield
        finally:
            os.close(fd)

    def _damaged(self, why: str) -> Problem:
        return Problem(FindingKind.CORRUPT, f"{why}; {self.consequence}")


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether there is a table, and no view in its place, which can have rows without end."""
    found = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (name,)).fetchall()
    return found == [("table",)]


def _held(fd: int) -> str:
    """The other processes that may have a file open, to begin a sentence; empty for none."""
    if sys.platform == "linux":
        import fcntl

        try:
            # The default signal would end this process, if a program opened the file now.
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except BlockingIOError:
            return "a program has"
        except OSError:  # such as a file system without leases
            return "it cannot be told here whether a program has"
    return ""
