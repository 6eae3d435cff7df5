"""Every finding: what is wrong with a file as a whole, next to it, and with single rows."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from gpucache.caches.rocfft.database import COLUMNS, CREATE, STORE, read_rows
from gpucache.errors import FormatError
from tests.caches.rocfft.build import (
    HIP,
    KERNEL,
    Values,
    answer,
    code,
    database,
    dead_wal,
    execute,
    file_findings,
    hot_journal,
    kinds,
    opened,
    row,
    row_findings,
)

_PLAIN_TABLE = f"CREATE TABLE cache_v1 ({', '.join(COLUMNS)})"
_MORE = CREATE.replace("timestamp INTEGER NOT NULL,", "timestamp INTEGER NOT NULL, used INTEGER DEFAULT 0,")


_MANY = [row(f"kernel_{number}") for number in range(300)]
_ADDING = "SELECT kernel_name || '_more', arch, hip_version, generator_sum, code, 1 FROM cache_v1"
_NO_TEXT = "UPDATE sqlite_master SET name = CAST(x'ff' AS TEXT), sql = 'CREATE TABLE ((' WHERE type = 'table'"


def _written_over(path: Path, place: int, data: bytes, rows: Sequence[Values] = ()) -> None:
    """A database some of whose bytes are others."""
    whole = bytearray(database(path, rows or [row()]).read_bytes())
    whole[place : place + len(data)] = data
    path.write_bytes(whole)


def _without_index_entry(path: Path) -> None:
    """A database whose index is that of an earlier state of the table."""
    database(path, [row()])
    with closing(sqlite3.connect(path)) as connection:
        pages = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name LIKE 'sqlite_autoindex%'"
        ).fetchone()
    start = (pages[0] - 1) * 4096
    old = path.read_bytes()[start : start + 4096]
    execute(path, "INSERT INTO cache_v1 SELECT 'more', arch, 1, generator_sum, code, 1 FROM cache_v1")
    data = bytearray(path.read_bytes())
    data[start : start + 4096] = old
    path.write_bytes(data)


_DAMAGES: dict[str, tuple[Callable[[Path], object], list[tuple[str, str]], int]] = {
    "junk": (
        lambda path: path.write_bytes(b"junk" * 1000),
        [("c.db", "corrupt")],
        0,
    ),
    "no page size": (
        lambda path: _written_over(path, 16, b"\0\3"),
        [("c.db", "corrupt")],
        0,
    ),
    "a page written over": (
        lambda path: _written_over(path, 2 * 4096, bytes(4096), _MANY[:100]),
        [("c.db", "corrupt")],
        100,
    ),
    "no first page": (lambda path: _written_over(path, 100, b"\xff"), [("c.db", "corrupt")], 0),
    "a schema that is no text": (
        lambda path: execute(database(path, [row()]), "PRAGMA writable_schema=ON", _NO_TEXT),
        [("c.db", "corrupt")],
        0,
    ),
    "a row that the index lacks": (_without_index_entry, [("c.db", "corrupt")], 2),
    "write-ahead mode": (
        lambda path: database(path, [row()], wal=True),
        [("c.db", "leftover")],
        1,
    ),
    "a log": (
        lambda path: dead_wal(path, [row()]),
        [("c.db", "leftover")],
        1,
    ),
    "the index of a log": (
        lambda path: Path(f"{database(path, [row()])}-shm").write_bytes(bytes(32768)),
        [("c.db", "leftover")],
        1,
    ),
    "the journal of a dead writer": (
        lambda path: hot_journal(path, _MANY),
        [("c.db", "leftover")],
        300,
    ),
    "one of a writer that was adding": (
        lambda path: hot_journal(path, _MANY, f"INSERT INTO cache_v1 {_ADDING}"),
        [("c.db", "leftover")],
        300,
    ),
    "a log without its database": (
        lambda path: Path(f"{path}-wal").write_bytes(b"log"),
        [("c.db-wal", "orphan")],
        0,
    ),
    "a folder": (lambda path: path.mkdir(), [("c.db", "misplaced")], 0),
    "a link to itself": (lambda path: path.symlink_to(path), [("c.db", "misplaced")], 0),
}


@pytest.mark.parametrize("name", _DAMAGES)
def test_what_is_wrong_with_a_file_is_told_once(tmp_path: Path, name: str) -> None:
    """By the file that it is about, in text that can be shown; rows that still read are sound entries."""
    make, expected, rows = _DAMAGES[name]
    make(tmp_path / "c.db")
    found = file_findings(tmp_path / "c.db")
    assert [(one.entry, one.kind) for one in found] == expected
    assert all(one.detail.isprintable() for one in found)
    entries = list(opened(tmp_path / "c.db").scan())
    assert len(entries) == rows and all(one.created_ns > 0 for one in entries)
    assert row_findings(tmp_path / "c.db") == []


@pytest.mark.parametrize("size", [50, 100, 4095, 4096, 8192, -1])
def test_a_cut_is_truncated(tmp_path: Path, size: int) -> None:
    """A database cut anywhere is truncated, and every lookup in it misses."""
    path = database(tmp_path / "c.db", [row(data=code(size=30_000))])
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    assert "truncated" in kinds(file_findings(path))


class _Circle:
    """A table that gives the same rows again and again."""

    def __init__(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            statements: list[str] = []
            connection.set_trace_callback(statements.append)
            list(read_rows(connection))
            self._rows = connection.execute(statements[1]).fetchall()

    def execute(self, _: str) -> "_Circle":
        return self

    def fetchall(self) -> list[tuple[object, ...]]:
        return self._rows

    def fetchone(self) -> tuple[object, ...]:
        return ("UTF-8",)


def test_rows_that_come_again_end_a_scan(tmp_path: Path) -> None:
    """A damaged table cannot make a scan go in circles."""
    path = database(tmp_path / "c.db", [row(f"kernel_{number}") for number in range(300)])
    with pytest.raises(FormatError, match="out of order"):
        list(read_rows(cast("sqlite3.Connection", _Circle(path))))


def test_the_journal_of_a_living_writer_is_not_told(tmp_path: Path) -> None:
    """While a program is in the middle of a change nothing is wrong."""
    path = database(tmp_path / "c.db", [row(f"kernel_{number}") for number in range(300)])
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM cache_v1 WHERE kernel_name = 'kernel_7'")
        assert Path(f"{path}-journal").exists()
        assert file_findings(path) == []


@pytest.mark.parametrize(
    ("schema", "kind", "words"),
    [
        ("CREATE TABLE cache_v1 (kernel_name TEXT, arch TEXT)", "corrupt", "no column hip_version"),
        (CREATE.replace("timestamp INTEGER", "timestamp AS (1/0)"), "corrupt", "no column timestamp"),
        (_PLAIN_TABLE, "unsupported", "no known rocFFT"),
        (_MORE, "unsupported", "no known rocFFT"),
        (CREATE.replace("hip_version INTEGER", "hip_version TEXT"), "unsupported", "no known rocFFT"),
        ("CREATE VIEW cache_v1 AS SELECT 1 AS kernel_name", "corrupt", "a view"),
        ("CREATE VIRTUAL TABLE cache_v1 USING fts5(kernel_name)", "unsupported", "no known rocFFT"),
        (CREATE + " WITHOUT ROWID", "unsupported", "no known rocFFT"),
        ("CREATE TABLE bookmarks (a)", "unsupported", "another program"),
    ],
)
def test_other_schemas(tmp_path: Path, schema: str, kind: str, words: str) -> None:
    """A database that is not made as rocFFT makes it is reported for what it is."""
    path = database(tmp_path / "c.db", schema=schema)
    (found,) = file_findings(path)
    assert (found.kind, words in found.detail) == (kind, True)


def test_a_view_of_its_name_is_never_run(tmp_path: Path) -> None:
    """A view that would never end is not asked for its rows."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i AS kernel_name FROM n"
    path = database(tmp_path / "c.db", schema=f"CREATE VIEW cache_v1 AS {endless}")
    assert list(opened(path).scan()) == []
    assert kinds(file_findings(path)) == ["corrupt"]


