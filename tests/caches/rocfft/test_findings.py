"""Every finding: what is wrong with a file as a whole, beside it, and with single rows."""

import os
import sqlite3
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


def test_junk_is_corrupt(tmp_path: Path) -> None:
    """A file that is no database is a finding that says what becomes of the program."""
    (tmp_path / "c.db").write_bytes(b"junk" * 1000)
    (found,) = file_findings(tmp_path / "c.db")
    assert found.kind == "corrupt"
    assert "rocfft_setup ends the program" in found.detail
    assert list(opened(tmp_path / "c.db").scan()) == []


@pytest.mark.parametrize("size", [50, 100, 4095, 4096, 8192, -1])
def test_a_cut_is_truncated(tmp_path: Path, size: int) -> None:
    """A database cut anywhere is truncated, and every lookup in it misses."""
    path = database(tmp_path / "c.db", [row(data=code(size=30_000))])
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    assert "truncated" in kinds(file_findings(path))


def test_a_page_size_that_cannot_be_is_corrupt(tmp_path: Path) -> None:
    """A header with a page size that SQLite does not know is told without asking SQLite."""
    path = database(tmp_path / "c.db")
    data = bytearray(path.read_bytes())
    data[16:18] = b"\x00\x03"
    path.write_bytes(data)
    assert kinds(file_findings(path)) == ["corrupt"]


def test_bytes_behind_the_last_page_are_left_over(tmp_path: Path) -> None:
    """A file longer than its pages is sound and worth knowing."""
    path = database(tmp_path / "c.db", [row()])
    path.write_bytes(path.read_bytes() + bytes(5000))
    assert kinds(file_findings(path)) == ["leftover"]


def test_a_page_written_over_is_corrupt(tmp_path: Path) -> None:
    """Pages that contradict each other are a finding with what SQLite says of them."""
    path = database(tmp_path / "c.db", [row(f"kernel_{number}") for number in range(100)])
    data = bytearray(path.read_bytes())
    data[2 * 4096 : 3 * 4096] = bytes(4096)  # the root of the index
    path.write_bytes(data)
    (found,) = file_findings(path)
    assert found.kind == "corrupt"
    assert "contradict" in found.detail


def test_a_message_that_is_no_text_is_told(tmp_path: Path) -> None:
    """A schema whose names are no UTF-8 ends in a finding that can be shown."""
    path = database(tmp_path / "c.db", [row()])
    execute(
        path,
        "PRAGMA writable_schema=ON",
        "UPDATE sqlite_master SET name = CAST(x'ff' AS TEXT), sql = 'CREATE TABLE ((' WHERE type = 'table'",
    )
    (found,) = file_findings(path)
    assert found.kind == "corrupt"
    assert found.detail.isprintable()
    assert list(opened(path).scan()) == []


def test_what_sqlite_says_is_told(tmp_path: Path) -> None:
    """A first page of no kind that SQLite knows is told in its own words."""
    path = database(tmp_path / "c.db", [row()])
    data = bytearray(path.read_bytes())
    data[100] = 0xFF
    path.write_bytes(data)
    (found,) = file_findings(path)
    assert (found.kind, "malformed" in found.detail) == ("corrupt", True)


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


def test_an_index_that_lacks_a_row_is_corrupt(tmp_path: Path) -> None:
    """A row that the index does not have is never found by a lookup, and that is told."""
    path = _without_index_entry(tmp_path / "c.db")
    (found,) = file_findings(path)
    assert found.kind == "corrupt"
    assert "missing from index" in found.detail


def _without_index_entry(path: Path) -> Path:
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
    return path


def test_write_ahead_mode_is_told(tmp_path: Path) -> None:
    """An image of a database in write-ahead mode cannot be deserialised, which is worth knowing."""
    (found,) = file_findings(database(tmp_path / "c.db", [row()], wal=True))
    assert found.kind == "unsupported"
    assert "unable to open database file" in found.detail
    assert "verify --cache rocfft --repair" in found.detail


def test_a_log_beside_it_is_left_over(tmp_path: Path) -> None:
    """Changes that only the log has are told, naming the log."""
    found = file_findings(dead_wal(tmp_path / "c.db", [row()]))
    assert kinds(found) == ["unsupported", "leftover"]
    assert found[1].entry.endswith("c.db-wal")


