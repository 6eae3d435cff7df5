"""Databases made from MIOpen's schema, and what is said of those that are broken."""

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.miopen.build import NAMES, content, execute, put
from tests.caches.opened import kinds, only, opened

SYSTEM = of_others("miopen")

_RECORD = b"1000-13-13-1x1-NCHW-FP16-B=ConvBinWinogradRxSf3x2:0.139,0,Algo;GemmBwd1x1_stride1:0.05,0,Algo\n"


def test_a_database_says_its_version_gpu_and_kernels(tmp_path: Path) -> None:
    """Names and options are all that a kernel is found by, so they are told."""
    put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert (entry.program, entry.target, entry.artifact_kind) == ("gfx90a6e", "hip:gfx90a", "kernel database")
    assert entry.toolchain == (("MIOpen", "3.2.0.0"),)
    assert not cache.check(entry).findings and cache.extract(entry) == content()
    told = dict(cache.report(entry).payload)
    assert told["kernels told"] == "3" and told[NAMES[0]] == "-DN=0 -mcpu=gfx90a"


def test_asking_leaves_no_trace_beside_a_database(tmp_path: Path) -> None:
    """SQLite would make files there."""
    path = put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    cache.check(only(cache))
    cache.report(only(cache))
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE kern_db SET kernel_hash = 'no' WHERE id = 3", "small.o is not what its MD5 says"),
        ("UPDATE kern_db SET kernel_blob = x'4242' WHERE id = 1", f"{NAMES[0]} does not unpack"),
        ("UPDATE kern_db SET uncompressed_size = 7 WHERE id = 1", f"{NAMES[0]} is not what its MD5 says"),
        ("UPDATE kern_db SET uncompressed_size = -7 WHERE id = 1", f"{NAMES[0]} is not what its MD5 says"),
        ("UPDATE kern_db SET kernel_blob = 'text' WHERE id = 3", "small.o does not unpack"),
    ],
)
def test_a_repair_takes_a_broken_kernel_out_and_leaves_the_others(
    statement: str, words: str, tmp_path: Path
) -> None:
    """MIOpen raises an error for it, and never writes that row anew."""
    path = put(tmp_path)
    execute(path, statement)
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.CORRUPT] and words in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired
    assert not cache.check(only(cache)).findings
    with closing(sqlite3.connect(path)) as database:
        assert next(database.execute("SELECT count(*) FROM kern_db")) == (2,)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def _no_database(path: Path) -> None:
    path.write_bytes(b"garbage")


def _page_lost(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (_cut, FindingKind.TRUNCATED),
        (_no_database, FindingKind.MISLABELLED),
        (_page_lost, FindingKind.CORRUPT),
    ],
)
def test_a_database_that_does_not_read_is_removed(
    damage: Callable[[Path], None], kind: FindingKind, tmp_path: Path
) -> None:
    """MIOpen makes it anew; those of other versions stay."""
    other, path = put(tmp_path, 1), put(tmp_path)
    damage(path)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = (one for one in cache.scan() if one.path == str(path))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and cache.repair(checked, entry).findings[0].repaired
    assert not path.exists() and other.exists()


def test_what_may_be_somebody_elses_is_not_repaired(tmp_path: Path) -> None:
    """A file that is only called as MIOpen's are stays, as it does when everything is evicted."""
    path = tmp_path / "gfx900.ukdb"
    path.write_bytes(b"my own notes")
    path.chmod(0o600)
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    found = cache.repair(cache.check(entry), entry).findings[0]
    assert not found.repaired and "may be somebody else's and stays" in found.detail
    assert path.exists()


def test_a_link_in_the_place_of_a_database_is_removed(tmp_path: Path) -> None:
    """What it names stays, and no lease of that is asked for."""
    path = put(tmp_path)
    path.rename(mine := tmp_path / "mine")
    path.symlink_to(mine)
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert cache.repair(cache.check(entry), entry).findings[0].repaired
    assert mine.exists() and not path.is_symlink()


