"""Places that are not caches: no verb removes anything in them."""

import hashlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Run

_OLD = 1_600_000_000


def _home(place: Path) -> None:
    (place / ".ssh").mkdir(parents=True)
    (place / ".ssh" / "id").write_text("key")
    (place / "thesis" / "ch1").mkdir(parents=True)
    (place / "thesis" / "ch1" / "a.tex").write_text("text")


def _links(place: Path) -> None:
    (place / "usr" / "bin").mkdir(parents=True)
    (place / "bin").symlink_to("usr/bin")
    (place / "photos").symlink_to("/mnt")


def _shards(place: Path) -> None:
    for shard in "012":
        folder = place / shard / "1" / "2" / "3"
        folder.mkdir(parents=True)
        (folder / "0.bin").write_text("data")
        (folder / "1.bin").write_text("data")


def _project(place: Path) -> None:
    (place / "entries" / "2024").mkdir(parents=True)
    (place / "entries" / "2024" / "jan.txt").write_text("january")
    (place / "tmp").mkdir()
    (place / "tmp" / "keep.txt").write_text("kept")


def _temporary(place: Path) -> None:
    (place / "tempdir_of_thesis").mkdir(parents=True)
    (place / "tempdir_of_thesis" / "a").write_text("text")
    (place / "tempfile_list.txt").write_text("list")


def _blobs(place: Path) -> None:
    place.mkdir()
    for number in range(3):
        (place / hashlib.md5(bytes([number]), usedforsecurity=False).hexdigest()).write_text("blob")


def _database(place: Path) -> None:
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES (zeroblob(20000))")
    data = bytearray(place.read_bytes())
    data[4096:8192] = b"z" * 4096
    place.write_bytes(data)


_SYSTEMS = ("sycl", "pocl", "pyopencl", "cuda.core", "cuda")
_CASES = [
    *((name, make) for name in _SYSTEMS for make in (_home, _links, _shards, _project, _temporary, _blobs)),
    ("rocfft", _database),
    ("futhark", _database),
]


@pytest.mark.parametrize(("name", "make"), _CASES)
def test_nothing_goes_from_a_place_that_is_no_cache(
    run: Run, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    """Neither repair nor an eviction of everything touches foreign files."""
    place = tmp_path / "place.sqlite"
    make(place)
    for folder, folders, files in os.walk(tmp_path):
        for one in (*folders, *files):
            os.utime(Path(folder, one), (_OLD, _OLD), follow_symlinks=False)
    before = _held(tmp_path)
    run("verify", "--repair", "--cache", f"{name}:{place}")
    run("evict", "--all", "--yes", "--cache", f"{name}:{place}")
    assert _held(tmp_path) == before


def _held(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_symlink() or path.is_file()}
