"""What owners keep for all entries together when entries come from elsewhere, and entries that may not."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpucache.caches.portable import PortableEntry, Restored
from gpucache.errors import FormatError
from tests.caches.intel_neo import build as intel_neo
from tests.caches.miopen import build as miopen
from tests.caches.pytools import build as pytools
from tests.contracts.examples import EXAMPLES
from tests.contracts.test_moving import _opened, _packed, scanned


def _from(name: str, folder: Path, lay: Callable[[Path], object]) -> list[PortableEntry]:
    lay(folder)
    return _packed(_opened(name, folder))


def _restored(name: str, place: Path, *entries: PortableEntry) -> list[Restored]:
    return list(_opened(name, place).restore(entries))


def test_the_sum_by_which_the_driver_evicts_grows(tmp_path: Path) -> None:
    """By the size of each entry that is written, and by none that is there."""
    entries = _from(
        "intel-neo", tmp_path / "there", lambda root: [intel_neo.put(root, one) for one in (1, 2)]
    )
    here = tmp_path / "here"
    intel_neo.put(here, 1)
    assert sorted(one.done for one in _restored("intel-neo", here, *entries)) == [False, True]
    total = int.from_bytes((here / "config.file").read_bytes(), "little")
    assert total == 2 * len(intel_neo.BINARY)


def test_rows_come_into_a_dictionary_that_is_there(tmp_path: Path) -> None:
    """A row that both have stays; a second time nothing is missing."""
    entries = _from("pytools", tmp_path / "there", pytools.put)
    here = tmp_path / "here"
    path = pytools.put(here)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM dict WHERE keyhash LIKE '%1'")
        database.execute("UPDATE dict SET key_value = ?", (b"\x80\x04K\x07.",))
    cache = _opened("pytools", here)
    names = [one.name for one in entries[0].files]
    key = entries[0].key
    assert not cache.having([key])(key, names)
    assert [(one.done, one.present) for one in _restored("pytools", here, *entries)] == [(True, False)]
    assert cache.having([key])(key, names)
    assert [(one.done, one.present) for one in _restored("pytools", here, *entries)] == [(False, True)]
    with closing(sqlite3.connect(path)) as database:
        assert len(rows := dict(database.execute("SELECT keyhash, key_value FROM dict"))) == 2
    assert rows["0" * 32] == b"\x80\x04K\x07."


def test_a_row_comes_into_a_database_of_rocfft_that_is_there(tmp_path: Path) -> None:
    """The other rows stay."""
    example = EXAMPLES["rocfft"]
    entries = _packed(_opened("rocfft", example.make(tmp_path / "there")))
    place = example.make(tmp_path / "here", 1)
    assert sorted(one.done for one in _restored("rocfft", place, *entries)) == [False, True, True]
    assert len(scanned(_opened("rocfft", place))) == len(entries)


def test_kernels_without_a_version_of_miopen_stay(tmp_path: Path) -> None:
    """Those of all versions have the same names."""
    place = miopen.put(tmp_path / "there").parent
    cache = _opened("miopen", place)
    with pytest.raises(FormatError, match="version of MIOpen"):
        [cache.pack(entry) for entry in scanned(cache)]


def test_an_entry_of_another_python_is_not_written(tmp_path: Path) -> None:
    """A directory of PyOpenCL's is one Python's; their parent has all of them."""
    entries = _packed(_opened("pyopencl", EXAMPLES["pyopencl"].make(tmp_path / "there")))
    other = tmp_path / "here" / "pyopencl-compiler-cache-v2-py3.9.1.final.0"
    (done, *_) = _restored("pyopencl", other, *entries)
    assert not done.done and not done.damaged and "another Python" in done.reason
    assert all(one.done for one in _restored("pyopencl", tmp_path / "here", *entries))
