"""Data remembered between processes: intact or not at all, bounded, private, and never a failure."""

import os
import stat
from pathlib import Path

import pytest

from gpucache.engine.stores import Stores
from gpucache.keys import digest
from gpucache.store import layout
from gpucache.store.bounded_folder import BoundedFolder, Bounds
from gpucache.store.directory import DirectoryStore
from gpucache.store.records import UNPACKED_BYTES_CAP
from gpucache.store.root_folder import RECENCY_NS, RootFolder

_NAME = digest(b"a closure")
_DATA = b"[1, 2, 3] " * 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache/v1/records.row"


def test_what_is_remembered_is_recalled(store: DirectoryStore, path: Path) -> None:
    """The data comes back in another process, is replaced by newer data, and only its owner can read it."""
    for data in (_DATA, b""):
        store.remember(_NAME, data)
        assert DirectoryStore(store.root, writable=False).recall(_NAME) == data
    assert [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent)] == [0o600, 0o700]
    assert store.recall(digest(b"another")) is None


def test_every_damage_is_seen(store: DirectoryStore, path: Path) -> None:
    """After a changed byte, a cut or an added byte nothing else than the data is recalled."""
    store.remember(_NAME, _DATA)
    whole = path.read_bytes()
    flipped = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for damaged in (*flipped, *(whole[:size] for size in range(len(whole))), whole + b"\0"):
        path.write_bytes(damaged)
        assert store.recall(_NAME) in (None, _DATA)
    path.write_bytes(whole)
    assert store.recall(_NAME) == _DATA


def test_a_file_that_unpacks_without_end_is_nothing(store: DirectoryStore, path: Path) -> None:
    """No more is unpacked than may be kept, whatever the file would expand to."""
    store.remember(_NAME, bytes(UNPACKED_BYTES_CAP))
    assert store.recall(_NAME) == bytes(UNPACKED_BYTES_CAP)
    (path.parent / "rows" / f"{_NAME}.memo").unlink()
    store.remember(_NAME, bytes(UNPACKED_BYTES_CAP + 1))
    assert store.recall(_NAME) is None


def test_a_file_of_somebody_else_is_nothing(store: DirectoryStore, path: Path) -> None:
    """Files that others may write, and links, are ignored."""
    store.remember(_NAME, _DATA)
    path.chmod(0o666)
    assert store.recall(_NAME) is None
    path.chmod(0o600)
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))
    assert store.recall(_NAME) is None


def test_nothing_is_remembered_where_nothing_may_be_written(tmp_path: Path) -> None:
    """A read-only cache, or a place without directories, loses only the memo."""
    (tmp_path / "file").write_bytes(b"")
    for place, writable in (("no", False), ("file", True)):
        store = DirectoryStore(tmp_path / place, writable=writable)
        store.remember(_NAME, _DATA)
        assert store.recall(_NAME) is None
    assert not (tmp_path / "no").exists()


def test_any_root_recalls_and_the_own_one_remembers(tmp_path: Path) -> None:
    """A system root's memo is used; a disabled cache neither reads nor writes any."""
    user, system = (DirectoryStore(tmp_path / name, writable=True) for name in ("user", "system"))
    system.remember(_NAME, _DATA)
    stores = Stores(user=user, systems=(DirectoryStore(system.root, writable=False),))
    assert stores.recall(_NAME) == _DATA
    stores.remember(_NAME, b"newer")
    assert (user.recall(_NAME), stores.recall(_NAME), system.recall(_NAME)) == (b"newer", b"newer", _DATA)
    for off in (Stores(user=user, disabled=True), Stores(user=user, read_only=True)):
        off.remember(_NAME, b"newest")
    assert Stores(user=user, disabled=True).recall(_NAME) is None
    assert user.recall(_NAME) == b"newer"


def test_a_folder_is_bounded_and_what_is_used_stays(tmp_path: Path) -> None:
    """The least recently used files are replaced by new ones, by number and by bytes; the rest stays."""
    bounded = BoundedFolder(RootFolder(tmp_path / "cache"), layout.MISSED, ".json", Bounds(3, 10, 20))
    names = [digest(bytes([number])) for number in range(5)]
    folder = tmp_path / "cache/v1/missed"
    for number, name in enumerate(names[:3]):
        assert bounded.put(name, b"12345")
        os.utime(folder / f"{name}.json", ns=(RECENCY_NS * number, RECENCY_NS * number))
    (folder / "note.txt").write_text("mine", encoding="ascii")
    assert bounded.get(names[0], use=True) == b"12345"
    bounded.put(names[3], b"12345")
    assert {name for name, _ in bounded.all()} == {names[0], names[2], names[3]}
    bounded.put(names[4], b"1234567890")
    assert names[4] in {name for name, _ in bounded.all()}
    for name in names[:3]:
        bounded.put(name, b"12345678")
    assert 0 < sum(len(data) for _, data in bounded.all()) <= 20
    assert not bounded.put(names[1], b"12345678901")
    assert (folder / "note.txt").exists()


def test_small_memos_are_in_one_file_and_of_many_the_oldest_are_not(
    store: DirectoryStore, path: Path
) -> None:
    """None is lost, and each is replaced wherever it is."""
    names = [digest(bytes([number])) for number in range(40)]
    for name in names:
        store.remember(name, name.encode())
    own = {one.stem for one in (path.parent / "rows").iterdir()}
    assert own == {*names[:24]}
    assert [store.recall(name) for name in names] == [name.encode() for name in names]
    for name, data in ((names[0], b"newer"), (names[-1], os.urandom(8192))):
        store.remember(name, data)
        assert store.recall(name) == data
