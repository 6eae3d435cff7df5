"""Removals and repairs, under PyOpenCL's own lock."""

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches import files
from gpucache.caches.pyopencl import entries
from gpucache.caches.pyopencl.locations import LOCK
from gpucache.folders import Folder
from tests.caches.pyopencl.build import only, opened, write
from tests.unprivileged import NOBODY, as_nobody, needs_root

_MINUTE = 60


def _locked(root: Path, age_s: int) -> Path:
    lock = root / LOCK
    lock.write_bytes(b"")
    then = time.time() - age_s
    os.utime(lock, (then, then))
    return lock


def test_a_held_lock_keeps_an_entry(root: Path, key: str) -> None:
    """Nothing is removed while a program holds the lock, which stays."""
    write(root, key)
    lock = _locked(root, 30)
    cache = opened(root)
    kept = cache.remove(only(cache), "test")
    assert kept is not None
    assert "lock is held" in kept.reason
    assert (lock.exists(), len(list(cache.scan()))) == (True, 1)


def test_a_lock_left_behind_is_told_with_the_remedy(root: Path, key: str) -> None:
    """Where the lock was left behind, a removal says how to be rid of it."""
    write(root, key)
    _locked(root, 10 * _MINUTE)
    cache = opened(root)
    kept = cache.remove(only(cache), "test")
    assert kept is not None
    assert "verify --cache pyopencl --repair" in kept.reason


def test_a_foreign_file_keeps_an_entry(root: Path, key: str) -> None:
    """A directory that holds what is none of PyOpenCL's is left whole."""
    folder = write(root, key)
    (folder / "notes.txt").write_bytes(b"")
    cache = opened(root)
    kept = cache.remove(only(cache), "test")
    assert kept is not None
    assert "notes.txt" in kept.reason
    assert len(list(folder.iterdir())) == 4


def test_a_removal_that_is_stopped_takes_info_first(
    root: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyOpenCL finds an entry without it and builds it again; without its binary programs would die."""
    folder = write(root, key)
    cache = opened(root)
    entry, unlink = only(cache), Folder.unlink

    def stopped(self: Folder, name: str) -> None:
        if name in ("binary", "source.cl"):
            raise OSError(28, "No space left on device")
        unlink(self, name)

    monkeypatch.setattr(Folder, "unlink", stopped)
    assert cache.remove(entry, "test") is not None
    assert sorted(path.name for path in folder.iterdir()) == ["binary", "source.cl"]


def test_the_lock_is_taken_as_pyopencl_takes_it(root: Path) -> None:
    """While it is held the file is there, no other user gets it, and afterwards it is gone."""
    with entries.held(root, time.time_ns), pytest.raises(FileExistsError):
        os.open(root / LOCK, os.O_CREAT | os.O_WRONLY | os.O_EXCL)
    assert not (root / LOCK).exists()


def test_a_stale_lock_is_a_finding(root: Path) -> None:
    """A lock that no program can hold any more is reported with what it does to programs."""
    lock = _locked(root, 10 * _MINUTE)
    cache = opened(root)
    (checked,) = cache.leftovers()
    (finding,) = checked.findings
    assert (finding.kind, checked.entry, checked.counts) == (FindingKind.MISPLACED, str(lock), False)
    assert f"the lock {lock} was left behind" in finding.detail
    assert "waits 60 s" in finding.detail
    assert cache.repair(checked, None).findings[0].repaired
    assert not lock.exists()


def test_a_young_lock_is_told_and_left(root: Path) -> None:
    """A lock that a program may hold is named with its age and the remedy, and no repair removes it."""
    lock = _locked(root, _MINUTE)
    cache = opened(root)
    (checked,) = cache.leftovers()
    (finding,) = checked.findings
    assert (finding.kind, finding.entry) == (FindingKind.LOCKED, "lock")
    assert f"the lock {lock} was taken" in finding.detail
    assert "--repair" in finding.detail
    assert not cache.repair(checked, None).findings[0].repaired
    assert lock.exists()


def test_a_lock_that_was_taken_anew_is_not_removed(root: Path) -> None:
    """A repair that was planned for an old lock leaves the new one of another program."""
    lock = _locked(root, 10 * _MINUTE)
    cache = opened(root)
    (checked,) = cache.leftovers()
    lock.unlink()
    _locked(root, 1)
    assert not cache.repair(checked, None).findings[0].repaired
    assert lock.exists()


def test_what_is_being_written_is_no_finding(root: Path, key: str) -> None:
    """An entry without its info is not judged while the lock is held."""
    (write(root, key) / "info").write_bytes(b"")
    _locked(root, 1)
    cache = opened(root)
    checked = cache.check(only(cache))
    assert (checked.findings, checked.counts) == ((), True)
    assert "half written" in checked.notes[0]
    assert key[:12] in checked.notes[0]


def test_sound_entries_are_checked_while_the_lock_is_held(root: Path, key: str) -> None:
    """A complete entry is sound and is counted, even while the lock is held."""
    write(root, key)
    _locked(root, 1)
    cache = opened(root)
    checked = cache.check(only(cache))
    assert (checked.findings, checked.notes, checked.counts) == ((), (), True)


def test_a_broken_entry_is_repaired_by_its_removal(root: Path, key: str) -> None:
    """Also while a lock left behind is in the way."""
    (write(root, key) / "info").unlink()
    _locked(root, 10 * _MINUTE)
    cache = opened(root)
    entry = only(cache)
    checked = cache.repair(cache.check(entry), entry)
    assert [finding.repaired for finding in checked.findings] == [True]
    assert list(root.iterdir()) == []


def test_a_repair_that_is_held_up_says_why(root: Path, key: str) -> None:
    """A broken entry that cannot be removed stays a finding, with the reason."""
    (write(root, key) / "binary").write_bytes(b"")
    cache = opened(root)
    entry = only(cache)
    found = cache.check(entry)
    _locked(root, _MINUTE)
    (finding,) = cache.repair(found, entry).findings
    assert not finding.repaired
    assert "lock is held" in finding.detail


def test_what_is_called_like_the_lock_and_holds_something_stays(root: Path, key: str) -> None:
    """It stops programs as the lock does, is reported with the remedy, and no repair takes it."""
    (write(root, key) / "binary").write_bytes(b"")
    mine = _locked(root, 10 * _MINUTE)
    mine.write_bytes(b"combination 12-34-56")
    os.utime(mine, (1, 1))
    cache = opened(root)
    entry = only(cache)
    cache.repair(cache.check(entry), entry)
    (checked,) = cache.leftovers()
    assert "move it elsewhere" in cache.repair(checked, None).findings[0].detail
    kept = cache.remove(entry, "test")
    assert kept is not None and "move it elsewhere" in kept.reason
    assert mine.read_bytes() == b"combination 12-34-56"


@pytest.mark.parametrize("name", ["info", "binary"])
def test_folders_of_others_that_an_md5_names_stay(tmp_path: Path, name: str) -> None:
    """Outside a directory of PyOpenCL's name an entry is what it holds, whatever its files are called."""
    mine = tmp_path / "scans" / ("ab" * 16) / name
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"taken on Monday")
    write(tmp_path / "scans", "cd" * 16)
    cache = opened(tmp_path / "scans")
    entry = next(one for one in cache.scan() if one.key == "ab" * 16)
    assert "PyOpenCL made it" in entry.stays
    assert not any(one.repaired for one in cache.repair(cache.check(entry), entry).findings)
    assert [one.key for one in cache.scan() if cache.remove(one, "test")] == ["ab" * 16]
    assert mine.read_bytes() == b"taken on Monday"


