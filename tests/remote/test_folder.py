"""A store in a directory: its owner, and the files that killed writers leave in it."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from gpucache.errors import RemoteError
from gpucache.remote.objects import Limits, open_objects
from tests.remote.test_objects import ONE

_DAY_NS = 24 * 3600 * 10**9
pytestmark = pytest.mark.skipif(os.name != "posix", reason="speaks of POSIX modes")


def test_what_killed_writers_left_is_removed_after_an_hour(tmp_path: Path) -> None:
    """The first write of a process removes them, by the file system's clock, and nothing else."""
    list(open_objects(str(tmp_path)).create([("a/b", b"1")]))
    old, young = (tmp_path / "tmp" / f"{number}-{'ab' * 16}" for number in (1, 2))
    stranger = tmp_path / "tmp" / "notes.txt"
    for path in (old, young, stranger):
        path.write_bytes(b"x")
    now_ns = young.stat().st_mtime_ns
    for path in (old, stranger):
        os.utime(path, ns=(now_ns - _DAY_NS, now_ns - _DAY_NS))
    store = open_objects(str(tmp_path))
    assert [one.name for one in store.listed("")] == ["a/b"]
    list(store.create([("a/c", b"2")]))
    assert sorted(path.name for path in (tmp_path / "tmp").iterdir()) == sorted([young.name, "notes.txt"])


def test_a_link_in_place_of_the_temporary_directory_is_not_followed(tmp_path: Path) -> None:
    """Nothing behind it is removed, however old and however named."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    precious = elsewhere / f"1-{'ab' * 16}"
    precious.write_bytes(b"x")
    os.utime(precious, ns=(0, 0))
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "tmp").symlink_to(elsewhere)
    with pytest.raises(RemoteError, match="cannot be written"):
        list(open_objects(str(tmp_path / "store")).create([("a", b"1")]))
    assert list(elsewhere.iterdir()) == [precious]


@pytest.mark.parametrize("name", ["blobs", "catalogues", "entries", "marks"])
def test_a_link_in_a_store_is_not_followed(tmp_path: Path, name: str) -> None:
    """Nothing behind it is listed, read, removed or written."""
    store = open_objects(str(tmp_path / "store"))
    list(store.create([("index", b"")]))
    elsewhere = tmp_path / "elsewhere" / "ab"
    elsewhere.mkdir(parents=True)
    (elsewhere / ("ab" * 32)).write_bytes(b"precious")
    (tmp_path / "store" / name).symlink_to(tmp_path / "elsewhere")
    there = f"{name}/ab/{'ab' * 32}"
    assert dict(store.read([there], 100)) == {there: None}
    assert [one.name for one in store.listed("")] == ["index"]
    if name == "blobs":
        with pytest.raises(RemoteError):
            store.remove([ONE])
    with pytest.raises(RemoteError):
        list(store.create([(there[:-1], b"1")]))
    with pytest.raises(RemoteError, match=f"{name} is not a directory.*move that"):
        list(store.listed(f"{name}/"))
    assert [path.read_bytes() for path in elsewhere.iterdir()] == [b"precious"]


def test_directories_in_directories_are_not_followed_without_end(tmp_path: Path) -> None:
    """A listing has one open directory for each, and a call of Python's."""
    store = open_objects(str(tmp_path))
    list(store.create([("blobs/aa/a", b"1")]))
    at = os.open(tmp_path / "blobs", os.O_RDONLY)
    try:
        for _ in range(1100):
            os.mkdir("a", dir_fd=at)
            inner = os.open("a", os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = inner
        assert [one.name for one in store.listed("")] == ["blobs/aa/a"]
    finally:
        os.close(at)
        subprocess.run(["rm", "-r", tmp_path / "blobs"], check=True)  # too deep for Python's own removal


@pytest.mark.parametrize(("shared", "modes"), [(False, {0o700, 0o600}), (True, {0o755, 0o644})])
def test_other_users_may_read_a_store_that_was_made_for_them(
    tmp_path: Path, shared: bool, modes: set[int]
) -> None:
    """Whatever the umask; later pushes keep that."""
    place = str(tmp_path / "store")
    list(open_objects(place, Limits(shared=shared)).create([("catalogues/a", b"1")]))
    list(open_objects(place).create([("entries/ab/a", b"1"), ("index", b"1")]))
    found = [tmp_path / "store", *(tmp_path / "store").rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == modes


def test_an_object_is_written_on_a_full_disk_whole_or_not_at_all(tmp_path: Path) -> None:
    """The error is one sentence, and no file blocks the next try."""
    from tests.contracts.test_moving_attacks import mounted

    with mounted("size=64k,mode=755") as folder:
        store = open_objects(str(folder / "store"))
        with pytest.raises(RemoteError, match="cannot be written"):
            list(store.create([("blobs/aa/a", os.urandom(100_000))]))
        assert not [path for path in folder.rglob("*") if path.is_file()]
        assert dict(store.create([("blobs/aa/a", b"1")])) == {"blobs/aa/a": True}
    shutil.rmtree(tmp_path)
