"""Entries that come into a cache which others use, block or write at the same time.

Whatever is in place of an entry, a program finds a whole entry or none, and a sound one is never
changed.
"""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpucache.caches.known_caches import Unusable
from gpucache.caches.portable import PortableEntry, Restored, name_here
from gpucache.caches.registry import OWN
from gpucache.caches.restoring import STAGING
from gpucache.folders import Folder
from tests.contracts.examples import EXAMPLES, open_example
from tests.contracts.test_moving import MOVING, every_moving, scanned
from tests.unprivileged import NOBODY, as_nobody, needs_root

FOREIGN = [name for name in MOVING if name != OWN]
a_few = pytest.mark.parametrize("name", ["gpucache", "triton", "cupy", "jax"])
"""A value where no format decides."""
every_foreign = pytest.mark.parametrize("name", FOREIGN)


def opened(name: str, place: Path) -> Any:
    return open_example(name, place)


def _sent(name: str, folder: Path) -> list[PortableEntry]:
    """The entries of an example in their portable form."""
    cache = opened(name, EXAMPLES[name].make(folder / "there"))
    return [cache.pack(entry) for entry in scanned(cache)]


def _restored(name: str, place: Path, *entries: PortableEntry) -> list[Restored]:
    return list(opened(name, place).restore(entries))


