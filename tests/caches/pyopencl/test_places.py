"""Where PyOpenCL's caches are, and how they are recognised."""

from pathlib import Path

import pytest

from gpucache.caches.pyopencl import locations
from gpucache.caches.registry import of_others
from tests.caches.pyopencl.build import opened, write

SYSTEM = of_others("pyopencl")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, ("/x/pyopencl", "XDG_CACHE_HOME")),
        ({"HOME": "/h", "XDG_CACHE_HOME": "x"}, ("/h/.cache/pyopencl", "HOME")),
        ({"HOME": "/h"}, ("/h/.cache/pyopencl", "HOME")),
    ],
)
def test_the_folder_of_all_pythons(environ: dict[str, str], expected: tuple[str, str]) -> None:
    """A relative directory of caches is ignored, and the variable that decided is named."""
    (found,) = SYSTEM.locations(environ)
    assert (found.root, found.decided_by) == expected


def test_each_python_has_a_location(root: Path) -> None:
    """This Python's directory comes first, then the newest; what is no such directory has none."""
    for name in ("3.9.18.final.0", "3.20.0.candidate.1", "3.10.2.final.0"):
        (root.parent / f"pyopencl-compiler-cache-v2-py{name}").mkdir()
    (root.parent / "other").mkdir()
    (root.parent / "pyopencl-compiler-cache-v2-py3.8.1.final.0").write_bytes(b"")
    found = SYSTEM.locations({"XDG_CACHE_HOME": str(root.parents[1])})
    own = f"Python {locations.own_python()}"
    assert [one.role for one in found] == [own, "Python 3.20.0rc1", "Python 3.10.2", "Python 3.9.18"]
    assert found[0].root == str(root)


def test_what_is_recognised(root: Path, key: str, tmp_path: Path) -> None:
    """A version's directory, a directory of such, and any directory with an entry are; others are not."""
    write(tmp_path / "mine", key)
    (tmp_path / "other" / key).mkdir(parents=True)
    (tmp_path / "other" / key / "something").write_bytes(b"")
    yes = [root, root.parent, tmp_path / "mine"]
    no = [tmp_path, tmp_path / "other", tmp_path / "none", tmp_path / "mine" / key / "info", Path("a\0b")]
    assert [SYSTEM.recognises(path) for path in (*yes, *no)] == [True] * 3 + [False] * 5


def test_a_folder_of_all_pythons_is_one_cache(root: Path, key: str) -> None:
    """Opened by its place, the directory of all Pythons has the entries of each."""
    write(root, key)
    write(root.parent / "pyopencl-compiler-cache-v2-py3.9.18.final.0", key[::-1])
    assert [entry.key for entry in opened(root.parent).scan()] == [key, key[::-1]]


def test_another_pythons_folder_is_its_own(root: Path) -> None:
    """Programs of that Python may be in daily use, so nothing is said of it but by its entries' last uses."""
    (root.parent / "pyopencl-compiler-cache-v2-py3.9.18.final.0").mkdir()
    assert list(opened(root.parent).leftovers()) == []


def test_an_empty_folder_of_another_python_goes(root: Path, key: str) -> None:
    """Once the entries of another Python are gone, so is its directory; this Python's stays."""
    other = root.parent / "pyopencl-compiler-cache-v2-py3.9.18.final.0"
    write(other, key)
    cache = opened(root.parent)
    assert cache.finish_removals() == ()
    assert [cache.remove(entry, "test") for entry in cache.scan()] == [None]
    assert len(cache.finish_removals()) == 1
    assert [path.name for path in root.parent.iterdir()] == [root.name]


def test_isolation_says_what_else_moves() -> None:
    """The variable that moves the cache moves others, which is said."""
    isolation = SYSTEM.isolation(Path("/private"))
    assert isolation.environment == (("XDG_CACHE_HOME", "/private"),)
    assert "every cache" in isolation.lacking
