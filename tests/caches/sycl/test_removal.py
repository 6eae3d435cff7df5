"""Removing entries: every other one stays reachable, and no pair of files is ever mixed up."""

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import permutations
from pathlib import Path

import pytest

from gpucache.answers.entries import CacheEntry
from gpucache.answers.evict import GONE
from gpucache.caches.interface import Cache
from gpucache.caches.sycl import removal, tree
from gpucache.folders import Folder
from tests.caches.sycl.build import (
    Made,
    collide,
    copy,
    kernel_folder,
    lock,
    names,
    opened,
    put,
    snapshot,
    spirv,
)


def _numbered(cache: Cache) -> dict[str, CacheEntry]:
    return {Path(entry.path).stem: entry for entry in cache.scan()}


def test_the_numbered_files_of_another_program_are_no_entries(tmp_path: Path) -> None:
    """They are told and left alone, also below a number as long as a hash."""
    put(tmp_path)
    tile = tmp_path / "20260101120000000" / "7" / "12" / "3" / "0.bin"
    tile.parent.mkdir(parents=True)
    tile.write_bytes(b"a map")
    cache = opened(tmp_path)

    assert [cache.remove(entry, "--all") for entry in list(cache.scan())] == [None]
    cache.finish_removals()
    assert tile.read_bytes() == b"a map"
    assert any("3 as well" in one.findings[0].detail for one in cache.leftovers())


@pytest.mark.parametrize("number", ["0", "1", "2", "3"])
def test_the_others_stay_without_a_hole(number: str, tmp_path: Path) -> None:
    """Whichever of four goes, three are left at 0, 1 and 2, each with its own key."""
    folder = collide(tmp_path, 4)
    cache = opened(tmp_path)

    assert cache.remove(_numbered(cache)[number], "a test") is None

    left = names(folder)
    assert sorted(left) == ["0", "1", "2"]
    assert sorted(left.values()) == sorted({f"kernel_{other}" for other in range(4)} - {f"kernel_{number}"})
    assert len(list(folder.iterdir())) == 9


def test_only_the_last_moves(tmp_path: Path) -> None:
    """Programs lose sight of no other entry meanwhile."""
    folder = collide(tmp_path, 4)
    cache = opened(tmp_path)

    cache.remove(_numbered(cache)["1"], "a test")

    assert names(folder) == {"0": "kernel_0", "1": "kernel_3", "2": "kernel_2"}
    assert (folder / "1_access_time.txt").read_text()[-1] == "3"


@pytest.mark.parametrize("order", list(permutations("0123"))[::5])
def test_several_go_from_one_scan(order: tuple[str, ...], tmp_path: Path) -> None:
    """What an earlier removal moved is found where it went, in any order."""
    folder = collide(tmp_path, 4)
    cache = opened(tmp_path)
    entries = _numbered(cache)
    for count, number in enumerate(order, 1):
        assert cache.remove(entries[number], "a test") is None
        expected = {f"kernel_{other}" for other in order[count:]}
        assert set(names(folder).values()) == expected

    assert list(folder.iterdir()) == []


def test_a_damaged_last_one_is_not_put_before_others(tmp_path: Path) -> None:
    """It would be taken in place of a sound copy above it: so the last sound one moves."""
    folder = collide(tmp_path, 2)
    copy(folder, 1, 2)
    os.truncate(folder / "2.bin", 100)
    size = (folder / "1.bin").stat().st_size
    cache = opened(tmp_path)

    cache.remove(_numbered(cache)["0"], "a test")

    assert {path.name: path.stat().st_size for path in folder.glob("*.bin")} == {"0.bin": size, "2.bin": 100}


def test_a_held_lock_keeps_the_entry(tmp_path: Path) -> None:
    """A program may be reading or writing."""
    folder = put(tmp_path)
    cache = opened(tmp_path)
    (entry,) = cache.scan()
    lock(folder / "0.lock", age_s=1)
    before = snapshot(tmp_path)

    kept = cache.remove(entry, "a test")

    assert kept is not None
    assert "a program may be writing, as 0.lock exists" in kept.reason
    assert snapshot(tmp_path) == before


