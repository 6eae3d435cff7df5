"""Removing rows, giving pages back, and repairing: only under SQLite's locks, and only what is rocFFT's."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpucache.caches import databases
from gpucache.engine.evict import Limits, plan, run_evict
from tests.caches.rocfft.build import (
    KERNEL,
    answer,
    code,
    database,
    dead_wal,
    execute,
    file_findings,
    hot_journal,
    kinds,
    live_wal,
    opened,
    row,
    row_findings,
    trace,
)

_NEVER_NS = 0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that others hold for the whole of a test are not waited for."""
    monkeypatch.setattr(databases, "BUSY_SECONDS", 0.0)


def count(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM cache_v1").fetchone()[0])


def repair_all(path: Path, *, role: str = "") -> None:
    cache = opened(path, role=role)
    found = [(cache.check(entry), entry) for entry in cache.scan()]
    file = list(cache.leftovers())
    for checked, entry in found:
        cache.repair(checked, entry)
    for checked in file:
        cache.repair(checked, None)


def test_a_removed_row_is_gone_and_the_others_answer(tmp_path: Path) -> None:
    """After a removal rocFFT's own select misses that row and finds the other."""
    path = database(tmp_path / "c.db", [row(), row(arch="gfx942")])
    cache = opened(path)
    assert cache.remove(next(cache.scan()), "test") is None
    assert answer(path, row()) is None
    assert answer(path, row(arch="gfx942")) == code("gfx942")
    assert file_findings(path) == []


_TRIGGER = "CREATE TRIGGER t AFTER DELETE ON cache_v1 BEGIN DELETE FROM cache_v1; END"
_KEPT = {
    **{
        f"it has another {change}": ((f"UPDATE cache_v1 SET {change}",), (), "changed")
        for change in ("timestamp = 5", "code = x'00'", "generator_sum = zeroblob(32)", "arch = 'other'")
    },
    "a change runs something": ((_TRIGGER,), (), "left unchanged"),
    "a program writes": ((), ("BEGIN IMMEDIATE",), "locked"),
    "a program reads at the commit": ((), ("BEGIN", "SELECT * FROM cache_v1"), "locked"),
}


@pytest.mark.parametrize("name", _KEPT)
def test_a_row_is_kept(tmp_path: Path, name: str) -> None:
    """Whole, and nothing stays beside the database."""
    before, meanwhile, words = _KEPT[name]
    path = database(tmp_path / "c.db", [row()])
    cache = opened(path)
    entry = next(cache.scan())
    execute(path, *before)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        for statement in meanwhile:
            other.execute(statement).fetchone()
        kept = cache.remove(entry, "test")
    assert kept is not None and words in kept.reason
    assert count(path) == 1 and [item.name for item in tmp_path.iterdir()] == ["c.db"]


def test_a_row_that_moved_is_removed(tmp_path: Path) -> None:
    """A row that got another number since the scan is found by its key."""
    path = database(tmp_path / "c.db", [row("first"), row("second")])
    cache = opened(path)
    entry = next(entry for entry in cache.scan() if entry.program == "second")
    execute(path, "DELETE FROM cache_v1 WHERE kernel_name = 'first'", "UPDATE cache_v1 SET rowid = 77")
    assert cache.remove(entry, "test") is None
    assert count(path) == 0


def test_the_systems_database_is_left_alone(tmp_path: Path) -> None:
    """Nothing is removed, given back or repaired in the installation's database."""
    path = database(tmp_path / "c.db", [row(f"kernel_{number}") for number in range(100)])
    execute(path, "DELETE FROM cache_v1", "PRAGMA journal_mode=WAL")
    execute(path, f"INSERT INTO cache_v1 VALUES ('{KERNEL}', 'gfx90a', 1, zeroblob(32), x'', 1)")
    before = trace(tmp_path)
    cache = opened(path, role="system")
    kept = cache.remove(next(cache.scan()), "test")
    assert kept is not None
    assert "belongs to the installation" in kept.reason
    assert cache.finish_removals() == ()
    repair_all(path, role="system")
    del cache
    assert trace(tmp_path) == before


def test_rows_in_a_log_are_removed_while_others_have_it_open(tmp_path: Path) -> None:
    """A row that is still in another program's log is removed by SQLite's own rules."""
    with closing(live_wal(tmp_path / "c.db", [row(), row("other")])) as other:
        cache = opened(tmp_path / "c.db")
        assert cache.remove(next(cache.scan()), "test") is None
        assert other.execute("SELECT kernel_name FROM cache_v1").fetchall() == [("other",)]


def test_eviction_leaves_a_database_that_answers(tmp_path: Path) -> None:
    """Evicting to a size takes the oldest rows, and rocFFT's select finds exactly the rest."""
    rows = [row(f"kernel_{number:03}", seconds=1000 + number) for number in range(100)]
    path = database(tmp_path / "c.db", rows)
    cache = opened(path)
    total = sum(entry.size_bytes for entry in cache.scan())
    planned = plan(cache.entries(), Limits(max_size_bytes=total // 2), _NEVER_NS)
    assert all(outcome.removed for outcome in run_evict(cache, planned))
    found = [answer(path, one) is not None for one in rows]
    assert found == [False] * found.count(False) + [True] * found.count(True)
    assert 35 <= found.count(True) <= 45
    assert file_findings(path) == []


def test_rows_of_other_installations_are_not_superseded(tmp_path: Path) -> None:
    """A database may serve two HIP versions and two builds of rocFFT at once."""
    rows = [row(version=60141133, seconds=10), row(seconds=20), row(total=bytes(32), seconds=30)]
    path = database(tmp_path / "c.db", rows)
    assert list(plan(opened(path).entries(), Limits(superseded=True), _NEVER_NS).removals()) == []
    assert len({entry.variant for entry in opened(path).scan()}) == 3


@pytest.mark.parametrize(("value", "gone"), [("6.2.41133", 0), ("60241133", 0), ("6.1.41133", 1)])
def test_the_hip_version_is_known_in_both_forms(tmp_path: Path, value: str, gone: int) -> None:
    """An entry is unlike a version only if neither its text nor its integer is that."""
    path = database(tmp_path / "c.db", [row()])
    planned = plan(opened(path).entries(), Limits(unlike=(("hip_version", value),)), _NEVER_NS)
    assert len(list(planned.removals())) == gone


@pytest.mark.parametrize("seconds", [0, -5])
def test_a_row_without_a_time_is_as_old_as_its_file(tmp_path: Path, seconds: int) -> None:
    """A row with no time, as in an export, is as old as its file and not as old as 1970."""
    path = database(tmp_path / "c.db", [row(seconds=seconds)])
    day = 86_400 * 10**9
    os.utime(path, ns=(day, 2000 * day))
    (entry,) = opened(path).scan()
    assert (entry.created_ns, entry.last_used_ns) == (2000 * day, 2000 * day)
    planned = plan(opened(path).entries(), Limits(older_than_ns=30 * day), 2010 * day)
    assert list(planned.removals()) == []


def test_free_pages_are_given_back(tmp_path: Path) -> None:
    """Where a fifth of the pages is free the file shrinks, and that is said."""
    path = database(
        tmp_path / "c.db", [row(f"kernel_{number}", data=code(size=5000)) for number in range(50)]
    )
    cache = opened(path)
    for entry in list(cache.scan())[:40]:
        assert cache.remove(entry, "test") is None
    size = path.stat().st_size
    (said,) = cache.finish_removals()
    assert "VACUUM" in said
    assert path.stat().st_size < size / 3
    assert count(path) == 10


def test_few_free_pages_stay(tmp_path: Path) -> None:
    """Less than a fifth free is left for rows to come."""
    path = database(
        tmp_path / "c.db", [row(f"kernel_{number}", data=code(size=5000)) for number in range(50)]
    )
    cache = opened(path)
    assert cache.remove(next(cache.scan()), "test") is None
    assert cache.finish_removals() == ()


def test_pages_in_use_are_not_given_back(tmp_path: Path) -> None:
    """A locked file stays as large as it is, and that is said."""
    path = database(
        tmp_path / "c.db", [row(f"kernel_{number}", data=code(size=5000)) for number in range(50)]
    )
    execute(path, "DELETE FROM cache_v1")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        (said,) = opened(path).finish_removals()
    assert "locked" in said


def test_removals_are_finished_where_nothing_is(tmp_path: Path) -> None:
    """A missing file is not made."""
    assert opened(tmp_path / "c.db").finish_removals() == ()
    assert not list(tmp_path.iterdir())


def _junk(path: Path) -> None:
    path.write_bytes(b"junk" * 100)


def _truncated(path: Path) -> None:
    data = database(path, [row(data=code(size=30_000))]).read_bytes()
    path.write_bytes(data[:9000])


def _other_columns(path: Path) -> None:
    database(path, schema="CREATE TABLE cache_v1 (a)")


@pytest.mark.parametrize("make", [_junk, _truncated, _other_columns])
def test_a_damaged_file_is_moved_aside(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A damaged file is renamed with what is next to it, so that rocFFT makes a new one."""
    path = tmp_path / "rocfft_kernel_cache.db"
    make(path)
    data = path.read_bytes()
    Path(f"{path}.corrupt").touch()
    cache = opened(path)
    (checked,) = cache.leftovers()
    assert all(finding.repaired for finding in cache.repair(checked, None).findings)
    assert all(finding.repaired for finding in cache.repair(checked, None).findings)
    assert not path.exists()
    assert Path(f"{path}.corrupt1").read_bytes() == data
    assert not Path(f"{path}.corrupt").read_bytes()


def test_a_database_with_a_bad_page_is_set_aside(tmp_path: Path) -> None:
    """rocFFT compiles its kernels anew into a new database, and the new place of the damaged one is told."""
    path = tmp_path / "rocfft_kernel_cache.db"
    database(path, [row(f"kernel_{number:04}", data=code(size=1000)) for number in range(200)])
    data = bytearray(path.read_bytes())
    (leaf,) = [
        start
        for start in range(4096, len(data), 4096)
        if data[start] == 0x0D and b"_0100" in data[start : start + 4096]
    ]
    data[leaf : leaf + 4096] = b"\xa5" * 4096
    path.write_bytes(data)
    cache = opened(path)
    (checked,) = cache.leftovers()
    (finding,) = cache.repair(checked, None).findings
    assert finding.repaired and f"it is {path}.corrupt now" in finding.detail
    assert Path(f"{path}.corrupt").read_bytes() == data
    assert [item.name for item in tmp_path.iterdir()] == [f"{path.name}.corrupt"]


def test_a_journal_goes_with_the_file_it_belongs_to(tmp_path: Path) -> None:
    """No journal stays that would be rolled back into the new database."""
    path = tmp_path / "rocfft_kernel_cache.db"
    _junk(path)
    Path(f"{path}-journal").write_bytes(b"journal")
    repair_all(path)
    assert sorted(item.name for item in tmp_path.iterdir()) == [
        "rocfft_kernel_cache.db.corrupt",
        "rocfft_kernel_cache.db.corrupt-journal",
    ]


def test_junk_of_another_name_is_left_alone(tmp_path: Path) -> None:
    """A file that is neither a database nor named as rocFFT's may be anything."""
    path = tmp_path / "thesis.txt"
    _junk(path)
    cache = opened(path)
    (checked,) = cache.leftovers()
    assert not cache.repair(checked, None).findings[0].repaired
    assert path.exists()


def test_a_database_of_others_is_left_alone(tmp_path: Path) -> None:
    """Another program's database is neither moved nor changed, whatever its mode."""
    path = database(tmp_path / "c.db", schema="CREATE TABLE bookmarks (a)", wal=True)
    before = trace(tmp_path)
    repair_all(path)
    assert trace(tmp_path) == before


def test_a_damaged_table_among_tables_of_others_is_left_alone(tmp_path: Path) -> None:
    """A file with tables of others is not moved for the sake of one called like rocFFT's."""
    path = database(tmp_path / "rocfft_kernel_cache.db", schema="CREATE TABLE cache_v1 (a)")
    execute(path, "CREATE TABLE bookmarks (a)")
    repair_all(path)
    assert kinds(file_findings(path)) == ["corrupt"]


def test_a_damaged_file_in_use_is_not_moved(tmp_path: Path) -> None:
    """A file that another program is changing stays where it is."""
    path = tmp_path / "rocfft_kernel_cache.db"
    _other_columns(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        repair_all(path)
    assert path.exists()


def test_write_ahead_mode_is_left(tmp_path: Path) -> None:
    """Repair turns write-ahead mode off and loses no row."""
    path = dead_wal(tmp_path / "c.db", [row(), row("other")])
    cache = opened(path)
    repaired = [cache.repair(checked, None) for checked in list(cache.leftovers())]
    assert [finding.repaired for one in repaired for finding in one.findings] == [True]
    del cache
    assert [item.name for item in tmp_path.iterdir()] == ["c.db"]
    assert path.read_bytes()[18:20] == b"\x01\x01"
    assert count(path) == 2


def test_write_ahead_mode_stays_while_others_have_it_open(tmp_path: Path) -> None:
    """A database that another program has open keeps its mode, and the finding stays open."""
    with closing(live_wal(tmp_path / "c.db", [row()])):
        cache = opened(tmp_path / "c.db")
        repaired = [cache.repair(checked, None) for checked in list(cache.leftovers())]
        mode = next(found for one in repaired for found in one.findings if found.kind == "leftover")
        assert not mode.repaired
        assert (tmp_path / "c.db").read_bytes()[18:20] == b"\x02\x02"


def test_the_journal_of_a_dead_writer_is_worked_in(tmp_path: Path) -> None:
    """Repair rolls the change back that its writer did not finish."""
    rows = [row(f"kernel_{number}") for number in range(300)]
    path = hot_journal(tmp_path / "c.db", rows)
    repair_all(path)
    assert [item.name for item in tmp_path.iterdir()] == ["c.db"]
    assert file_findings(path) == row_findings(path) == []
    assert answer(path, rows[7]) == code()


def test_many_rows_go_in_few_transactions(tmp_path: Path) -> None:
    """Each costs a commit to disk and a lock that programs wait for; what changed meanwhile stays."""
    path = database(tmp_path / "c.db", [row(f"k{number}") for number in range(600)])
    cache = opened(path)
    assert 2 * cache.together > 600
    planned = plan(cache.entries(), Limits(everything=True), 0)
    execute(path, "UPDATE cache_v1 SET timestamp = 7 WHERE kernel_name = 'k5'")
    before = _changes(path)
    outcomes = list(run_evict(cache, planned))
    assert _changes(path) - before == 2
    assert [one.removal.entry.program for one in outcomes if not one.removed] == ["k5"]
    assert [entry.program for entry in opened(path).scan()] == ["k5"]


def _changes(path: Path) -> int:
    """How many transactions changed a database, as its header counts them."""
    return int.from_bytes(path.read_bytes()[24:28], "big")


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_what_is_called_like_a_file_of_sqlite_and_is_none_stays(suffix: str, tmp_path: Path) -> None:
    """SQLite would remove it at the first change, so nothing is changed; it is reported with the remedy."""
    path = database(tmp_path / "rocfft_kernel_cache.db", [row()], wal=True)
    mine = Path(f"{path}{suffix}")
    mine.write_bytes(b"mine and dear to me, and longer than any header would have to be" * 4)
    cache = opened(path)
    [entry] = cache.scan()
    kept = cache.remove(entry, "--all")
    assert kept is not None and "move it elsewhere" in kept.reason
    cache.finish_removals()
    told = [finding.detail for checked in cache.leftovers() for finding in checked.findings]
    assert any("not SQLite's" in detail for detail in told)
    for checked in list(cache.leftovers()):
        cache.repair(checked, None)
    assert mine.read_bytes().startswith(b"mine and dear")
    mine.unlink()
    assert opened(path).remove(entry, "--all") is None
