"""A sound database is read in full, and reading it leaves no trace."""

import hashlib
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpucache.answers.entries import Location
from gpucache.caches import databases
from gpucache.caches.registry import of_others
from tests.caches.rocfft.build import (
    HIP,
    KERNEL,
    OTHER,
    SUM,
    answer,
    code,
    database,
    dead_wal,
    execute,
    hot_journal,
    live_wal,
    opened,
    row,
    trace,
)

SYSTEM = of_others("rocfft")

ROWS = (row(), row(OTHER, seconds=5), row(arch="gfx1100", data=code("gfx1100", size=9000)))


def read_all(path: Path) -> int:
    """Everything that reads, each once; how many rows there were."""
    cache = opened(path)
    entries = list(cache.scan())
    for entry in entries:
        cache.check(entry)
        cache.report(entry)
        cache.extract(entry)
    list(cache.leftovers())
    list(cache.explain({"arch": (b"gfx1",)}))
    SYSTEM.recognises(path)
    return len(entries)


def test_a_row_becomes_an_entry(tmp_path: Path) -> None:
    """An entry has the kernel's name, its architecture, its readable key, and the time of its store; its key
    is SHA-256 over the four values, each behind its length."""
    cache = opened(database(tmp_path / "c.db", [row()]))
    (entry,) = cache.scan()
    assert (entry.program, entry.target, entry.artifact_kind) == (KERNEL, "hip:gfx90a", "amdgpu")
    own = {"kernel_name": KERNEL, "arch": "gfx90a", "hip_version": "6.2.41133", "generator_sum": SUM.hex()}
    assert entry.fields == (("hip_version", str(HIP)), *own.items())
    assert entry.variant == f"HIP 6.2.41133, generator {SUM.hex()[:12]}"
    assert entry.size_bytes == len(code()) + len(KERNEL)
    assert entry.created_ns == entry.last_used_ns == 1_700_000_000 * 10**9
    assert not entry.damage
    parts = (KERNEL.encode(), b"gfx90a", str(HIP).encode(), SUM)
    framed = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    assert entry.key == hashlib.sha256(framed).hexdigest()
    report = cache.report(entry)
    told = [(field.label, field.value) for field in report.key_fields]
    assert set(own.items()) <= set(told)
    assert dict(report.payload)["architecture"] == "gfx90a"


def test_all_rows_of_a_large_table_are_read(tmp_path: Path) -> None:
    """A table of many more rows than are read at once is read whole, each row once."""
    rows = [row(f"kernel_{number}") for number in range(1000)]
    names = [entry.program for entry in opened(database(tmp_path / "c.db", rows)).scan()]
    assert sorted(names) == sorted(str(one[0]) for one in rows)


def test_code_is_extracted_as_it_was_stored(tmp_path: Path) -> None:
    """Extracting gives the bytes that rocFFT stored."""
    data = code(fill=b"\x01\x02", size=50_000)
    cache = opened(database(tmp_path / "c.db", [row(data=data)]))
    assert cache.extract(next(cache.scan())) == data


def test_a_database_without_the_table_has_no_entries(tmp_path: Path) -> None:
    """A database that rocFFT would add its table to has no entries, and nothing is wrong with it."""
    path = tmp_path / "c.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
    assert read_all(path) == 0


def _plain(path: Path) -> sqlite3.Connection | None:
    database(path, ROWS)
    return None


def _closed_wal(path: Path) -> sqlite3.Connection | None:
    database(path, ROWS, wal=True)
    return None


def _dead_wal(path: Path) -> sqlite3.Connection | None:
    dead_wal(path, ROWS)
    return None


def _hot_journal(path: Path) -> sqlite3.Connection | None:
    hot_journal(path, ROWS * 1)
    return None


def _live_wal(path: Path) -> sqlite3.Connection | None:
    return live_wal(path, ROWS)


