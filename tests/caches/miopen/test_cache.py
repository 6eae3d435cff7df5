"""Databases made from MIOpen's schema, and the programs that have them open."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gpucache.caches import databases
from gpucache.caches.registry import of_others
from tests.caches.miopen.build import execute, put
from tests.caches.opened import only, opened

SYSTEM = of_others("miopen")


def test_asking_leaves_no_trace_beside_a_database(tmp_path: Path) -> None:
    """SQLite would make files there."""
    path = put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    cache.check(only(cache))
    cache.report(only(cache))
    assert list(path.parent.iterdir()) == [path]


def test_a_repair_takes_a_broken_kernel_out_and_leaves_the_others(tmp_path: Path) -> None:
    """MIOpen raises an error for it, and never writes that row anew."""
    path = put(tmp_path)
    execute(path, "UPDATE kern_db SET kernel_hash = 'no' WHERE id = 3")
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert cache.repair(cache.check(entry), entry).findings[0].repaired
    with closing(sqlite3.connect(path)) as database:
        assert next(database.execute("SELECT count(*) FROM kern_db")) == (2,)


def test_a_database_that_is_written_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own locks are kept to."""
    monkeypatch.setattr(databases, "BUSY_SECONDS", 0.0)
    path = put(tmp_path)
    execute(path, "UPDATE kern_db SET kernel_hash = 'no' WHERE id = 3")
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    checked = cache.check(entry)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert not cache.repair(checked, entry).findings[0].repaired


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_database_that_a_program_has_open_stays(tmp_path: Path) -> None:
    """An open database is not removed, because its program would lose later entries."""
    put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    with closing(sqlite3.connect(only(cache).path)) as program:
        program.execute("SELECT * FROM kern_db").fetchall()
        kept = cache.remove(only(cache), "--all")
        assert kept is not None and "end it first" in kept.reason
    assert cache.remove(only(cache), "--all") is None
