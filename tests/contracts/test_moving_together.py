"""Files that owners keep for all entries together, and entries that may not be restored."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from gpucache.caches.portable import PortableEntry, Restored
from gpucache.caches.taichi import TaichiIndex
from tests.caches.pytools import build as pytools
from tests.caches.sycl import build as sycl
from tests.contracts.examples import EXAMPLES, open_example
from tests.contracts.test_moving import _packed


def _from(name: str, folder: Path, lay: Callable[[Path], object]) -> list[PortableEntry]:
    lay(folder)
    return _packed(open_example(name, folder))


def _restored(name: str, place: Path, *entries: PortableEntry) -> list[Restored]:
    return list(open_example(name, place).restore(entries))


def test_rows_come_into_a_dictionary_that_is_there(tmp_path: Path) -> None:
    """A common row stays; a second time nothing is missing."""
    entries = _from("pytools", tmp_path / "there", pytools.put)
    here = tmp_path / "here"
    path = pytools.put(here)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM dict WHERE keyhash LIKE '%1'")
        database.execute("UPDATE dict SET key_value = ?", (b"\x80\x04K\x07.",))
    cache = open_example("pytools", here)
    names = [one.name for one in entries[0].files]
    key = entries[0].key
    assert not cache.having([key])(key, names)
    assert [(one.done, one.present) for one in _restored("pytools", here, *entries)] == [(True, False)]
    assert cache.having([key])(key, names)
    assert [(one.done, one.present) for one in _restored("pytools", here, *entries)] == [(False, True)]
    with closing(sqlite3.connect(path)) as database:
        assert len(rows := dict(database.execute("SELECT keyhash, key_value FROM dict"))) == 2
    assert rows["0" * 32] == b"\x80\x04K\x07."


def test_an_entry_of_another_python_is_not_written(tmp_path: Path) -> None:
    """A directory of PyOpenCL's is one Python's; their parent has all of them."""
    entries = _packed(open_example("pyopencl", EXAMPLES["pyopencl"].make(tmp_path / "there")))
    other = tmp_path / "here" / "pyopencl-compiler-cache-v2-py3.9.1.final.0"
    (done, *_) = _restored("pyopencl", other, *entries)
    assert not done.done and not done.damaged and "another Python" in done.reason
    assert all(one.done for one in _restored("pyopencl", tmp_path / "here", *entries))
    own = tmp_path / "own" / entries[0].files[0].name.partition("/")[0]
    assert all(one.done for one in _restored("pyopencl", own, *entries))
    assert {one.name for one in own.iterdir()} == {one.key for one in entries}


def test_the_total_by_which_libsycl_evicts_grows_and_each_entry_has_a_time(tmp_path: Path) -> None:
    """Only if it evicts, which the file of the total shows."""
    made = [sycl.Made(image=sycl.spirv(f"kernel_{number}")) for number in range(2)]
    entries = _from("sycl", tmp_path / "there", lambda root: [sycl.put(root, one) for one in made])
    here = tmp_path / "here"
    here.mkdir()
    (here / "cache_size.txt").write_text("7", encoding="ascii")
    assert all(one.done for one in _restored("sycl", here, *entries))
    total = sum(len(file.data) for one in entries for file in one.files)
    assert (here / "cache_size.txt").read_text(encoding="ascii") == str(7 + total)
    assert len(list(here.rglob("0_access_time.txt"))) == len(entries)
    assert {one.files for one in _packed(open_example("sycl", here))} == {one.files for one in entries}


def test_an_index_with_rows_of_others_is_refused(tmp_path: Path) -> None:
    """Taichi compiles a kernel at every start if it has a row and no file."""
    first, second, *_ = _packed(open_example("taichi", EXAMPLES["taichi"].make(tmp_path / "there")))
    rows = [TaichiIndex.read(one.files[-1].data) for one in (first, second)]
    both = TaichiIndex(rows[0].version, {**rows[0].rows, **rows[1].rows}).written()
    tic, index = first.files
    changed = first._replace(files=(tic, index._replace(data=both)))
    (done,) = _restored("taichi", tmp_path / "here", changed)
    assert done.damaged and not list((tmp_path / "here").iterdir())