def _half_changed(path: Path) -> sqlite3.Connection | None:
    connection = sqlite3.connect(database(path, ROWS), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM cache_v1")
    return connection


def _empty_log(path: Path) -> sqlite3.Connection | None:
    database(path, ROWS)
    Path(f"{path}-wal").touch()
    return None


Make = Callable[[Path], sqlite3.Connection | None]


@pytest.mark.parametrize(
    "make", [_plain, _closed_wal, _dead_wal, _hot_journal, _live_wal, _half_changed, _empty_log]
)
@pytest.mark.parametrize("name", ["c.db", "odd ?#%41&mode=rwc name\u00e9.db"])
def test_reading_leaves_no_trace(tmp_path: Path, make: Make, name: str) -> None:
    """Whatever state a database was left in, all rows are read and not a byte, name or time changes."""
    connection = make(tmp_path / name)
    try:
        before = trace(tmp_path)
        status = tmp_path.stat()
        assert read_all(tmp_path / name) == len(ROWS)
        assert trace(tmp_path) == before
        assert tmp_path.stat().st_mtime_ns == status.st_mtime_ns
    finally:
        if connection is not None:
            connection.close()


def test_private_copies_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy that a log takes to be read goes with the cache that was read."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "private"))
    (tmp_path / "private").mkdir()
    cache = opened(dead_wal(tmp_path / "c.db", ROWS))
    assert len(list(cache.scan())) == len(ROWS)
    assert len(list((tmp_path / "private").iterdir())) == 1
    del cache
    assert not list((tmp_path / "private").iterdir())


@pytest.mark.parametrize("changes", [1, 100])
def test_a_copy_of_a_changing_database_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    """A copy during which the log grew is thrown away; one that never holds still is given up."""
    copy, left = databases._copy, [changes]
    with closing(live_wal(tmp_path / "c.db", [row()])) as writer:

        def disturbed(path: Path, suffixes: tuple[str, ...], private: Path) -> int:
            size = copy(path, suffixes, private)
            if left[0]:
                left[0] -= 1
                writer.execute("UPDATE cache_v1 SET arch = 'gfx942', timestamp = timestamp + 1")
            return size

        monkeypatch.setattr(databases, "_copy", disturbed)
        if changes == 1:
            assert [entry.target for entry in opened(tmp_path / "c.db").scan()] == ["hip:gfx942"]
        else:
            cache = opened(tmp_path / "c.db")
            assert not list(cache.scan()) and "changes while" in cache.unread()[0]


def test_a_copy_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that makes the copy larger than allowed is refused before anything is copied."""
    path = dead_wal(tmp_path / "c.db", ROWS)
    monkeypatch.setattr(databases, "COPY_LIMIT_BYTES", 1000)
    cache = opened(path)
    assert not list(cache.scan()) and "only be read from a copy" in cache.unread()[0]


def test_a_log_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """A log that leads out of the directory is not read: the file is said to be unreadable."""
    path = dead_wal(tmp_path / "c.db", ROWS)
    outside = Path(f"{path}-wal").rename(tmp_path / "outside")
    Path(f"{path}-wal").symlink_to(outside)
    assert list(opened(path).scan()) == []
    assert any("link" in found.findings[0].detail for found in opened(path).leftovers())


def test_a_link_to_a_database_is_the_database(tmp_path: Path) -> None:
    """The place that was named may be a link, as SQLite follows it too."""
    (tmp_path / "folder").mkdir()
    database(tmp_path / "folder" / "c.db", ROWS)
    (tmp_path / "link.db").symlink_to(tmp_path / "folder" / "c.db")
    assert len(list(opened(tmp_path / "link.db").scan())) == len(ROWS)


def test_a_link_that_leads_to_itself_is_no_database(tmp_path: Path) -> None:
    """A loop of links is neither recognised nor read."""
    (tmp_path / "loop.db").symlink_to(tmp_path / "loop.db")
    assert not SYSTEM.recognises(tmp_path / "loop.db")
    assert list(opened(tmp_path / "loop.db").scan()) == []


def test_a_writer_is_not_kept_waiting_by_a_scan(tmp_path: Path) -> None:
    """Between two entries of a scan another program can store."""
    path = database(tmp_path / "c.db", [row(f"kernel_{number}") for number in range(300)])
    scan = opened(path).scan()
    next(scan)
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as writer:
        writer.execute("DELETE FROM cache_v1 WHERE kernel_name = 'kernel_299'")
    assert len(list(scan)) == 298


def test_what_was_stored_meanwhile_is_seen(tmp_path: Path) -> None:
    """A cache that was read once is read anew after a store."""
    path = database(tmp_path / "c.db", [row()])
    cache = opened(path)
    assert len(list(cache.scan())) == 1
    execute(path, "UPDATE cache_v1 SET arch = 'gfx942'")
    assert [entry.target for entry in cache.scan()] == ["hip:gfx942"]


def test_what_was_logged_meanwhile_is_seen(tmp_path: Path) -> None:
    """A cache that was read from a copy is copied anew once its log has grown."""
    with closing(live_wal(tmp_path / "c.db", [row()])) as writer:
        cache = opened(tmp_path / "c.db")
        assert len(list(cache.scan())) == 1
        writer.execute("UPDATE cache_v1 SET arch = 'gfx942'")
        assert [entry.target for entry in cache.scan()] == ["hip:gfx942"]


def test_a_locked_database_is_not_said_to_be_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another program holds it alone the cache cannot be used, which is not a finding."""
    monkeypatch.setattr(databases, "BUSY_SECONDS", 0.0)
    path = database(tmp_path / "c.db", ROWS)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        cache = opened(path)
        assert not list(cache.scan()) and "locked" in cache.unread()[0]


def test_recognised_by_table_or_by_name(tmp_path: Path) -> None:
    """A database with the table is recognised under any name, and any file under rocFFT's name."""
    (tmp_path / "rocfft_kernel_cache_gfx90a.db").write_bytes(b"junk")
    (tmp_path / "junk.db").write_bytes(b"SQLite format 3\0" + b"junk" * 50)
    database(tmp_path / "mine.db", ROWS)
    database(tmp_path / "others.db", schema="CREATE TABLE t (a)")
    with closing(sqlite3.connect(tmp_path / "logged.db", isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE cache_v1 (a)")
        found = sorted(path.name for path in tmp_path.iterdir() if SYSTEM.recognises(path))
    assert found == ["logged.db", "mine.db", "rocfft_kernel_cache_gfx90a.db"]
    assert not SYSTEM.recognises(tmp_path)
    assert not SYSTEM.recognises(tmp_path / "missing.db")


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    """Something that is not a file is reported as such, at once."""
    os.mkfifo(tmp_path / "rocfft_kernel_cache.db")
    cache = SYSTEM.open(Location("rocfft", str(tmp_path / "rocfft_kernel_cache.db"), "--cache", enabled=True))
    assert list(cache.scan()) == []
    assert [found.findings[0].kind for found in cache.leftovers()] == ["misplaced"]


def test_rocffts_own_select_answers_what_is_extracted(tmp_path: Path) -> None:
    """An extraction gives the code that rocFFT's own query returns."""
    path = database(tmp_path / "c.db", ROWS)
    cache = opened(path)
    assert [cache.extract(entry) for entry in cache.scan()] == [answer(path, one) for one in ROWS]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no FIFOs")
def test_a_journal_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """SQLite would open a FIFO next to the database and wait for ever."""
    path = database(tmp_path / "c.db", [row()])
    os.mkfifo(f"{path}-journal")
    cache = opened(path)
    assert list(cache.scan()) == []
    told = [finding.detail for checked in cache.leftovers() for finding in checked.findings]
    assert any("not a regular file" in detail for detail in told)
