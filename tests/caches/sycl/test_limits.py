"""Limits that are absurd, or that what is stored shows to be wrong."""

from pathlib import Path

import pytest

from gpucache.caches.registry import of_others
from tests.caches.sycl.build import Made, put, spirv

SYSTEM = of_others("sycl")

_MIN, _MAX = "SYCL_CACHE_MIN_DEVICE_IMAGE_SIZE", "SYCL_CACHE_MAX_DEVICE_IMAGE_SIZE"
_LIMIT = "SYCL_CACHE_MAX_SIZE"


def _said(root: Path, environ: dict[str, str]) -> list[str]:
    settings = {"SYCL_CACHE_DIR": str(root), "SYCL_CACHE_PERSISTENT": "1", **environ}
    (location,) = SYSTEM.locations(settings)
    cache = SYSTEM.open(location)
    return [one for one in cache.location().problems if "SYCL_CACHE_M" in one]


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({_MIN: str((1 << 30) + 1)}, f"which no image has, so nothing is cached; unset {_MIN}"),
        ({_MAX: "1023"}, f"less than any image, so nothing is cached; unset {_MAX}"),
        ({_MIN: "2000000", _MAX: "1000000"}, f"is above {_MAX} (1000000 bytes), so nothing is cached"),
        ({_LIMIT: "1048575"}, "the limit is too small: SYCL_CACHE_MAX_SIZE is 1048575 bytes"),
    ],
)
def test_an_absurd_limit_is_told(environ: dict[str, str], words: str, tmp_path: Path) -> None:
    """By itself, with nothing stored."""
    (said,) = _said(tmp_path, environ)

    assert words in said


@pytest.mark.parametrize(
    "environ", [{}, {_MIN: "0", _MAX: "0"}, {_MIN: "10", _MAX: "100000"}, {_LIMIT: "1048576"}, {_LIMIT: "0"}]
)
def test_a_limit_that_lets_entries_in_is_not_told(environ: dict[str, str], tmp_path: Path) -> None:
    """0 is none."""
    put(tmp_path)

    assert _said(tmp_path, environ) == []


@pytest.mark.parametrize(("name", "value"), [(_MIN, "1000000"), (_MAX, "2000")])
def test_bounds_that_keep_out_all_that_is_stored_are_told(name: str, value: str, tmp_path: Path) -> None:
    """The variable at fault is named, with the remedy."""
    put(tmp_path, Made(image=spirv("a", words=1000)))
    put(tmp_path, Made(image=spirv("b", words=1000)))

    (said,) = _said(tmp_path, {name: value})

    assert said.startswith(f"{name} keep out the images of all 2 entries")
    assert said.endswith(f"unset {name}")


def test_bounds_that_keep_out_some_are_not_told(tmp_path: Path) -> None:
    """That is what they are for."""
    put(tmp_path, Made(image=spirv("a")))
    put(tmp_path, Made(image=spirv("b", words=1000)))

    assert _said(tmp_path, {_MIN: "1000"}) == []


def test_a_limit_below_what_is_stored_is_told(tmp_path: Path) -> None:
    """With one that is large enough."""
    put(tmp_path, Made(compiled=spirv("a", words=300_000)))

    (said,) = _said(tmp_path, {_LIMIT: "1100000"})

    assert said.startswith("the limit is too small: ")
    assert "so libsycl evicts when the next entry is added; export SYCL_CACHE_MAX_SIZE=24" in said
