"""pytools' dictionaries on disk: an SQLite database for each of them and each version of Python.

Source: pytools 2026.1, ``pytools/persistent_dict.py``; checked against its files. PyOpenCL, loopy and others
store generated code there. A file is named by the dictionary's name and ``sys.version_info``; its one table
``dict`` has a digest of a key and a pickle of key and value. pytools unpickles the rows; gpucache only lists
opcodes. Rows are never evicted, and a file stays when its Python is removed. A program keeps its databases
open until it ends, and cannot store anything if one was removed meanwhile.
"""

import sqlite3
from collections.abc import Iterator

from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Problem
from gpucache.caches import interpreters, pickles
from gpucache.caches.database_format import DatabaseFormat, has_table
from gpucache.caches.files import Files
from gpucache.caches.format import Look
from gpucache.caches.layout import Layout, hashed
from gpucache.caches.systems import PytoolsPlaces
from gpucache.errors import FormatError
from gpucache.model import KeyField

_NAME = r"pdict-(v\d+)-(.+)-(\d+\.\d+\.\d+)\.(\w+\.\d+)\.sqlite"


class Pytools(PytoolsPlaces, DatabaseFormat):
    """The entries that programs store in pytools' ``PersistentDict``."""

    layout = Layout([_NAME, f"{_NAME}-wal", f"{_NAME}-shm", f"{_NAME}-journal"], key=hashed)
    opaque = "a dictionary keeps its keys as pickles, which are not unpickled here"
    served = "pytools would open it; which of its rows programs find, their keys decide"
    consequence = "pytools raises an error that programs do not catch, so they fail at it every time"
    shows = "a database of pytools'"
    key_digits = 40

    def look(self, item: Files) -> Look:
        """The dictionary's name and its Python."""
        name = item.names[0]
        program, _, python = name.partition(".sqlite")[0].split("-", 2)[2].rpartition("-")
        python = ".".join(python.split(".")[:3])
        problem = self.look_at_database(item)
        return Look(
            program=program,
            kind="database",
            fields=(("python", python),),
            problem=problem,
            gone=f"Python {python}" if interpreters.is_gone(python) else "",
            shows=problem is None,
            used_ns=item.used_ns,
        )

    def rows(self, item: Files, connection: sqlite3.Connection) -> Iterator[Problem]:  # noqa: ARG002 - of any
        """The first row that does not end as a pickle does."""
        if not has_table(connection, "dict"):
            detail = f"it has no table of a dictionary; {self.consequence}"
            yield Problem(FindingKind.MISLABELLED, detail)
            return
        for (row,) in connection.execute("SELECT key_value FROM dict"):
            if wrong := pickles.texts(row if isinstance(row, bytes) else b"", 1)[1]:
                yield Problem(wrong.kind, f"a row {wrong.detail}; {self.consequence}")
                return

    def report(self, item: Files, entry: CacheEntry) -> EntryReport:
        """The number of its rows."""
        try:
            with self.database(item) as (connection, _):
                count = "SELECT count(*) FROM dict" if has_table(connection, "dict") else "SELECT 0"
                rows = str(next(connection.execute(count))[0])
        except (sqlite3.Error, MemoryError, FormatError) as error:
            rows = f"not counted: {error}"
        fields = {"key": entry.key, **dict(entry.fields), "keys of its rows": "pickles, not unpickled"}
        return EntryReport(
            entry, tuple(KeyField(*pair) for pair in fields.items()), (("kind", "database"), ("rows", rows))
        )


FORMAT = Pytools