def test_triggers_are_told(tmp_path: Path) -> None:
    """A table whose changes run something is never changed, and its rows are still read."""
    path = database(tmp_path / "c.db", [row()])
    execute(path, "CREATE TRIGGER t AFTER DELETE ON cache_v1 BEGIN SELECT 1; END")
    assert kinds(file_findings(path)) == ["unsupported"]
    assert len(list(opened(path).scan())) == 1


@pytest.mark.parametrize(
    ("schema", "encoding"), [(_MORE, "UTF-8"), (CREATE, "UTF-16le"), (CREATE, "UTF-16be")]
)
def test_a_table_of_no_known_rocfft_is_left(schema: str, encoding: str, tmp_path: Path) -> None:
    """Upstream's statements may work on it, so it is no damage, and nothing of it is shown or changed."""
    path = tmp_path / "c.db"
    execute(path, f"PRAGMA encoding='{encoding}'", schema)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(STORE, row())
    assert answer(path, row()) == row()[4]
    before = path.read_bytes()
    cache = opened(path)
    assert list(cache.scan()) == []
    (checked,) = cache.leftovers()
    assert kinds(cache.repair(checked, None).findings) == ["unsupported"]
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "values", [row(seconds="now"), row(seconds=1.5), row(version=str(HIP)), row(version=float(HIP))]
)
def test_a_row_that_upstreams_select_finds_is_sound(values: Values, tmp_path: Path) -> None:
    """SQLite stores text in a number column as a number, and no program looks a kernel up by its time."""
    path = database(tmp_path / "c.db", [values])
    assert answer(path, row()) == row()[4]
    assert row_findings(path) == []
    assert [one.verdict for one in opened(path).explain(_WANTED)] == ["hit"]