def _files(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Inode and bytes of each file by its path."""
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def _sound(name: str, place: Path) -> int:
    cache = opened(name, place)
    entries = scanned(cache)
    assert not [one for entry in entries for one in cache.check(entry).findings if one.kind.wrong]
    return len(entries)


@every_moving
def test_an_entry_does_not_land_in_the_place_of_another(name: str, tmp_path: Path) -> None:
    """The files of one key with the record of another are refused, next to that entry and without it."""
    first, second, *_ = _sent(name, tmp_path)
    place = tmp_path / "here" / EXAMPLES[name].place
    for key in (first.key, "0" * len(first.key), "", "../..", "x" * 4096):
        [done] = _restored(name, place, second._replace(key=key))
        assert (done.done, done.present, done.damaged) == (False, False, True), key
    assert not _files(tmp_path / "here")
    _restored(name, place, second)
    before = _files(tmp_path / "here")
    [done] = _restored(name, place, second._replace(key=first.key))
    assert not done.done
    assert _files(tmp_path / "here") == before


@every_foreign
def test_a_staging_directory_shows_no_entry(name: str, tmp_path: Path) -> None:
    """An entry that another process is restoring is invisible to readers of the cache."""
    entries = _sent(name, tmp_path)
    place = tmp_path / "here" / EXAMPLES[name].place
    _restored(name, place / f"{STAGING}1-{8 * 'a'}" / "0", *entries)
    assert _files(place)
    cache = opened(name, place)
    assert not list(cache.scan(beside=True))
    list(cache.leftovers())
    assert not [one for entry in entries for one in cache.find(entry.key)]


@every_foreign
def test_half_an_entry_of_a_living_writer_is_left_alone(name: str, tmp_path: Path) -> None:
    """A fresh first file of another machine's build stays as it is; nothing is mixed with it."""
    entry = _sent(name, tmp_path)[0]
    if len(entry.files) < 2:
        pytest.skip("its entries are one file")
    place = tmp_path / "here" / EXAMPLES[name].place
    half = entry.files[0]
    path = place / half.name
    path.parent.mkdir(parents=True)
    path.write_bytes(half.data + b" ")
    before = _files(tmp_path / "here")
    kinds = {
        one.kind for item in opened(name, place).scan() for one in opened(name, place).check(item).findings
    }
    if not kinds or any(kind.wrong for kind in kinds):
        pytest.skip("its owner renames whole directories, or goes on with half an entry")
    [done] = _restored(name, place, entry)
    assert (done.done, done.present, done.damaged) == (False, False, False)
    assert _files(tmp_path / "here") == before


@every_foreign
def test_half_an_entry_that_a_killed_pull_left_is_completed(name: str, tmp_path: Path) -> None:
    """An existing file with the same bytes is not an obstacle, nor is an empty directory."""
    entry = _sent(name, tmp_path)[0]
    for count in range(len(entry.files)):
        place = tmp_path / f"here{count}" / EXAMPLES[name].place
        _restored(name, place, entry)
        whole = sorted(path for path in place.rglob("*") if path.is_file())
        order = [place / one.name for one in entry.files]
        for path in whole:
            if path not in order[:count]:
                path.unlink()
        [done] = _restored(name, place, entry)
        assert done.done or done.present
        if done.done:
            assert sorted(path for path in place.rglob("*") if path.is_file()) == whole
        assert _sound(name, place) == 1


@every_foreign
def test_files_that_the_owner_puts_meanwhile_are_never_below_our_list(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner replaces a file after any of ours was put: no program sees a mixture."""
    entry = _sent(name, tmp_path)[0]
    if len(entry.files) < 2:
        pytest.skip("its entries are one file")
    link, calls = Folder.link, 0
    for at in range(1, len(entry.files) + 1):
        place = tmp_path / f"here{at}" / EXAMPLES[name].place
        first = place / entry.files[0].name
        first.parent.mkdir(parents=True)
        (first.parent / "in-use").touch()  # so that the directory is not renamed
        calls = 0

        def struck(
            source: Folder, old: str, into: Folder, new: str, at: int = at, first: Path = first
        ) -> None:
            nonlocal calls
            link(source, old, into, new)
            calls += old == new  # and not a lock
            if old == new and calls == at:
                other = first.with_name("written-by-owner")
                other.write_bytes(first.read_bytes() + b" ")
                other.replace(first)

        monkeypatch.setattr(Folder, "link", struck)
        [done] = _restored(name, place, entry)
        monkeypatch.setattr(Folder, "link", link)
        if calls >= at:
            assert not done.done
            assert not (place / entry.files[-1].name).exists()


@every_moving
def test_files_that_land_are_their_owners_whatever_the_umask(name: str, tmp_path: Path) -> None:
    """The user can read and replace them, and no other user can write to them."""
    entry = _sent(name, tmp_path)[0]
    for mask in (0o077, 0o002, 0o000):
        old = os.umask(mask)
        try:
            [done] = _restored(name, tmp_path / f"here{mask}" / "deep" / EXAMPLES[name].place, entry)
        finally:
            os.umask(old)
        assert done.done
        for path in (tmp_path / f"here{mask}").rglob("*"):
            mode = path.stat().st_mode
            assert not mode & 0o022, path
            assert mode & (0o700 if path.is_dir() else 0o400), path


@every_moving
def test_files_of_modes_that_do_harm_are_refused(name: str, tmp_path: Path) -> None:
    """Files that others could write, or that their owner could not read, are not restored."""
    entry = _sent(name, tmp_path)[0]
    for mode in (0o000, 0o666, 0o777, 0o044):
        changed = entry._replace(files=tuple(one._replace(mode=mode) for one in entry.files))
        place = tmp_path / "here" / EXAMPLES[name].place
        [done] = _restored(name, place, changed)
        if name == OWN:  # which has its own modes
            assert done.done or done.present
            assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in place.rglob("*.gpc"))
        else:
            assert (done.done, done.damaged) == (False, True)
            assert not _files(tmp_path / "here")


def _block(kind: str, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "a file":
        place.write_bytes(b"x")
    elif kind == "a link to nothing":
        place.symlink_to(place.parent / "nowhere")
    elif kind == "a loop":
        place.symlink_to(place)


@a_few
@pytest.mark.parametrize("kind", ["a file", "a link to nothing", "a loop"])
def test_a_root_that_is_none_is_told(name: str, kind: str, tmp_path: Path) -> None:
    """Nothing is written, and each entry says why; the only exception is for a place that is not a cache."""
    entries = _sent(name, tmp_path)
    place = tmp_path / "here" / "root"
    _block(kind, place)
    if isinstance(open_example(name, place), Unusable):
        return
    done = _restored(name, place, *entries)
    assert [(one.done, one.present, one.failed, bool(one.reason)) for one in done] == [
        (False, False, True, True)
    ] * len(entries)
    assert not (place.parent / "nowhere").exists()


@a_few
@needs_root
@pytest.mark.parametrize("kind", ["read-only", "somebody else's", "full"])
def test_a_root_that_cannot_be_written_is_told(name: str, kind: str, tmp_path: Path) -> None:
    """Each entry says why, and nothing is left of it."""
    entries = _sent(name, tmp_path)
    with mounted("size=64k,mode=755") as folder:
        place = folder / "root"
        place.mkdir()
        os.chown(place, NOBODY, NOBODY)
        if kind == "full":
            (folder / "ballast").write_bytes(bytes(os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize))
        elif kind == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        else:
            os.chown(place, 0, 0)
        done = as_nobody(
            lambda: "\n".join(
                f"{one.done} {one.present} {one.failed} {one.damaged} {one.reason}"
                for one in _restored(name, place, *entries)
            )
        ).splitlines()
        assert len(done) == len(entries)
        for one in done:
            assert one.startswith("False False True False "), one
        if kind != "full" or name != OWN:
            assert not _files(place)
        else:
            assert not list(place.rglob("*.gpc"))


@contextmanager
def mounted(options: str) -> Iterator[Path]:
    """A file system in memory that other users may enter; skips where it cannot be mounted."""
    folder = Path(tempfile.mkdtemp(prefix="gpucache-test-"))
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True)
    try:
        if done.returncode:
            pytest.skip("no file system can be mounted here")
        yield folder
        subprocess.run(["umount", "-l", folder], check=True)
    finally:
        folder.rmdir()


@every_moving
@needs_root
def test_what_root_restores_for_a_user_is_that_users(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every new file and directory is; the user's programs can read, add and remove afterwards."""
    entries = _sent(name, tmp_path)
    monkeypatch.setenv("GPUCACHE_OWNER_UID", str(NOBODY))
    with mounted("size=16m,mode=755") as home:
        os.chown(home, NOBODY, NOBODY)
        place = home / "new" / "deep" / EXAMPLES[name].place
        assert all(one.done for one in _restored(name, place, *entries))
        assert {path.lstat().st_uid for path in home.rglob("*")} == {NOBODY}
        found = as_nobody(lambda: f"{_sound(name, place)} {_emptied(place)}")
        assert found == f"{len(entries)} True"


def _emptied(place: Path) -> bool:
    shutil.rmtree(place if place.is_dir() else place.parent)
    return not place.exists()


@every_foreign
def test_files_named_like_staging_directories_do_not_land(name: str, tmp_path: Path) -> None:
    """An entry inside a staging directory, or with names that differ only in case, is not restored."""
    entry = _sent(name, tmp_path)[0]
    place = tmp_path / "here" / EXAMPLES[name].place
    below = [one._replace(name=f"{STAGING}1-{8 * 'a'}/0/{one.name}") for one in entry.files]
    again = [one._replace(name=one.name.swapcase()) for one in entry.files]
    for files in (below, [*below, *entry.files], [*entry.files, *again]):
        [done] = _restored(name, place, entry._replace(files=tuple(files)))
        assert not done.done
        assert not _files(tmp_path / "here")


@every_foreign
def test_what_blocks_the_place_of_a_file_is_told_or_replaced(name: str, tmp_path: Path) -> None:
    """A directory, a link or a pipe is not damage of the entry; nothing behind a link changes."""
    entry = _sent(name, tmp_path)[0]
    target = tmp_path / "target"
    for kind in ("directory", "link", "pipe"):
        target.write_bytes(b"precious")
        place = tmp_path / kind / EXAMPLES[name].place
        path = place / name_here(entry.files[0].name)
        path.parent.mkdir(parents=True)
        if kind == "directory":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(target)
        else:
            os.mkfifo(path)
        [done] = _restored(name, place, entry)
        assert done.done or (done.reason and not done.damaged and "unexpected" not in done.reason), kind
        assert target.read_bytes() == b"precious"
        if done.done:
            assert _sound(name, place) == 1
