"""Where NVIDIA's driver keeps its shaders, how much of them, and how its folder is told from another."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gpucache.answers.entries import Location
from gpucache.caches.registry import of_others, system_at

SYSTEM = of_others("nvidia-gl")

GIB = 1 << 30
PATH, SIZE = "__GL_SHADER_DISK_CACHE_PATH", "__GL_SHADER_DISK_CACHE_SIZE"


def _lay(root: Path) -> Path:
    """What a program left in a cache."""
    file = root / ("ab" * 16) / ("cd" * 8) / (8 * "ef" + ".toc")
    file.parent.mkdir(parents=True)
    file.write_bytes(b"CDVN" + bytes(28))
    return root


def _only(environ: Mapping[str, str]) -> Location:
    (location,) = SYSTEM.locations(environ)
    return location


def test_the_variable_names_the_folder_above(tmp_path: Path) -> None:
    """It has to be there, or nothing is kept, which is told with the remedy."""
    missing = _only({PATH: str(tmp_path / "none"), "HOME": str(tmp_path)})
    assert not missing.enabled and any(f"mkdir -p {tmp_path}/none" in one for one in missing.problems)
    root = _lay(tmp_path / "GLCache")
    found = _only({PATH: str(tmp_path), "HOME": "/nowhere"})
    assert (found.root, found.decided_by, found.enabled) == (str(root), PATH, True)


@pytest.mark.parametrize(
    ("variable", "below"), [("HOME", ".cache/nvidia/GLCache"), ("XDG_CACHE_HOME", "nvidia/GLCache")]
)
def test_an_older_place_is_used_while_it_is_there(tmp_path: Path, variable: str, below: str) -> None:
    """Then the newer one is not looked into, and the limit is the older one."""
    environ = {variable: str(tmp_path)}
    newer = _lay(tmp_path / below)
    assert (_only(environ).root, _only(environ).limit_bytes) == (str(newer), GIB)
    older = _lay(tmp_path / ".nv" / "GLCache")
    used, dead = SYSTEM.locations(environ)
    assert (used.root, used.enabled, used.limit_bytes) == (str(older), True, 128 << 20)
    assert (dead.root, dead.enabled) == (str(newer), False)
    assert f"as long as {older} is there" in dead.problems[0]


@pytest.mark.parametrize(
    ("environ", "limit"),
    [
        ({SIZE: "10737418240"}, 10 * GIB),
        ({SIZE: "10G"}, GIB),
        ({SIZE: "5", "__GL_SHADER_DISK_CACHE_SKIP_CLEANUP": "1"}, None),
    ],
)
def test_how_much_is_kept(tmp_path: Path, environ: Mapping[str, str], limit: int | None) -> None:
    """As many bytes as the variable says, and without an end where nothing is cleaned up."""
    location = _only({"HOME": str(tmp_path), **environ})
    assert location.limit_bytes == limit
    assert any("is not a number of bytes" in one for one in location.problems) == (environ[SIZE] == "10G")


def test_turned_off_it_is_not_in_use(tmp_path: Path) -> None:
    """Wherever it lies."""
    for root in (".nv/GLCache", ".cache/nvidia/GLCache"):
        _lay(tmp_path / root)
    environ = {"HOME": str(tmp_path), "__GL_SHADER_DISK_CACHE": "0"}
    used, dead = SYSTEM.locations(environ)
    assert not used.enabled and not dead.enabled and "__GL_SHADER_DISK_CACHE=0" in used.problems[0]


def test_it_is_recognised_by_its_names(tmp_path: Path) -> None:
    """A path alone says whose it is."""
    assert system_at(_lay(tmp_path / "GLCache")) is SYSTEM
