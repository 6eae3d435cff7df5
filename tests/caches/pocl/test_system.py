"""Where PoCL keeps its cache, what turns it off, and which folders are one."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import Location
from gpucache.caches.registry import of_others
from gpucache.errors import CacheUnusableError
from tests.caches.pocl import build

SYSTEM = of_others("pocl")


@pytest.mark.parametrize(
    ("environ", "root", "decided_by"),
    [
        ({"POCL_CACHE_DIR": "/a/b", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/a/b", "POCL_CACHE_DIR"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/pocl/kcache", "XDG_CACHE_HOME"),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/pocl/kcache", "HOME"),
        ({}, "/tmp/pocl/kcache", "default"),
        ({"HOME": "/h", "POCL_KERNEL_CACHE": "0"}, "/h/.cache/pocl/kcache", "HOME"),
    ],
)
def test_the_place_is_the_one_that_pocl_takes(environ: dict[str, str], root: str, decided_by: str) -> None:
    """Variables count in PoCL's order."""
    [location] = SYSTEM.locations(environ)
    assert (location.root, location.decided_by, location.limit_bytes) == (root, decided_by, None)


@pytest.mark.parametrize(
    ("value", "enabled"), [(None, True), ("1", True), ("10", True), ("0", False), ("yes", False), ("", False)]
)
def test_only_a_one_leaves_the_cache_on(value: str | None, enabled: bool) -> None:
    """PoCL takes every value that does not begin with 1 for off."""
    environ = {"HOME": "/h"} | ({} if value is None else {"POCL_KERNEL_CACHE": value})
    (location,) = SYSTEM.locations(environ)
    assert location.enabled is enabled
    off = f"POCL_KERNEL_CACHE={value} turns the cache off"
    assert any(off in problem for problem in location.problems) is not enabled


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"POCL_CACHE_DIR": "", "HOME": "/h"}, "is set and empty"),
        (
            {"POCL_CACHE_DIR": "here"},
            "POCL_CACHE_DIR makes it here, another place for every",
        ),
        ({"HOME": "me"}, "HOME makes it me/.cache/pocl/kcache, another place"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "x"}, "XDG_CACHE_HOME makes it x/pocl/kcache, another place"),
        ({}, "all users share"),
    ],
)
def test_what_is_wrong_with_a_setting_is_told(environ: dict[str, str], words: str) -> None:
    """Each trap of the environment is a sentence with its remedy."""
    [location] = SYSTEM.locations(environ)
    assert any(words in problem and "set" in problem for problem in location.problems)


def test_a_good_place_has_no_problem_of_pocls(tmp_path: Path) -> None:
    """A folder of one's own brings up none of the sentences about PoCL."""
    [location] = SYSTEM.locations({"POCL_CACHE_DIR": str(tmp_path)})
    assert not any("PoCL" in problem for problem in location.problems)


def test_a_file_in_the_way_means_no_devices(tmp_path: Path) -> None:
    """PoCL cannot make its folder where a file lies."""
    (tmp_path / "file").touch()
    [location] = SYSTEM.locations({"POCL_CACHE_DIR": str(tmp_path / "file")})
    assert any("0 devices" in problem for problem in location.problems)
    with pytest.raises(CacheUnusableError, match="no folder"):
        SYSTEM.open(location)


def test_a_place_that_cannot_be_written_means_no_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PoCL fails every build where it cannot write, and makes no folder where it may not."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    for place, words in ((tmp_path, "builds no program"), (tmp_path / "new", "shows 0 devices")):
        [location] = SYSTEM.locations({"POCL_CACHE_DIR": str(place)})
        assert any(words in problem for problem in location.problems)


def test_opening_tells_the_problems_of_a_named_place(tmp_path: Path) -> None:
    """A place that somebody named is looked at, too."""
    tmp_path.chmod(0o777)
    location = Location("pocl", str(tmp_path), "--cache", enabled=True)
    problems = SYSTEM.open(location).location().problems
    assert any("others may write" in problem for problem in problems)


def _program(root: Path) -> None:
    build.program(root)


def _failed_build(root: Path) -> None:
    build.folder_of(root).mkdir(parents=True)
    (build.folder_of(root) / "build.log").touch()


def _fresh(root: Path) -> None:
    (root / "pocl" / "kcache").mkdir(parents=True)
    (root / "pocl" / "kcache" / "tempfile_AIaq2O").touch()


@pytest.mark.parametrize(("make", "below"), [(_program, ""), (_failed_build, ""), (_fresh, "pocl/kcache")])
def test_caches_are_recognised(tmp_path: Path, make: Callable[[Path], None], below: str) -> None:
    """Programs, failed builds, and a fresh folder under PoCL's own name are known."""
    make(tmp_path)
    assert SYSTEM.recognises(tmp_path / below)


def _empty(root: Path) -> None:
    root.mkdir(exist_ok=True)


def _only_names(root: Path) -> None:
    build.folder_of(root).mkdir(parents=True)


def _linked(root: Path) -> None:
    real = build.program(root / "elsewhere")
    (root / real.parent.name).symlink_to(real.parent)


def _strangers_in_kcache(root: Path) -> None:
    (root / "thesis.tex").touch()


@pytest.mark.parametrize("make", [_empty, _only_names, _linked, _strangers_in_kcache])
def test_other_folders_are_not_recognised(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Empty folders, names without programs, links and other people's files are no cache."""
    make(tmp_path)
    assert not SYSTEM.recognises(tmp_path)
