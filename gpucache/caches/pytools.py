"""pytools' dictionaries on disk: an SQLite database for each of them and each version of Python.

Source: ``pytools/persistent_dict.py`` of pytools 2022.1 to 2026.1; checked against files of 2022.1.14,
2024.1.14 and 2026.1.1. PyOpenCL, loopy and others store generated code there. A file is named by the
dictionary's name and ``sys.version_info``, up to 2025.2 without a dash between them; its one table ``dict``
has a digest of a key and a pickle of key and value. Up to 2024.1.2 a dictionary was a directory
(``pdict-v4-NAME-py3.11.7.final.0``) with one for each digest, in three parts, and in it the pickles ``key``
and ``contents``; ``DIGEST.lock`` beside them was removed after each access. pytools unpickles rows and files;
gpucache only lists opcodes. There is no checksum, so a changed value shows only if it is no longer a pickle.
Nothing is ever evicted, and a dictionary stays when its Python is removed. A program keeps its databases open
until it ends, and cannot store anything if one was removed meanwhile.
"""

import re
import sqlite3
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches import interpreters, pickles
from gpucache.caches.databases import DatabaseFormat, has_table, writing
from gpucache.caches.files import Files
from gpucache.caches.format import HeldError
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.caches.portable import Fact, Moving, PortableEntry, PortableFile
from gpucache.errors import CacheUnusableError, FormatError

_PYTHON = r"([23]\.\d+\.\d+)\.(\w+\.\d+)"
_NAME = rf"pdict-(v\d+)-(.+?)-?{_PYTHON}\.sqlite"
_FOLDER = rf"pdict-(v\d+)-(.+)-py{_PYTHON}"
_ITEM = f"{_FOLDER}/([0-9a-f]{{3}})/([0-9a-f]{{3}})/([0-9a-f]{{8,58}})"
_KEYHASH = re.compile("[0-9a-f]{8,128}")
_TABLE = "CREATE TABLE dict (keyhash TEXT NOT NULL PRIMARY KEY, key_value TEXT NOT NULL)"
_INSERT = "INSERT INTO dict VALUES (?, ?)"
_ITEMS_BYTES = 256 << 20
_NAMES = pickles.Names.of(
    "loopy or PyOpenCL",
    r"builtins:(?:frozenset|set|slice|complex|range)|collections:OrderedDict|numpy:dtype",
    r"(?:constantdict|immutabledict|immutables)(?:\.\w+)*:\w*[mM]ap|constantdict:constantdict|immutabledict:immutabledict",
    r"numpy\.(?:_core|core)\.multiarray:scalar|numpy:u?int\d+|numpy:float\d+|_struct:pack",
    r"cgen(?:\.opencl|\.cuda|\.ispc)?:_?[A-Z]\w*",
    r"islpy\._isl:[A-Z]\w*|islpy:_get_default_context|islpy(?:\._monkeypatch)?:_read_from_str_wrapper",
    r"loopy\.(?:codegen(?:\.result)?|kernel\.(?:array|data|function_interface|instruction)|kernel):_?[A-Z]\w*",
    r"loopy\.(?:library\.(?:reduction|function)|match|options|schedule(?:\.tree)?|symbolic|target):_?[A-Z]\w*",
    r"loopy\.target\.(?!\w*execution)\w+(?:\.codegen\.expression)?:_?[A-Z]\w*",
    r"loopy\.target\.c\.compyte\.dtypes:_?[A-Z]\w*|loopy\.(?:tools|translation_unit|types|typing):_?[A-Z]\w*",
    r"loopy\.tools:_no_value|loopy\.kernel\.instruction:_get_insn_(?:eq|hash)_key",
    r"pymbolic\.(?:primitives|typing|geometric_algebra):_?[A-Z]\w*|pytools\.tag:_?[A-Z]\w*",
    r"pyopencl\.(?:tools|scan|reduction|elementwise):_?[A-Z]\w*|pyopencl\.(?:_cl|cffi_cl):status_code",
    r"pytools\.py_codegen:Picklable(?:Function|Module)",
)
"""The names in pickles of loopy 2025.2, pyopencl 2026.1 and pytools 2022.1 to 2026.1."""
_NEVER = "pytools warns, the program computes it again at every start, and pytools never replaces it"


