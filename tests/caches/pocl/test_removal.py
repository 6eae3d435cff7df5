"""Removing programs from a PoCL cache that others use without locks."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpucache.answers.evict import Kept
from gpucache.caches.pocl import Pocl
from gpucache.folders import Folder
from tests.caches.pocl import build


def test_a_program_is_removed_with_its_folder_of_two_letters(tmp_path: Path) -> None:
    """Nothing is left of the only program once removals are finished."""
    build.program(tmp_path)
    cache = build.cache(tmp_path)
    [entry] = cache.scan()
    assert cache.remove(entry, "test") is None
    assert cache.finish_removals() == ()
    assert list(tmp_path.iterdir()) == []


def test_finishing_keeps_what_still_holds_programs(tmp_path: Path) -> None:
    """A directory of two letters stays as long as another program is in it."""
    for last in (1, 2):
        build.program(tmp_path, digest=bytes([*[7] * 19, last]))
    cache = build.cache(tmp_path)
    first, second = cache.scan()
    assert cache.remove(first, "test") is None
    cache.finish_removals()
    assert [entry.key for entry in cache.scan()] == [second.key]


def test_a_program_that_was_used_since_the_scan_stays(tmp_path: Path) -> None:
    """PoCL's mark of use has moved, so somebody wants it."""
    folder = build.program(tmp_path)
    cache = build.cache(tmp_path)
    [entry] = cache.scan()
    used = build.NOW - 2 * build.MINUTE
    os.utime(folder / "last_accessed", ns=(used, used))
    assert cache.remove(entry, "test") == Kept()
    assert folder.exists()


@pytest.mark.parametrize(("age_ns", "stays"), [(59 * 10**9, True), (61 * 10**9, False)])
def test_a_program_of_this_minute_stays(tmp_path: Path, age_ns: int, stays: bool) -> None:
    """A program that was used within the last minute is kept, with the reason."""
    build.program(tmp_path, at_ns=build.NOW - age_ns)
    cache = build.cache(tmp_path)
    [entry] = cache.scan()
    kept = cache.remove(entry, "test")
    assert (kept is not None) is stays
    assert kept is None or "try again in a minute" in kept.reason


@pytest.mark.parametrize("name", ["diary.txt", "vecadd/diary.txt"])
def test_a_program_with_a_users_file_in_its_folder_stays(name: str, tmp_path: Path) -> None:
    """The first of them is named, also by the scan, and no repair removes it either."""
    folder = build.program(tmp_path)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("dear diary")
    (folder / "program.bc").write_bytes(b"")
    build.age(tmp_path, build.NOW - build.DAY)
    cache = build.cache(tmp_path)
    [entry] = cache.scan()
    kept = cache.remove(entry, "--all")
    assert kept is not None and name in kept.reason and kept.reason == entry.stays
    assert not any(one.repaired for one in cache.repair(cache.check(entry), entry).findings)
    assert (folder / name).read_text() == "dear diary"


def test_a_link_in_the_place_of_a_program_is_not_followed(tmp_path: Path) -> None:
    """A directory that became a link since the scan is kept, and what it names is untouched."""
    root = tmp_path / "root"
    folder = build.program(root)
    cache = build.cache(root)
    [entry] = cache.scan()
    moved = folder.rename(tmp_path / "moved")
    folder.symlink_to(moved)
    kept = cache.remove(entry, "test")
    assert kept is not None
    assert (moved / "program.bc").exists()


def test_what_came_after_the_look_puts_the_program_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's file that appears just before the rename is found before anything is deleted."""
    folder = build.program(tmp_path)
    cache = build.cache(tmp_path)
    [entry] = cache.scan()
    plain = Pocl._take_out

    def late(self: Pocl, parts: Sequence[str]) -> str:
        (folder / "diary.txt").write_text("dear diary")
        return plain(self, parts)

    monkeypatch.setattr(Pocl, "_take_out", late)
    kept = cache.remove(entry, "test")
    assert kept is not None and "diary.txt" in kept.reason
    assert (folder / "program.bc").exists() and len(list(tmp_path.iterdir())) == 1


def _refuse(*_: object) -> None:
    raise OSError(errno.EIO, "no disk")


def test_others_see_a_program_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is renamed first; where deleting ends there, the rest is a leftover and no entry."""
    build.program(tmp_path)
    cache = build.cache(tmp_path)
    [entry] = cache.scan()
    monkeypatch.setattr(Folder, "unlink", _refuse)
    assert cache.remove(entry, "test") is None
    assert list(cache.scan()) == []
    monkeypatch.undo()
    [name] = [path.name for path in tmp_path.iterdir() if path.name.startswith("tempdir_gpucache_")]
    os.utime(tmp_path / name, ns=(build.NOW - build.DAY,) * 2)
    assert [one.entry for checked in cache.leftovers() for one in checked.findings] == ["leftovers"]
