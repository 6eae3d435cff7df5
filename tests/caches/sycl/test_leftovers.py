"""What belongs to no entry, and what is wrong with the cache as a whole."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.caches.sycl.build import Made, findings, kernel_folder, lock, opened, put, repaired, snapshot, told

_LONG = str(10**18)


def _sibling(root: Path, ending: str) -> Path:
    return root.with_name(root.name + ending)


def _killed_writer(root: Path, folder: Path) -> None:
    lock(folder / "1.lock")


def _locked_times(root: Path, folder: Path) -> None:
    lock(folder / "0_access_time.txt.lock")


def _evicted(root: Path, folder: Path) -> None:
    (folder / "5_access_time.txt").write_text("1")


def _foreign(root: Path, folder: Path) -> None:
    (folder / "notes").write_text("mine")


def _foreign_folder(root: Path, folder: Path) -> None:
    (root / "not a hash").mkdir()


def _foreign_below(root: Path, folder: Path) -> None:
    for name in "abcde":
        (folder.parent / name).mkdir()


def _file_as_folder(root: Path, folder: Path) -> None:
    (root / "12").write_text("")


def _linked_folder(root: Path, folder: Path) -> None:
    (root / "12").symlink_to(root.parent)


def _empty_folder(root: Path, folder: Path) -> None:
    root.joinpath(_LONG, "2", _LONG, _LONG).mkdir(parents=True)


def _half_empty(root: Path, folder: Path) -> None:
    root.joinpath("1", "2").mkdir(parents=True)


def _shared_folder(root: Path, folder: Path) -> None:
    folder.chmod(0o777)


def _garbage_size(root: Path, folder: Path) -> None:
    (root / "cache_size.txt").write_text("many")


def _huge_size(root: Path, folder: Path) -> None:
    (root / "cache_size.txt").write_text(str(1 << 64))


def _negative_size(root: Path, folder: Path) -> None:
    (root / "cache_size.txt").write_text("-5")


def _wrong_size(root: Path, folder: Path) -> None:
    (root / "cache_size.txt").write_text("1000000")


def _locked_size(root: Path, folder: Path) -> None:
    lock(root / "cache_size.txt.lock")


def _locked_eviction(root: Path, folder: Path) -> None:
    lock(_sibling(root, "_eviction_in_progress.lock"))


def _bare_eviction(root: Path, folder: Path) -> None:
    _sibling(root, "_eviction_in_progress").touch()


def _eviction_inside(root: Path, folder: Path) -> None:
    (root / "_eviction_in_progress").touch()


_CASES = [
    (_killed_writer, "locked", "write their copy above 1, never look there, and add one at every run", True),
    (_locked_times, "locked", "no longer note when the entry was used", True),
    (_evicted, "orphan", "5_access_time.txt of", True),
    (_foreign, "leftover", "is none of libsycl's", False),
    (_foreign_folder, "leftover", "it holds not a hash as well, which libsycl does not make", False),
    (_foreign_below, "leftover", "it holds a, b, c and 2 more as well", False),
    (_file_as_folder, "leftover", "has the name of a folder and is none", False),
    (_linked_folder, "untrusted", "it is a link", True),
    (_empty_folder, "leftover", f"{_LONG}/2/{_LONG}/{_LONG} is empty", True),
    (_half_empty, "leftover", "1/2: it is an empty folder", True),
    (_shared_folder, "untrusted", "others may write to it", False),
    (_garbage_size, "corrupt", "'many', which is no size", False),
    (_huge_size, "corrupt", "which is no size", True),
    (_negative_size, "corrupt", "evict at every entry", True),
    (_wrong_size, "orphan", "libsycl evicts too early", True),
    (_locked_size, "misplaced", "spins for ever", True),
    (_locked_eviction, "locked", "never evicted again", True),
    (_bare_eviction, "misplaced", "every program that adds an entry hangs", True),
    (_eviction_inside, "misplaced", "every program that adds an entry hangs", True),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "libsycl_cache"


@pytest.mark.parametrize(("damage", "kind", "words", "mended"), _CASES)
def test_it_is_told_and_taken_away(
    damage: Callable[[Path, Path], None], kind: str, words: str, mended: bool, root: Path
) -> None:
    """One finding, of its kind; repaired unless it is people's to judge, and the entry stays."""
    folder = put(root)
    damage(root, folder)

    (found,) = findings(root)

    assert (found.kind, found.repaired) == (kind, False)
    assert words in found.detail
    assert [finding.repaired for checked in repaired(root) for finding in checked.findings] == [mended]
    assert len(findings(root)) == (not mended)
    assert (folder / "0.bin").read_bytes() == Made().binary


