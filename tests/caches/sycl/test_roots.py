"""Which folders are taken for a cache, and that others are neither listed nor changed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from gpucache.errors import CacheUnusableError
from tests.caches.sycl.build import kernel_folder, opened, put, snapshot, told, verified

SYSTEM = of_others("sycl")


def _by_environment(root: Path) -> tuple[Location, Cache]:
    (location,) = SYSTEM.locations({"SYCL_CACHE_DIR": str(root), "SYCL_CACHE_PERSISTENT": "1"})
    return location, SYSTEM.open(location)


def _fill(root: Path) -> None:
    """Somebody's folders, some of them named by numbers, some of them empty."""
    for name in ("photos", "2023", "7/train", "letters"):
        (root / name).mkdir(parents=True)
    (root / "7" / "train" / "0.png").write_text("x")


def test_a_folder_of_other_things_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """Where it was named by hand; nobody is told to remove anything."""
    _fill(tmp_path)

    with pytest.raises(CacheUnusableError, match=f"this is not a cache of libsycl: {tmp_path} has") as caught:
        opened(tmp_path)

    assert "remove" not in str(caught.value)


def test_a_folder_of_other_things_that_programs_are_sent_to_is_told_once(tmp_path: Path) -> None:
    """By its location and by one finding, and a repair leaves it as it is."""
    _fill(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    location, cache = _by_environment(tmp_path)

    ((checked, _),) = verified(cache)
    cache.repair(checked, None)

    assert [finding.kind for finding in checked.findings] == [FindingKind.LEFTOVER]
    assert checked.findings[0].detail in location.problems
    assert list(cache.scan()) == []
    assert sorted(tmp_path.rglob("*")) == before


def _of_nothing(root: Path) -> None:
    root.mkdir()


def _of_hashes(root: Path) -> None:
    (root / "807247836371013825").mkdir(parents=True)


def _of_a_short_hash(root: Path) -> None:
    (root / "1" / "6142509188972423790").mkdir(parents=True)


def _of_size(root: Path) -> None:
    root.mkdir()
    (root / "cache_size.txt").write_text("0")


@pytest.mark.parametrize(
    "make", [_of_nothing, _of_hashes, _of_a_short_hash, _of_size, kernel_folder, put, Path.exists]
)
def test_what_can_be_a_cache_is_opened(make: Callable[[Path], object], tmp_path: Path) -> None:
    """Also an empty one, one that is not there, and what eviction leaves."""
    make(tmp_path / "cache")

    assert opened(tmp_path / "cache").name == "sycl"
    assert not any("no cache" in problem for problem in _by_environment(tmp_path / "cache")[0].problems)


def test_a_cache_among_other_things_tells_of_them_once(tmp_path: Path) -> None:
    """However many they are; they stay."""
    put(tmp_path)
    for number in range(50):
        (tmp_path / f"thing {number}").mkdir()
    before = snapshot(tmp_path)

    (said,) = told(tmp_path)

    assert said.startswith("leftover: ")
    assert "and 47 more as well" in said
    assert "export SYCL_CACHE_DIR=<folder>" in said
    assert snapshot(tmp_path) == before


def test_the_home_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it holds entries, and by whatever path; the location says the same."""
    put(tmp_path)
    (tmp_path.parent / f"{tmp_path.name}-link").symlink_to(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    for path in (tmp_path, tmp_path.parent / f"{tmp_path.name}-link"):
        with pytest.raises(CacheUnusableError, match="is the home folder"):
            opened(path)
        (location,) = SYSTEM.locations({"SYCL_CACHE_DIR": str(path), "SYCL_CACHE_PERSISTENT": "1"})
        assert any("is the home folder" in problem for problem in location.problems)


def test_the_root_of_the_machine_is_refused() -> None:
    """It is not walked."""
    with pytest.raises(CacheUnusableError, match="root of the machine"):
        opened(Path("/"))


@pytest.mark.parametrize("name", ["file", "file/below/it"])
def test_a_file_in_the_way_is_a_problem_and_no_error_of_the_system(name: str, tmp_path: Path) -> None:
    """One sentence, the same from both."""
    (tmp_path / "file").write_text("")

    (location,) = SYSTEM.locations({"SYCL_CACHE_DIR": str(tmp_path / name), "SYCL_CACHE_PERSISTENT": "1"})

    (problem,) = location.problems
    with pytest.raises(CacheUnusableError) as caught:
        SYSTEM.open(location)
    assert str(caught.value) == problem
    assert f"{tmp_path / 'file'} is not a folder" in problem


def test_a_device_file_is_no_cache() -> None:
    """As people set it to have none; its mode is none of our business."""
    (location,) = SYSTEM.locations({"SYCL_CACHE_DIR": "/dev/null", "SYCL_CACHE_PERSISTENT": "1"})

    assert len(location.problems) == 1
    assert "/dev/null is not a folder" in location.problems[0]


def test_numbered_folders_of_others_are_no_cache(tmp_path: Path) -> None:
    """Shards under small numbers are somebody's data, whatever their files are called."""
    shard = tmp_path / "shards" / "0" / "1" / "2" / "3"
    shard.mkdir(parents=True)
    (shard / "0.bin").write_bytes(b"data")

    assert not SYSTEM.recognises(tmp_path / "shards")
    with pytest.raises(CacheUnusableError, match="not a cache of libsycl"):
        opened(tmp_path / "shards")
