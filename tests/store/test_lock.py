"""One lock per key."""

from pathlib import Path

import pytest

from gpucache.folders import Folder
from gpucache.model import CacheKey
from gpucache.store.directory import DirectoryStore
from tests.store.conftest import build_entry, left


def test_lock_files_do_not_accumulate(root: Path, store: DirectoryStore) -> None:
    """Every lock's file is gone when its holder lets go."""
    for number in range(20):
        with store.single_flight(CacheKey(f"{number:064x}"), 10) as held:
            assert held and len(left(root)) == 1
    assert left(root) == []


def test_lock_excludes_within_a_process(store: DirectoryStore) -> None:
    """A process that cannot have a lock in time goes on without it; other keys are free."""
    key, other = build_entry("a").key, build_entry("b").key
    with (
        store.single_flight(key, 10),
        store.single_flight(key, 0) as second,
        store.single_flight(other, 0) as free,
    ):
        assert (second, free) == (False, True)
    with store.single_flight(key, 0) as again:
        assert again


def test_lock_of_a_removed_file_is_no_lock(
    root: Path, store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locking a file that its holder has just removed is tried again, so that two never hold one key."""
    fcntl = pytest.importorskip("fcntl")
    real, key = fcntl.flock, build_entry().key

    def let_go_meanwhile(fd: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        (root / "v1" / f"{key}.lock").unlink()
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", let_go_meanwhile)
    with store.single_flight(key, 60) as first, store.single_flight(key, 0) as second:
        assert (first, second) == (True, False)


def test_lock_that_cannot_be_made_is_not_waited_for(tmp_path: Path) -> None:
    """A read-only store, or a root that cannot be used, gives no lock and no error."""
    (tmp_path / "file").write_text("")
    for store in (
        DirectoryStore(tmp_path / "file", writable=True),
        DirectoryStore(tmp_path / "none", writable=False),
    ):
        with store.single_flight(build_entry().key, 3600) as held:
            assert not held


def test_a_lock_is_held_until_its_file_is_gone(
    root: Path, store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Released first, another process could lock the file, and a third one a new file of that name."""
    fcntl = pytest.importorskip("fcntl")
    real, taken = Folder.unlink, list[bool]()

    def unlink(folder: Folder, name: str) -> None:
        with (root / "v1" / name).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                taken.append(True)
            else:
                taken.append(False)
        real(folder, name)

    monkeypatch.setattr(Folder, "unlink", unlink)
    with store.single_flight(build_entry().key, 0) as held:
        assert held
    assert taken == [True]
