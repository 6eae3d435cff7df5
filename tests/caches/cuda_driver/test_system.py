"""Where the driver's cache lies, what bounds it, and what is recognised as one."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gpucache.answers.entries import Location
from gpucache.caches.places import Mount
from gpucache.caches.registry import of_others
from tests.caches.cuda_driver.build import file, tree

SYSTEM = of_others("cuda")


def _location(environ: Mapping[str, str]) -> Location:
    (location,) = SYSTEM.locations(environ)
    return location


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
    """Other caches have an index, or directories of hexadecimal names."""
    for path in paths:
        file(tmp_path, path)
    assert not SYSTEM.recognises(tmp_path)
    assert not SYSTEM.recognises(tmp_path / "none")
