"""pytools' dictionaries on disk: an SQLite database for each of them and each version of Python.

Source: ``pytools/persistent_dict.py`` of pytools 2022.1 to 2026.1; checked against files of 2022.1.14,
2024.1.14 and 2026.1.1. PyOpenCL, loopy and others store generated code there. A file is named by the
dictionary's name and ``sys.version_info``, up to 2025.2 without a dash between them; its one table ``dict``
has a digest of a key and a pickle of key and value. Up to 2024.1.2 a dictionary was a directory
(``pdict-v4-NAME-py3.11.7.final.0``) with one for each digest, in three parts, and in it the pickles ``key``
and ``contents``; ``DIGEST.lock`` beside them was removed after each access. pytools unpickles rows and files;
gpucache only lists opcodes. There is no checksum, so a changed value shows only if it is no pickle any more.
Nothing is ever evicted, and a dictionary stays when its Python is removed. A program keeps its databases open
until it ends, and cannot store anything if one was removed meanwhile.
"""

import re
import sqlite3
from collections.abc import Iterator

from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Problem
from gpucache.caches import interpreters, pickles
from gpucache.caches.databases import DatabaseFormat, has_table
from gpucache.caches.files import Files
from gpucache.caches.format import HOUR_NS, Look
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.caches.systems import PytoolsPlaces
from gpucache.errors import FormatError
from gpucache.model import KeyField

_PYTHON = r"([23]\.\d+\.\d+)\.(\w+\.\d+)"
_NAME = rf"pdict-(v\d+)-(.+?)-?{_PYTHON}\.sqlite"
_FOLDER = rf"pdict-(v\d+)-(.+)-py{_PYTHON}"
_ITEM = f"{_FOLDER}/([0-9a-f]{{3}})/([0-9a-f]{{3}})/([0-9a-f]{{8,58}})"
_ITEMS_BYTES = 256 << 20
_NEVER = "pytools warns, the program computes it again at every start, and pytools never replaces it"


class Pytools(PytoolsPlaces, DatabaseFormat):
    """The entries that programs store in pytools' ``PersistentDict``."""

    layout = Layout(
        [_NAME, f"{_NAME}-wal", f"{_NAME}-shm", f"{_NAME}-journal", f"{_ITEM}/contents", f"{_ITEM}/key"],
        left=[Left(rf"{_FOLDER}/[0-9a-f]{{14,64}}\.lock", HOUR_NS)],
        key=hashed,
    )
    folders_removed = 4
    opaque = "a dictionary keeps its keys as pickles, which are not unpickled here"
    served = "pytools would open it; which of its rows programs find, their keys decide"
    consequence = "pytools raises an error that programs do not catch, so they fail at it every time"
    shows = "a database of pytools'"
    key_digits = 40

    def look(self, item: Files) -> Look:
        """The dictionary's name and its Python."""
        name = item.parts[0] if item.parts else item.names[0]
        _, program, python, _ = re.match(_FOLDER if item.parts else _NAME, name).groups()  # type: ignore[union-attr]
        problem = None if item.parts else self.look_at_database(item)
        if item.parts and len(item.seen) < len(("contents", "key")):
            problem = Problem(FindingKind.TRUNCATED, f"only {item.names[0]} is there; {_NEVER}")
        return Look(
            program=program,
            kind="pickle" if item.parts else "database",
            fields=(("python", python),),
            problem=problem,
            gone=f"Python {python}" if interpreters.is_gone(python) else "",
            shows=bool(item.parts) or problem is None,
            used_ns=item.used_ns,
        )

    def check(self, item: Files) -> Iterator[Problem]:
        """The rows of a database, or the two pickles of an older version."""
        if not item.parts:
            yield from super().check(item)
        elif problem := self.look(item).problem:
            yield problem
        for name in item.names if item.parts else ():
            if wrong := pickles.values(item.read(name, _ITEMS_BYTES), 1)[1]:
                yield Problem(wrong.kind, f"{name} {wrong.detail}; {_NEVER}")

    def rows(self, item: Files, connection: sqlite3.Connection) -> Iterator[Problem]:  # noqa: ARG002 - of any
        """The first row that does not end as a pickle does."""
        if not has_table(connection, "dict"):
            detail = f"it has no table of a dictionary; {self.consequence}"
            yield Problem(FindingKind.MISLABELLED, detail)
            return
        for (row,) in connection.execute("SELECT key_value FROM dict"):
            if wrong := pickles.values(row if isinstance(row, bytes) else b"", 1)[1]:
                yield Problem(wrong.kind, f"a row {wrong.detail}; {self.consequence}")
                return

    def report(self, item: Files, entry: CacheEntry) -> EntryReport | None:
        """The number of a database's rows."""
        if item.parts:
            return None
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
