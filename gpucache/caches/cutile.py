"""cuTile Python's ``cache.db``: the kernels that it compiled, an SQLite database for all of a user's.

Source: cuda-tile 1.7.0 (PyPI), ``cutile_cache/_cache.py``; checked against databases of its functions. The
table ``cache`` has the key, a SHA-256 of the bytecode, the architecture, the options and the compiler's
version, the binary, its size, the time of its last use, and JSON with the names of its kernels. A program
takes a binary unchecked. At any error of SQLite, such as a lock that is held for five seconds, it removes the
database, and with it every kernel; so it is only read in a way that takes no lock, and a repair holds one
for the removal of rows alone.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches import databases
from gpucache.caches.databases import DatabaseFormat, SqliteFile, examine, has_table, peek
from gpucache.caches.files import Files
from gpucache.caches.format import UnjudgedError
from gpucache.caches.layout import Layout, hashed
from gpucache.errors import CacheUnusableError
from gpucache.payload import PayloadKind, describe
from gpucache.units import printable

_TABLE = re.compile(rb"CREATE TABLE cache \(\s*key\s+TEXT PRIMARY KEY,\s*blob\s+BLOB NOT NULL,\s*blob_size\b")
_NAME = r"(cache[\w-]*)\.db"
_ROWS = "SELECT rowid, key, blob, blob_size FROM cache"


class Cutile(DatabaseFormat, of="cutile"):
    """The database, as one entry; its rows are removed alone if they are damaged."""

    layout = Layout([_NAME, *(_NAME + side for side in databases.SIDES)], key=hashed)
    opaque = "its rows do not record the inputs of their keys; 'cutile-cache log' lists them"
    table = _TABLE
    consequence = "cuTile removes it, with all of its kernels, and compiles them again"
    row_fails = "cuTile loads it unchecked, so a program that wants it fails, as long as the row is there"

    @contextmanager
    def database(self, item: Files) -> Iterator[tuple[sqlite3.Connection, SqliteFile]]:
        """The database as its file is now, without a lock; raises UnjudgedError if a program changes it."""
        file = examine(item.path)
        if file is None:
            raise FileNotFoundError(item.path)
        if any(item.seen[name].st_size for name in item.names[1:]):
            raise UnjudgedError(f"a program writes to {item.path}; try again once that is done")
        try:
            with closing(peek(item.path, file)) as connection:
                yield connection, file
        except CacheUnusableError as error:
            raise UnjudgedError(str(error)) from error

    def broken(self, connection: sqlite3.Connection) -> Iterator[tuple[str, int, Problem]]:
        if not has_table(connection, "cache"):
            return
        for row, key, blob, size in connection.execute(_ROWS):
            data = blob if isinstance(blob, bytes) else b""
            info = describe(data)
            kind, why = FindingKind.CORRUPT, info.problem
            if len(data) != size:
                kind, why = FindingKind.TRUNCATED, f"has {len(data)} bytes where it should have {size}"
            elif info.kind is not PayloadKind.CUBIN:
                why = "is no binary for a GPU"
            if why:
                yield "cache", row, Problem(kind, f"the kernel {printable(str(key)[:12])}: {why}")