@pytest.mark.parametrize("damage", [_killed_writer, _locked_times, _locked_size, _locked_eviction])
def test_a_young_lock_is_told_and_left(damage: Callable[[Path, Path], None], root: Path) -> None:
    """A program may hold it."""
    damage(root, put(root))
    for path in root.parent.rglob("*.lock"):
        lock(path, age_s=60)
    before = snapshot(root.parent)

    (found,) = findings(root)

    assert "a program may hold it" in found.detail
    assert not any(finding.repaired for checked in repaired(root) for finding in checked.findings)
    assert snapshot(root.parent) == before


def test_a_lock_below_entries_names_those_that_are_not_reached(root: Path) -> None:
    """The killed writer of 0 hides 1 and 2."""
    folder = put(root, number=1)
    put(root, number=2)
    lock(folder / "0.lock")

    assert any("(now 1, 2)" in said for said in told(root))


def test_a_size_a_little_off_is_sound(root: Path) -> None:
    """libsycl itself counts it in two ways."""
    put(root)
    (root / "cache_size.txt").write_text("2000")

    assert told(root) == []


def test_a_kernel_compiler_lock_is_found(root: Path) -> None:
    """Its folders are walked as well."""
    folder = kernel_folder(root)
    (folder / "0.bin").write_bytes(Made().binary)
    lock(folder / "1.lock")

    assert [said.partition(":")[0] for said in told(root)] == ["locked"]


def test_files_beside_the_root_with_other_names_are_left(root: Path) -> None:
    """Only the two exact names are libsycl's."""
    put(root)
    for ending in ("_eviction_in_progress.lock.old", "2_eviction_in_progress", "_eviction"):
        _sibling(root, ending).touch()

    assert told(root) == []


@pytest.mark.parametrize("digits", ["0" * 40 + "9" * 2000, "9" * 4000, "0" * 21])
def test_a_size_of_too_many_digits_is_told(digits: str, tmp_path: Path) -> None:
    """No more digits are read than an unsigned 64-bit number has."""
    put(tmp_path)
    (tmp_path / "cache_size.txt").write_text(digits)

    assert any("which is no size" in one for one in told(tmp_path))
    assert repaired(tmp_path)


_MINE = ["1.bin", "7.bin", "9.src", "5.lock", "3_access_time.txt"]


def _beside(root: Path) -> list[Path]:
    """Files of somebody else, numbered as libsycl numbers its own, and called like its files in the root."""
    folder = put(root)
    paths = [folder / name for name in _MINE]
    paths += [root / "cache_size.txt", root / "cache_size.txt.lock", root / "_eviction_in_progress"]
    paths += [_sibling(root, "_eviction_in_progress.lock")]
    for path in paths:
        path.write_text("mine and dear to me")
        os.utime(path, (1, 1))
    return paths


def test_what_is_numbered_as_libsycls_files_stays(root: Path) -> None:
    """It is told, with the advice to move it, and neither repair nor removal takes, moves or rewrites it."""
    mine = _beside(root)
    told = " ".join(finding.detail for finding in findings(root))
    assert all(path.name in told for path in mine)
    repaired(root)
    cache = opened(root)
    kept = [cache.remove(entry, "--all") for entry in cache.scan() if entry.stays]
    assert len(kept) == 3 and all(one is not None and "move it elsewhere" in one.reason for one in kept)
    for entry in cache.scan():
        cache.remove(entry, "--all")
    cache.finish_removals()
    assert {path.read_text() for path in mine} == {"mine and dear to me"}
    assert not list(root.rglob("0.bin"))
