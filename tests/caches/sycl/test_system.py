"""Where the cache is, which variable decided that, and what is wrong with the variables."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.caches.registry import of_others
from tests.caches.sycl.build import kernel_folder, opened, put, told

SYSTEM = of_others("sycl")
Ask = Callable[[Path, dict[str, str]], list[str]]


def test_tracing_covers_disk_memory_and_kernel_compiler() -> None:
    """The three bits of the mask."""
    assert SYSTEM.tracing == {"SYCL_CACHE_TRACE": "7"}


def test_kernel_compiler_alone_is_recognised(tmp_path: Path) -> None:
    """Its directory has its own name."""
    kernel_folder(tmp_path)

    assert SYSTEM.recognises(tmp_path)


def test_an_empty_folder_is_recognised_by_its_name_alone(tmp_path: Path) -> None:
    """Another empty directory is none."""
    (tmp_path / "libsycl_cache").mkdir()
    (tmp_path / "other").mkdir()

    assert SYSTEM.recognises(tmp_path / "libsycl_cache")
    assert not SYSTEM.recognises(tmp_path / "other")


def test_other_folders_and_files_are_not_recognised(tmp_path: Path) -> None:
    """Numbers without entries below them, a file, nothing, and a name with a NUL."""
    (tmp_path / "1" / "2").mkdir(parents=True)
    (tmp_path / "file").write_text("0.bin")

    assert not any(
        SYSTEM.recognises(path) for path in (tmp_path, tmp_path / "file", tmp_path / "none", Path("a\0b"))
    )


_MIN, _MAX = "SYCL_CACHE_MIN_DEVICE_IMAGE_SIZE", "SYCL_CACHE_MAX_DEVICE_IMAGE_SIZE"
_LIMIT = "SYCL_CACHE_MAX_SIZE"


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The sentences about the limits of a cache with some variables."""

    def ask(root: Path, environ: dict[str, str]) -> list[str]:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        return _limits(root, environ)

    return ask


def _limits(root: Path, environ: dict[str, str]) -> list[str]:
    settings = {"SYCL_CACHE_DIR": str(root), "SYCL_CACHE_PERSISTENT": "1", **environ}
    (location,) = SYSTEM.locations(settings)
    cache = SYSTEM.open(location)
    return [one for one in cache.location().problems if "SYCL_CACHE_M" in one]


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({_MIN: str((1 << 30) + 1)}, f"so nothing is cached; unset {_MIN}"),
        ({_MAX: "1023"}, f"so nothing is cached; unset {_MAX}"),
        ({_MIN: "2000000", _MAX: "1000000"}, f"so nothing is cached; unset {_MIN} {_MAX}"),
        ({_LIMIT: "1048575"}, "the limit is too small: SYCL_CACHE_MAX_SIZE is 1048575 bytes"),
    ],
)
def test_an_absurd_limit_is_told(environ: dict[str, str], words: str, tmp_path: Path, limits: Ask) -> None:
    """By itself, with nothing stored."""
    (said,) = limits(tmp_path, environ)

    assert words in said


@pytest.mark.parametrize(
    "environ", [{}, {_MIN: "0", _MAX: "0"}, {_MIN: "10", _MAX: "100000"}, {_LIMIT: "1048576"}, {_LIMIT: "0"}]
)
def test_a_limit_that_lets_entries_in_is_not_told(
    environ: dict[str, str], tmp_path: Path, limits: Ask
) -> None:
    """0 is none."""
    put(tmp_path)

    assert limits(tmp_path, environ) == []


def _of_hashes(root: Path) -> None:
    (root / "807247836371013825").mkdir(parents=True)


def _of_a_short_hash(root: Path) -> None:
    (root / "1" / "6142509188972423790").mkdir(parents=True)


def _of_size(root: Path) -> None:
    root.mkdir()
    (root / "cache_size.txt").write_text("0")


@pytest.mark.parametrize("make", [Path.mkdir, _of_hashes, _of_a_short_hash, _of_size, kernel_folder, put])
def test_what_can_be_a_cache_is_looked_into(make: Callable[[Path], object], tmp_path: Path) -> None:
    """Also an empty one, and what eviction leaves."""
    make(tmp_path / "cache")
    assert not any("is no cache" in one for one in told(tmp_path / "cache"))


def test_numbered_folders_of_others_are_no_cache(tmp_path: Path) -> None:
    """Shards under small numbers are somebody's data, whatever their files are called."""
    shard = tmp_path / "shards" / "0" / "1" / "2" / "3"
    shard.mkdir(parents=True)
    (shard / "0.bin").write_bytes(b"data")
    assert not SYSTEM.recognises(tmp_path / "shards")
    assert not list(opened(tmp_path / "shards").scan())
    assert [one.partition(":")[0] for one in told(tmp_path / "shards")] == ["unsupported"]