def test_an_old_lock_keeps_it_too_and_names_the_remedy(tmp_path: Path) -> None:
    """Breaking locks is for repair."""
    folder = put(tmp_path)
    lock(folder / "0.lock")
    cache = opened(tmp_path)

    kept = cache.remove(next(cache.scan()), "a test")

    assert kept is not None
    assert f"gpucache verify --repair --cache sycl:{tmp_path}" in kept.reason


def test_a_lock_on_the_one_that_would_move_keeps_it(tmp_path: Path) -> None:
    """And no lock of ours stays behind."""
    folder = collide(tmp_path, 3)
    cache = opened(tmp_path)
    lock(folder / "2.lock", age_s=1)

    assert cache.remove(_numbered(cache)["0"], "a test") is not None
    assert [path.name for path in folder.glob("*.lock")] == ["2.lock"]
    assert len(names(folder)) == 3


def test_what_is_gone_is_kept_with_a_reason(tmp_path: Path) -> None:
    """Removing twice is no error."""
    put(tmp_path)
    cache = opened(tmp_path)
    (entry,) = cache.scan()

    assert cache.remove(entry, "a test") is None
    cache.finish_removals()
    kept = cache.remove(entry, "a test")

    assert kept == GONE


def test_finishing_removes_empty_folders_and_corrects_the_size(tmp_path: Path) -> None:
    """Only folders that became empty."""
    put(tmp_path, Made(image=spirv("a")))
    other = put(tmp_path, Made(image=spirv("b")))
    (tmp_path / "cache_size.txt").write_text("123")
    cache = opened(tmp_path)
    gone = next(entry for entry in cache.scan() if entry.program == "a")

    cache.remove(gone, "a test")
    said = cache.finish_removals()

    made = Made(image=spirv("b"))
    assert (tmp_path / "cache_size.txt").read_text() == str(len(made.binary) + len(made.source))
    assert said[0] == "3 empty folders removed"
    assert [path for path in tmp_path.rglob("*") if path.is_dir()] == [*sorted(other.parents)[-3:], other]
    assert cache.finish_removals() == []


def test_a_size_with_another_name_is_left_and_told(tmp_path: Path) -> None:
    """Under that name it may be somebody's own."""
    put(tmp_path / "cache")
    (tmp_path / "mine").write_text("123")
    os.link(tmp_path / "mine", tmp_path / "cache" / "cache_size.txt")
    cache = opened(tmp_path / "cache")
    assert cache.remove(next(cache.scan()), "a test") is None
    assert "has another hard link" in cache.finish_removals()[-1]
    assert (tmp_path / "mine").read_text() == "123"


def test_a_locked_size_is_left_and_told(tmp_path: Path) -> None:
    """The entry is gone all the same."""
    put(tmp_path)
    (tmp_path / "cache_size.txt").write_text("123")
    (tmp_path / "cache_size.txt.lock").touch()
    cache = opened(tmp_path)

    assert cache.remove(next(cache.scan()), "a test") is None

    assert "was left alone, as cache_size.txt.lock exists" in cache.finish_removals()[-1]
    assert (tmp_path / "cache_size.txt").read_text() == "123"


def test_no_size_is_made_where_there_is_none(tmp_path: Path) -> None:
    """libsycl makes it when eviction is turned on."""
    put(tmp_path)
    cache = opened(tmp_path)
    cache.remove(next(cache.scan()), "a test")

    cache.finish_removals()

    assert list(tmp_path.iterdir()) == []


