"""Databases laid as pytools makes them, and what is said of those that are damaged or in use."""

import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds, only, opened
from tests.caches.pytools.build import content, cut_row, put, put_items

SYSTEM = of_others("pytools")


def test_a_dictionary_says_its_name_its_python_and_how_many_rows_it_has(tmp_path: Path) -> None:
    """Keys and values are pickles, which stay as they are."""
    put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert (entry.program, entry.fields) == ("pyopencl-invoker-cache-v0-nano", (("python", "3.11.7"),))
    assert not cache.check(entry).findings and cache.extract(entry) == content()
    assert dict(cache.report(entry).payload)["rows"] == "2"


def test_what_pyopencl_itself_stores_is_trusted(tmp_path: Path) -> None:
    """Its functions that set a kernel's arguments import struct's pack for numbers."""
    pytest.importorskip("pyopencl")
    program = (
        "import numpy as np; from pyopencl.invoker import generate_enqueue_and_set_args as generate;"
        "generate('scale', 2, 2, (None, np.dtype(np.float32)), False, False, [])"
    )
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environ.pop("PYOPENCL_NO_CACHE", None)
    subprocess.run([sys.executable, "-c", program], env=environ, check=True)
    cache = opened(SYSTEM, tmp_path / "pytools")
    stored = [one for one in cache.scan() if one.program.startswith("pyopencl-invoker-cache")]
    assert stored and not any(cache.check(one).findings for one in stored)


def test_a_dictionary_of_2024_or_2025_is_named_without_a_dash(tmp_path: Path) -> None:
    """Its name and its Python are distinguished nevertheless, and one byte is an empty database to SQLite."""
    path = put(tmp_path, dash="")
    entry = only(cache := opened(SYSTEM, tmp_path))
    assert (entry.program, entry.fields) == ("pyopencl-invoker-cache-v0-nano", (("python", "3.11.7"),))
    path.write_bytes(b"S")
    assert not cache.check(only(cache)).findings


def test_the_items_of_older_versions_are_checked_and_removed(tmp_path: Path) -> None:
    """Up to 2024.1.2 an item is a directory with two pickles; a killed program's lock stops others."""
    folder = put_items(tmp_path)
    lock = folder.parents[2] / f"3f46cd{folder.name}.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert (entry.program, entry.fields, entry.artifact_kind) == (
        "code-v3",
        (("python", "3.11.7"),),
        "pickle",
    )
    assert not cache.check(entry).findings and pickle.loads(cache.extract(entry)) == "code"
    (left,) = cache.leftovers()
    assert kinds(left) == [FindingKind.LEFTOVER] and cache.repair(left, None).findings[0].repaired
    (folder / "contents").write_bytes((folder / "contents").read_bytes()[:-1])
    checked = cache.check(only(cache))
    assert kinds(checked) == [FindingKind.TRUNCATED] and "at every start" in checked.findings[0].detail
    (folder / "contents").unlink()
    assert kinds(cache.check(only(cache))) == [FindingKind.TRUNCATED]
    assert cache.remove(only(cache), "--all") is None and not list(tmp_path.iterdir())


def test_a_dictionary_of_a_python_that_is_not_here_is_out_of_reach(tmp_path: Path) -> None:
    """No other Python opens its file."""
    put(tmp_path, python="3.99.1")
    assert only(opened(SYSTEM, tmp_path)).gone == "Python 3.99.1"


def _garble(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096] + b"?" * 100 + path.read_bytes()[4196:])


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (lambda path: path.write_bytes(b"garbage"), FindingKind.MISLABELLED, "not an SQLite database"),
        (lambda path: os.truncate(path, 5000), FindingKind.CORRUPT, "malformed"),
        (lambda path: os.truncate(path, path.stat().st_size - 1), FindingKind.TRUNCATED, "last pages"),
        (_garble, FindingKind.CORRUPT, "Page 2"),
        (cut_row, FindingKind.TRUNCATED, "a row ends in the middle"),
    ],
)
def test_damage_is_reported_with_what_comes_of_it_and_repaired(
    damage: Callable[[Path], object], kind: FindingKind, words: str, tmp_path: Path
) -> None:
    """The file goes, so that pytools makes it anew; an empty one it fills."""
    path, other = put(tmp_path), put(tmp_path, 1)
    damage(path)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = (one for one in cache.scan() if one.path == str(path))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired and not path.exists()
    other.write_bytes(b"")
    assert not cache.check(only(cache)).findings


def test_a_database_with_a_log_is_read_with_it_and_goes_with_it(tmp_path: Path) -> None:
    """The content of the log is read from a copy; a log alone is thrown away."""
    path = put(tmp_path)
    with closing(sqlite3.connect(path)) as program:
        program.execute("PRAGMA journal_mode = 'WAL'")
        with program:
            program.execute("INSERT INTO dict VALUES ('2', ?)", (pickle.dumps(2),))
        copies = [Path(shutil.copy(one, f"{one}.kept")) for one in list(tmp_path.iterdir())]
    for copy in copies:
        copy.replace(copy.with_suffix(""))
    cache = opened(SYSTEM, tmp_path)
    assert not cache.check(only(cache)).findings
    assert dict(cache.report(only(cache)).payload)["rows"] == "3"
    assert cache.remove(only(cache), "--all") is None and not list(tmp_path.iterdir())
    Path(f"{path}-wal").write_bytes(b"\0")
    assert kinds(cache.check(only(cache))) == [FindingKind.ORPHAN]


def test_a_view_in_the_place_of_the_table_is_not_read(tmp_path: Path) -> None:
    """It could have rows without end."""
    path = put(tmp_path)
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n AS key_value FROM r"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE dict")
        database.execute(f"CREATE VIEW dict AS {endless}")
    cache = opened(SYSTEM, tmp_path)
    assert kinds(cache.check(only(cache))) == [FindingKind.MISLABELLED]
    assert dict(cache.report(only(cache)).payload)["rows"] == "0"


def test_a_dictionary_without_its_table_is_made_anew_by_its_owner(tmp_path: Path) -> None:
    """pytools makes the table where it is missing."""
    with closing(sqlite3.connect(put(tmp_path))) as database, database:
        database.execute("ALTER TABLE dict RENAME TO other")
    cache = opened(SYSTEM, tmp_path)
    assert kinds(cache.check(only(cache))) == [FindingKind.ORPHAN]


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_dictionary_that_a_program_has_open_stays(tmp_path: Path) -> None:
    """Its next store would fail; once the program ended the file goes."""
    path = put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    with closing(sqlite3.connect(path)) as program:
        program.execute("SELECT * FROM dict")
        kept = cache.remove(only(cache), "--all")
        assert kept is not None and "end it first" in kept.reason
        program.execute("DELETE FROM dict")
    assert cache.remove(only(cache), "--all") is None and not path.exists()


def test_the_reason_is_told_below_a_path_of_any_length(tmp_path: Path) -> None:
    """SQLite's own words, which come after the path, are what people need."""
    path = put(tmp_path / ("a" * 120) / ("b" * 120))
    path.write_bytes(path.read_bytes()[:100] + bytes(10) + path.read_bytes()[110:])
    cache = opened(SYSTEM, path.parent)
    (finding,) = cache.check(only(cache)).findings
    assert "database disk image is malformed" in finding.detail