def test_a_view_in_the_place_of_the_table_is_not_read(tmp_path: Path) -> None:
    """It can have rows without end."""
    path = put(tmp_path)
    execute(path, "DROP TABLE kern_db")
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n"
    execute(path, f"CREATE VIEW kern_db AS {rows}")
    cache = opened(SYSTEM, tmp_path)
    (finding,) = cache.check(only(cache)).findings
    assert finding.kind is FindingKind.MISLABELLED and "no table of kernels" in finding.detail
    assert ("kernels told", "0") in cache.report(only(cache)).payload


def test_a_new_database_has_no_kernels(tmp_path: Path) -> None:
    """An empty file is what SQLite begins with."""
    put(tmp_path).write_bytes(b"")
    cache = opened(SYSTEM, tmp_path)
    assert not cache.check(only(cache)).findings
    assert ("kernels told", "0") in cache.report(only(cache)).payload


def test_a_log_without_its_database_is_no_database(tmp_path: Path) -> None:
    """It is told, and nobody opens it as one."""
    path = put(tmp_path)
    path.rename(f"{path}-wal")
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.ORPHAN] and cache.repair(checked, entry) == checked


def test_a_database_that_is_written_stays_as_it_is(tmp_path: Path) -> None:
    """SQLite's own locks are kept to."""
    path = put(tmp_path)
    execute(path, "UPDATE kern_db SET kernel_hash = 'no' WHERE id = 3")
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    checked = cache.check(entry)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert not cache.repair(checked, entry).findings[0].repaired


def test_a_variable_names_a_folder_without_versions(tmp_path: Path) -> None:
    """A removal takes the database, and not the folder."""
    put(tmp_path).rename(tmp_path / "gfx90a6e.ukdb")
    (tmp_path / "3.2.0.0").rmdir()
    cache = opened(SYSTEM, tmp_path)
    assert cache.remove(only(cache), "test") is None and not list(tmp_path.iterdir())


def test_what_it_measured_lies_beside_its_settings(tmp_path: Path) -> None:
    """In a second place, which is shown where it is there; lines that MIOpen skips are told."""
    (folder := tmp_path / ".config" / "miopen").mkdir(parents=True)
    path = folder / "gfx90a6e.HIP.3_2_0_0.ufdb.txt"
    path.write_bytes(_RECORD)
    locations = SYSTEM.locations({"HOME": str(tmp_path)})
    assert [one.root for one in locations] == [str(tmp_path / ".cache" / "miopen"), str(folder)]
    cache = opened(SYSTEM, folder)
    entry = only(cache)
    assert entry.artifact_kind == "measurements" and not cache.check(entry).findings
    path.write_bytes(_RECORD + b"broken\n")
    checked = cache.check(only(cache))
    assert kinds(checked) == [FindingKind.CORRUPT] and "line 2" in checked.findings[0].detail
    assert "take such lines out" in cache.repair(checked, only(cache)).findings[0].detail and path.exists()


def test_a_line_is_read_in_the_time_that_its_length_takes(tmp_path: Path) -> None:
    """One that could be parted in many ways is no record either."""
    path = tmp_path / "gfx90a6e.ufdb.txt"
    path.write_bytes(b"a=" + b"b:" * 500 + b";;\n")
    cache = opened(SYSTEM, tmp_path)
    assert kinds(cache.check(only(cache)))[-1] is FindingKind.CORRUPT


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_database_that_a_program_has_open_stays(tmp_path: Path) -> None:
    """What it stored from then on would be lost."""
    put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    with closing(sqlite3.connect(only(cache).path)) as program:
        program.execute("SELECT * FROM kern_db").fetchall()
        kept = cache.remove(only(cache), "--all")
        assert kept is not None and "end it first" in kept.reason
    assert cache.remove(only(cache), "--all") is None
