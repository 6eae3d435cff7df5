"""Where PoCL keeps its cache, what turns it off, and which directories are one."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import Location
from gpucache.caches.registry import of_others
from gpucache.errors import CacheUnusableError
from tests.caches.pocl import build

SYSTEM = of_others("pocl")


def test_without_a_home_all_users_share_a_place(clean_session: Path) -> None:
    """It is reported, with the remedy."""
    [location] = SYSTEM.locations({})
    assert (location.root, location.decided_by) == (f"{clean_session}/tmp/pocl/kcache", "default")
    assert any("all users share" in problem and "set" in problem for problem in location.problems)


def test_a_file_in_the_way_means_no_devices(tmp_path: Path) -> None:
    """PoCL cannot make its directory where a file lies."""
    (tmp_path / "file").touch()
    [location] = SYSTEM.locations({"POCL_CACHE_DIR": str(tmp_path / "file")})
    assert any("0 devices" in problem for problem in location.problems)
    with pytest.raises(CacheUnusableError, match="not a directory"):
        SYSTEM.open(location)


def test_a_place_that_cannot_be_written_means_no_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PoCL fails every build where it cannot write, and makes no directory where it may not."""
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
    """Programs, failed builds, and a fresh directory under PoCL's own name are known."""
    make(tmp_path)
    assert SYSTEM.recognises(tmp_path / below)


def _empty(root: Path) -> None:
    root.mkdir(exist_ok=True)


def _linked(root: Path) -> None:
    real = build.program(root / "elsewhere")
    (root / real.parent.name).symlink_to(real.parent)


def _strangers_in_kcache(root: Path) -> None:
    (root / "thesis.tex").touch()


@pytest.mark.parametrize("make", [_empty, _linked, _strangers_in_kcache])
def test_other_folders_are_not_recognised(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Empty directories, links and other people's files are no cache."""
    make(tmp_path)
    assert not SYSTEM.recognises(tmp_path)