class Pytools(DatabaseFormat, of="pytools"):
    """The entries that programs store in pytools' ``PersistentDict``."""

    layout = Layout(
        [_NAME, f"{_NAME}-wal", f"{_NAME}-shm", f"{_NAME}-journal", f"{_ITEM}/contents", f"{_ITEM}/key"],
        left=[Left(rf"{_FOLDER}/[0-9a-f]{{14,64}}\.lock")],
        key=hashed,
    )
    folders_removed = 4
    consequence = "pytools raises an error that programs do not catch, so they fail at it every time"
    distribution = "pytools"
    moving = Moving(tells="generated code, and any data that programs store", sources=True)

    def look(self, item: Files) -> CacheEntry:
        name = item.parts[0] if item.parts else item.names[0]
        _, program, python, _ = re.match(_FOLDER if item.parts else _NAME, name).groups()  # type: ignore[union-attr]
        problem = None if item.parts else self.look_at_database(item)
        if item.parts and len(item.seen) < len(("contents", "key")):
            problem = Problem(FindingKind.TRUNCATED, f"only {item.names[0]} exists; {_NEVER}")
        return self.entry(item)._replace(
            program=program,
            artifact_kind="pickle" if item.parts else "database",
            fields=(("python", python),),
            damage=problem,
            gone=f"Python {python}" if interpreters.is_gone(python) else "",
        )

    def check(self, item: Files) -> Iterator[Problem]:
        if not item.parts:
            yield from super().check(item)
        elif problem := self.look(item).damage:
            yield problem
        for name in item.names if item.parts else ():
            if wrong := pickles.problem(item.read(name, _ITEMS_BYTES), _NAMES):
                yield Problem(wrong.kind, f"{name} {wrong.detail}; {_NEVER}")

    def rows(self, item: Files, connection: sqlite3.Connection) -> Iterator[Problem]:
        if not has_table(connection, "dict"):
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'dict'").fetchone():
                yield Problem(FindingKind.MISLABELLED, f"its dict is no table; {self.consequence}")
            else:
                told = (
                    "it has no table of a dictionary; pytools makes one, and programs compute its rows again"
                )
                yield Problem(FindingKind.ORPHAN, told)
            return
        for (row,) in connection.execute("SELECT key_value FROM dict"):
            if wrong := pickles.problem(row if isinstance(row, bytes) else b"", _NAMES):
                yield Problem(wrong.kind, f"a row {wrong.detail}; {self.consequence}")
                return

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:
        yield Fact.PYTHON, dict(look.fields)["python"]

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        """Its rows as files, so that dictionaries of several machines become one."""
        if item.parts:
            raise FormatError("a dictionary of pytools before 2024.1.3 is not moved; update pytools")
        mode = stat.S_IMODE(item.seen[item.names[0]].st_mode) & 0o777
        with self.database(item) as (connection, _):
            rows = connection.execute("SELECT keyhash, key_value FROM dict ORDER BY keyhash").fetchall()
        return [PortableFile(f"{item.names[0]}/{keyhash}", value, mode) for keyhash, value in rows]

    def placed(self, entry: PortableEntry, root: Path) -> Sequence[PortableFile]:
        name, rows = _rows(entry)
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(_TABLE)
            with connection:
                connection.executemany(_INSERT, rows.items())
            return [PortableFile(name, connection.serialize(), entry.files[0].mode)]

    def holds(self, item: Files, names: Collection[str]) -> bool:
        with self.database(item) as (connection, _):
            here = {row for (row,) in connection.execute("SELECT keyhash FROM dict")}
        return {name.rpartition("/")[2] for name in names} <= here

    def merge(self, item: Files, entry: PortableEntry) -> None:
        """Insert the rows that are missing, as programs do that have it open."""
        try:
            with writing(item.path) as connection:
                connection.executemany(f"{_INSERT} ON CONFLICT DO NOTHING", _rows(entry)[1].items())
        except CacheUnusableError as error:
            raise HeldError(str(error)) from error

    def inputs(self, item: Files, entry: CacheEntry) -> Iterable[tuple[str, str]]:
        return (
            super().inputs(item, entry) if item.parts else (("keys of its rows", "pickles, not unpickled"),)
        )

    def content(self, item: Files, entry: CacheEntry) -> Iterable[tuple[str, str]]:
        if item.parts:
            return super().content(item, entry)
        try:
            with self.database(item) as (connection, _):
                count = "SELECT count(*) FROM dict" if has_table(connection, "dict") else "SELECT 0"
                rows = str(next(connection.execute(count))[0])
        except (sqlite3.Error, MemoryError, FormatError) as error:
            rows = f"not counted: {error}"
        return ("kind", "database"), ("rows", rows)


def _rows(entry: PortableEntry) -> tuple[str, dict[str, bytes]]:
    """The name of a dictionary's file, and its rows; raises FormatError."""
    names = [one.name.split("/") for one in entry.files]
    name = names[0][0]
    if not re.fullmatch(_NAME, name) or any(
        len(parts) != 2 or parts[0] != name or not _KEYHASH.fullmatch(parts[1]) for parts in names
    ):
        raise FormatError("its files are no rows of a dictionary")
    return name, {parts[1]: one.data for parts, one in zip(names, entry.files, strict=True)}
