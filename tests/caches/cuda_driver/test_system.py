"""Where the driver's cache lies, what bounds it, and what is recognised as one."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gpucache.answers.entries import Location
from gpucache.caches.mounts import Mount
from gpucache.caches.registry import of_others
from tests.caches.cuda_driver.build import file, tree

SYSTEM = of_others("cuda")


def _location(environ: Mapping[str, str]) -> Location:
    (location,) = SYSTEM.locations(environ)
    return location


def test_the_variable_is_the_folder_itself() -> None:
    """Nothing is added to it."""
    location = _location({"CUDA_CACHE_PATH": "/scratch/jit", "HOME": "/home/a"})
    assert (location.root, location.decided_by) == ("/scratch/jit", "CUDA_CACHE_PATH")


@pytest.mark.parametrize("path", [{}, {"CUDA_CACHE_PATH": ""}])
def test_without_it_the_home_decides(path: dict[str, str]) -> None:
    """XDG_CACHE_HOME is not asked."""
    location = _location({**path, "HOME": "/home/a", "XDG_CACHE_HOME": "/other"})
    assert (location.root, location.decided_by) == ("/home/a/.nv/ComputeCache", "HOME")


def test_without_a_home_there_is_no_place() -> None:
    """None is guessed."""
    assert not SYSTEM.locations({})


@pytest.mark.parametrize(("value", "enabled"), [("", True), ("0", True), ("1", False), ("yes", True)])
def test_one_turns_it_off(value: str, enabled: bool) -> None:
    """What another value does is not documented, and is said."""
    location = _location({"CUDA_CACHE_DISABLE": value, "HOME": "/home/a"})
    assert location.enabled is enabled
    assert any("CUDA_CACHE_DISABLE=1 turns the cache off" in one for one in location.problems) is not enabled
    assert any("CUDA_CACHE_DISABLE=yes" in one for one in location.problems) is (value == "yes")


@pytest.mark.parametrize(
    ("value", "limit", "words"),
    [
        ("", 1073741824, ""),
        ("268435456", 268435456, ""),
        ("4294967296", 4294967296, ""),
        ("4294967297", 4294967296, "over the 4294967296"),
        ("99999999999999999999", None, "not a number of bytes"),
        ("0", 0, "leaves no room"),
        ("2G", None, "not a number of bytes"),
        ("-1", None, "not a number of bytes"),
        ("1_000", None, "not a number of bytes"),
        ("٣", None, "not a number of bytes"),
    ],
)
def test_the_limit_is_a_number_of_bytes(value: str, limit: int | None, words: str) -> None:
    """Anything else is a problem, with the remedy."""
    location = _location({"CUDA_CACHE_MAXSIZE": value, "HOME": "/home/a"})
    assert location.limit_bytes == limit
    said = [problem for problem in location.problems if "CUDA_CACHE_MAXSIZE" in problem]
    assert bool(said) is bool(words) and all(words in problem for problem in said)


def test_a_relative_place_is_complained_of() -> None:
    """It is another one for every current directory."""
    assert any("set an absolute path" in one for one in _location({"CUDA_CACHE_PATH": "jit"}).problems)


def test_a_relative_home_is_named_as_what_decided() -> None:
    """Not the variable that is not set."""
    (told,) = (one for one in _location({"HOME": "me"}).problems if "current directory" in one)
    assert told.startswith("HOME makes it me/.nv/ComputeCache")


def test_a_shared_place_is_complained_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs on other machines wait for its index."""
    mount = Mount(str(tmp_path), "nfs4", frozenset())
    monkeypatch.setattr("gpucache.caches.systems.mounts", lambda: (mount,))
    assert any("'index'" in one for one in _location({"CUDA_CACHE_PATH": str(tmp_path)}).problems)


def test_what_is_isolated_is_where_its_programs_look(tmp_path: Path) -> None:
    """With room for everything."""
    location = _location({"HOME": "/home/a", **dict(SYSTEM.isolation(tmp_path).environment)})
    assert location.root == str(tmp_path / "ComputeCache") and location.limit_bytes == 4294967296
    assert not any("MAXSIZE" in problem for problem in location.problems)


def test_a_tree_of_the_known_layout_is_recognised(tmp_path: Path) -> None:
    """Whatever it is called, where index and binaries are there; by its name with either."""
    assert SYSTEM.recognises(tree(tmp_path / "jit"))
    assert SYSTEM.recognises(tree(tmp_path / "ComputeCache", binaries=0))
    assert not SYSTEM.recognises(tree(tmp_path / "other", binaries=0))


@pytest.mark.parametrize(
    "paths", [(), ("ab/cd/00000000000000",), ("index", "ab/00000000000000"), ("index", "ab/cd/name")]
)
def test_other_trees_are_not_recognised(paths: tuple[str, ...], tmp_path: Path) -> None:
    """Other caches have an index, or folders of hexadecimal names."""
    for path in paths:
        file(tmp_path, path)
    assert not SYSTEM.recognises(tmp_path)
    assert not SYSTEM.recognises(tmp_path / "none")