_WANTED = {"kernel_name": (KERNEL.encode(),), "arch": (b"gfx90a",), "hip_version": (b"6.2.41133",)}


def test_a_row_that_changed_is_not_checked(tmp_path: Path) -> None:
    """A row replaced since the scan counts as neither sound nor wrong."""
    path = database(tmp_path / "c.db", [row()])
    cache = opened(path)
    entry = next(cache.scan())
    execute(path, "UPDATE cache_v1 SET timestamp = 1")
    checked = cache.check(entry)
    assert not checked.counts
    assert "changed" in checked.notes[0]


def test_a_row_larger_than_memory_would_hold_is_not_read_whole(tmp_path: Path) -> None:
    """A scan of a large kernel holds its beginning only."""
    import tracemalloc

    path = database(tmp_path / "c.db", [row(data=code(size=20_000_000))])
    cache = opened(path)
    tracemalloc.start()
    try:
        (entry,) = cache.scan()
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert entry.size_bytes > 20_000_000


def test_a_newer_sqlite_is_told(tmp_path: Path) -> None:
    """A file format this SQLite cannot write is reported."""
    path = database(tmp_path / "c.db", [row()])
    data = bytearray(path.read_bytes())
    data[18] = 3
    path.write_bytes(data)
    assert kinds(file_findings(path)) == ["unsupported"]


def test_what_is_gone_is_not_looked_for_in_vain(tmp_path: Path) -> None:
    """Checking an entry of a file that is gone says that it is gone."""
    path = database(tmp_path / "c.db", [row()])
    cache = opened(path)
    entry = next(cache.scan())
    os.unlink(path)  # noqa: PTH108 - as another program would
    assert "gone" in cache.check(entry).findings[0].detail