@pytest.mark.parametrize("damaged", ["info", "source.cl", "all"])
def test_a_broken_entry_shows_whose_it_is(tmp_path: Path, key: str, damaged: str) -> None:
    """One part that reads, or nothing at all in it, is enough for an entry in a directory of any name."""
    folder = write(tmp_path / "mine", key)
    for name in ("info", "binary", "source.cl") if damaged == "all" else (damaged,):
        (folder / name).write_bytes(b"")
    cache = opened(tmp_path / "mine")
    assert cache.remove(only(cache), "test") is None


@pytest.mark.parametrize(("content", "kept"), [(b"", False), (b"mine", True)])
def test_a_file_in_the_way_goes_only_where_it_is_empty(
    root: Path, key: str, content: bytes, kept: bool
) -> None:
    """PyOpenCL makes no file there, so one that holds something is somebody else's."""
    write(root, "f" * 32)
    (root / key).write_bytes(content)
    cache = opened(root)
    (checked,) = cache.leftovers()
    assert cache.repair(checked, None).findings[0].repaired is not kept
    assert (root / key).exists() is kept


def test_a_copy_beside_the_folders_of_versions_is_no_entry(root: Path, key: str) -> None:
    """No program looks there, so somebody put it there to keep it."""
    write(root, key)
    copied = write(root.parent, key)
    cache = opened(root.parent)
    assert cache.remove(only(cache), "--all") is None
    assert (copied / "binary").exists()


@needs_root
def test_a_repair_without_the_right_to_write_says_why(key: str) -> None:
    """The finding stays, with what would let a repair fix it."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, key, data=b"\x00")
        for path in (root, *root.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
            path.chmod(0o500 if path.is_dir() else 0o400)

        def work() -> str:
            cache = opened(root)
            entry = only(cache)
            return str(cache.repair(cache.check(entry), entry).findings)

        (root / key / "info").write_bytes(b"")
        told = as_nobody(work)
        assert "cannot be removed from" in told and "fix its permissions" in told and "repaired=False" in told


def test_a_lock_is_removed_before_it_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another gpucache could take it for that of a killed one, put its own there, and lose that."""
    taken, unlink = [], Folder.unlink

    def watched(folder: Folder, name: str) -> None:
        if name == LOCK:
            fd = folder.open_file(name, flags=os.O_WRONLY)
            taken.append(files.take_lock(fd, 0))
            os.close(fd)
        unlink(folder, name)

    monkeypatch.setattr(Folder, "unlink", watched)
    with entries.held(tmp_path, time.time_ns):
        pass
    assert taken == [False] and not (tmp_path / LOCK).exists()