def test_kernel_compiler_entries_go_too(tmp_path: Path) -> None:
    """Without a .src there is one file less to move."""
    folder = kernel_folder(tmp_path)
    for number in (0, 1):
        (folder / f"{number}.bin").write_bytes(Made(compiled=spirv(f"kernel_{number}")).binary)
    cache = opened(tmp_path)

    assert cache.remove(_numbered(cache)["0"], "a test") is None

    assert b"kernel_1" in (folder / "0.bin").read_bytes()
    assert [path.name for path in folder.iterdir()] == ["0.bin"]


@pytest.mark.parametrize("steps", range(8))
def test_a_kill_never_leaves_a_mixed_pair(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a removal ends, no .bin lies beside the .src of another entry."""
    folder = collide(tmp_path, 3)
    cache = opened(tmp_path)
    entry = _numbered(cache)["0"]
    done = iter(range(steps))

    def stopping(function: Callable[..., None]) -> Callable[..., None]:
        def step(self: Folder, name: str, *rest: object) -> None:
            if not name.endswith(".lock"):
                next(done)
            function(self, name, *rest)

        return step

    for name in ("move", "unlink"):
        monkeypatch.setattr(Folder, name, stopping(getattr(Folder, name)))
    with suppress(StopIteration):
        cache.remove(entry, "a test")

    pairs = {path.stem for path in folder.glob("*.bin")} & {path.stem for path in folder.glob("*.src")}
    assert pairs >= {"1"}
    for stem in pairs:
        binary, source = ((folder / f"{stem}{end}").read_bytes() for end in (".bin", ".src"))
        kernel = binary[binary.index(b"kernel_") :][:8]
        assert kernel in source


def test_a_writer_during_a_removal_leaves_no_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took the number above the last one, which then moved."""
    folder = collide(tmp_path, 2)
    cache = opened(tmp_path)
    entry = _numbered(cache)["0"]
    moving = removal.move

    def racing(held: Folder, stem: str, onto: str) -> None:
        if stem == "1":
            copy(folder, 1, 2)
        moving(held, stem, onto)

    monkeypatch.setattr(removal, "move", racing)

    assert cache.remove(entry, "a test") is None
    assert sorted(names(folder)) == ["0", "1"]


@pytest.mark.parametrize("order", list(permutations("01234"))[::17])
def test_several_go_before_damaged_ones(order: tuple[str, ...], tmp_path: Path) -> None:
    """In any order the sound ones that are left have no hole before them, and all go at last."""
    folder = collide(tmp_path, 5)
    cache = opened(tmp_path)
    for number in ("3", "4"):
        os.truncate(folder / f"{number}.bin", 20)
    entries = _numbered(cache)
    for count, number in enumerate(order, 1):
        assert cache.remove(entries[number], "a test") is None
        sound = [one for one in order[count:] if one in "012"]
        assert all("kernel_" in _kernel(folder / f"{number}.bin") for number in range(len(sound)))

    assert list(folder.iterdir()) == []


def _kernel(path: Path) -> str:
    return path.read_bytes().decode("latin-1")


def test_a_folder_is_listed_once_for_all_removals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that holds thousands of copies would take minutes otherwise."""
    collide(tmp_path, 12)
    cache = opened(tmp_path)
    found = list(cache.scan())
    listed = _listings(monkeypatch)

    assert [cache.remove(entry, "a test") for entry in found] == [None] * 12
    assert len(listed) == 1


def _listings(monkeypatch: pytest.MonkeyPatch) -> list[Folder]:
    listed: list[Folder] = []
    listing = tree.listing

    def counting(folder: Folder) -> tree.Listing:
        listed.append(folder)
        return listing(folder)

    monkeypatch.setattr(tree, "listing", counting)
    return listed


def test_a_copy_written_between_removals_is_seen(tmp_path: Path) -> None:
    """It moves like the others."""
    folder = collide(tmp_path, 3)
    cache = opened(tmp_path)
    entries = _numbered(cache)

    cache.remove(entries["0"], "a test")
    copy(folder, 0, 2)
    cache.remove(entries["1"], "a test")
    cache.finish_removals()

    assert names(folder) == {"0": "kernel_2", "1": "kernel_2"}