def test_an_index_of_a_log_beside_it_is_left_over(tmp_path: Path) -> None:
    """The index of a log that is gone is told."""
    path = database(tmp_path / "c.db", [row()])
    Path(f"{path}-shm").write_bytes(bytes(32768))
    (found,) = file_findings(path)
    assert (found.kind, found.entry) == ("leftover", "c.db-shm")


def test_the_journal_of_a_dead_writer_is_left_over(tmp_path: Path) -> None:
    """A journal that will be rolled back is told, and the rows are those from before the change."""
    path = hot_journal(tmp_path / "c.db", [row(f"kernel_{number}") for number in range(300)])
    found = file_findings(path)
    assert kinds(found) == ["leftover"]
    assert found[0].entry.endswith("c.db-journal")
    assert row_findings(path) == []
    assert all(entry.created_ns > 0 for entry in opened(path).scan())


def test_a_dead_writer_that_was_adding_is_no_other_damage(tmp_path: Path) -> None:
    """A file that grew before its writer died is told as such, not for its length."""
    columns = "kernel_name || '_more', arch, hip_version, generator_sum, code, 1"
    change = f"INSERT INTO cache_v1 SELECT {columns} FROM cache_v1"
    rows = [row(f"kernel_{number}") for number in range(300)]
    path = hot_journal(tmp_path / "c.db", rows, change)
    assert kinds(file_findings(path)) == ["leftover"]
    assert len(list(opened(path).scan())) == 300


def test_the_journal_of_a_living_writer_is_not_told(tmp_path: Path) -> None:
    """While a program is in the middle of a change nothing is wrong."""
    path = database(tmp_path / "c.db", [row(f"kernel_{number}") for number in range(300)])
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM cache_v1 WHERE kernel_name = 'kernel_7'")
        assert Path(f"{path}-journal").exists()
        assert file_findings(path) == []


def test_a_folder_in_its_place_is_misplaced(tmp_path: Path) -> None:
    """A folder where the database should be is told."""
    assert kinds(file_findings(tmp_path)) == ["misplaced"]


@pytest.mark.parametrize(
    ("schema", "kind", "words"),
    [
        ("CREATE TABLE cache_v1 (kernel_name TEXT, arch TEXT)", "corrupt", "no column hip_version"),
        (CREATE.replace("timestamp INTEGER", "timestamp AS (1/0)"), "corrupt", "no column timestamp"),
        (_PLAIN_TABLE, "unsupported", "no rocFFT known here"),
        (_MORE, "unsupported", "no rocFFT known here"),
        (CREATE.replace("hip_version INTEGER", "hip_version TEXT"), "unsupported", "no rocFFT known here"),
        ("CREATE VIEW cache_v1 AS SELECT 1 AS kernel_name", "corrupt", "a view"),
        ("CREATE VIRTUAL TABLE cache_v1 USING fts5(kernel_name)", "unsupported", "virtual"),
        (CREATE + " WITHOUT ROWID", "unsupported", "row numbers"),
        ("CREATE TABLE stockham_v1 (a)", "unsupported", "pre-release"),
        ("CREATE TABLE bookmarks (a)", "unsupported", "another program"),
    ],
)
def test_other_schemas(tmp_path: Path, schema: str, kind: str, words: str) -> None:
    """A database that is not made as rocFFT makes it is told for what it is."""
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
    """A table whose changes run something is corrupt, and its rows are still read."""
    path = database(tmp_path / "c.db", [row()])
    execute(path, "CREATE TRIGGER t AFTER DELETE ON cache_v1 BEGIN SELECT 1; END")
    (found,) = file_findings(path)
    assert (found.kind, "triggers" in found.detail) == ("corrupt", True)
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
    """SQLite stores text in a number column as a number, and nobody looks a kernel up by its time."""
    path = database(tmp_path / "c.db", [values])
    assert answer(path, row()) == row()[4]
    assert row_findings(path) == []
    assert [one.verdict for one in opened(path).explain(_WANTED)] == ["hit"]


_WANTED = {"kernel_name": (KERNEL.encode(),), "arch": (b"gfx90a",), "hip_version": (b"6.2.41133",)}


@pytest.mark.parametrize(
    ("values", "kind", "words"),
    [
        (row(total=b"short"), "corrupt", "5 bytes where SHA-256 has 32"),
        (row(data=b""), "corrupt", "no code: rocFFT takes that for a miss"),
        (row(version="six"), "corrupt", "hip_version is text"),
        (row(version=6.2), "corrupt", "hip_version is real"),
        (row(b"name"), "corrupt", "kernel_name is blob"),
        (row(total="sum"), "corrupt", "generator_sum is text"),
        (row(data="code"), "mislabelled", "unknown"),
        (row(data=7), "mislabelled", "unknown"),
        (row("k" * 5000), "corrupt", "5000 bytes"),
        (row("k\0k"), "corrupt", "no text"),
        (row(data=code("gfx908")), "mislabelled", "for gfx908"),
        (row(data=code(machine=62)), "mislabelled", "not for an AMD GPU"),
        (row(data=b"not code"), "mislabelled", "unknown"),
        (row(data=code()[:40]), "corrupt", "damaged"),
    ],
)
def test_wrong_rows(tmp_path: Path, values: Values, kind: str, words: str) -> None:
    """A row that no lookup can use is told with what it costs, and the one beside it is sound."""
    path = database(tmp_path / "c.db", [values, row("sound")])
    (found,) = row_findings(path)
    assert (found.kind, words in found.detail) == (kind, True)


def test_text_that_is_no_utf8_is_a_finding(tmp_path: Path) -> None:
    """A name of bytes that are no text is shown with marks, and no lookup finds it."""
    path = database(tmp_path / "c.db", [row()])
    execute(path, "UPDATE cache_v1 SET kernel_name = CAST(x'66ff67' AS TEXT)")
    (entry,) = opened(path).scan()
    assert entry.program == "f\N{REPLACEMENT CHARACTER}g"
    assert kinds(row_findings(path)) == ["corrupt"]


@pytest.mark.parametrize(
    "values",
    [
        row(data=b"__CLANG_OFFLOAD_BUNDLE__" + bytes(100)),
        row(data=b"CCOB" + bytes(100)),
        row(arch="gfx90a:sramecc+:xnack-", data=code("gfx90a")),
        row(arch="gfx1234", data=code("gfx1234")),
        row(arch="amdgcnspirv", data=(0x07230203).to_bytes(4, "little") + bytes(16)),
    ],
)
def test_what_rocfft_stores_is_sound(tmp_path: Path, values: Values) -> None:
    """Bundles, architectures with features or unknown to us, and SPIR-V are taken for what they are."""
    assert row_findings(database(tmp_path / "c.db", [values])) == []


@pytest.mark.parametrize(("seconds", "word"), [(-5, "before 1970"), (10**11, "future")])
def test_odd_times_are_worth_a_note(tmp_path: Path, seconds: int, word: str) -> None:
    """A time that cannot be is told, and changes nothing about the code."""
    cache = opened(database(tmp_path / "c.db", [row(seconds=seconds)]))
    checked = cache.check(next(cache.scan()))
    assert not checked.findings
    assert word in checked.notes[0]


def test_time_zero_is_what_an_export_has(tmp_path: Path) -> None:
    """rocFFT's own export writes time 0, which nobody needs to be told."""
    cache = opened(database(tmp_path / "c.db", [row(seconds=0)]))
    assert cache.check(next(cache.scan())).notes == ()


def test_a_row_that_changed_is_not_checked(tmp_path: Path) -> None:
    """A row replaced since the scan counts as neither sound nor wrong."""
    path = database(tmp_path / "c.db", [row()])
    cache = opened(path)
    entry = next(cache.scan())
    execute(path, "UPDATE cache_v1 SET timestamp = 1")
    checked = cache.check(entry)
    assert not checked.counts
    assert "changed" in checked.notes[0]


def test_damaged_rows_say_so_in_a_scan(tmp_path: Path) -> None:
    """A scan tells a row without code from a sound one."""
    entries = opened(database(tmp_path / "c.db", [row(), row("empty", data=b"")])).scan()
    assert {entry.program: bool(entry.damage) for entry in entries} == {KERNEL: False, "empty": True}


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
    """A file format this SQLite cannot write is told."""
    path = database(tmp_path / "c.db", [row()])
    data = bytearray(path.read_bytes())
    data[18] = 3
    path.write_bytes(data)
    assert kinds(file_findings(path)) == ["unsupported"]


def test_what_is_gone_is_not_looked_for_in_vain(tmp_path: Path) -> None:
    """Checking an entry of a file that is gone tells that it is gone."""
    path = database(tmp_path / "c.db", [row()])
    cache = opened(path)
    entry = next(cache.scan())
    os.unlink(path)  # noqa: PTH108 - as another program would
    assert "gone" in cache.check(entry).findings[0].detail
