"""CuPy's own reader and writer of its cache, which need no GPU, held against what is told of its files.

They are loaded from where CuPy is installed without importing it, as that would want a driver.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.registry import of_others
from tests.caches.cupy.build import key
from tests.caches.opened import PTX, kinds

SYSTEM = of_others("cupy")

_FOUND = importlib.util.find_spec("cupy")

pytestmark = pytest.mark.skipif(_FOUND is None, reason="CuPy is not installed")


@pytest.fixture
def owner(tmp_path: Path) -> Any:
    """CuPy's cache on disk in a folder of its own, which keeps no sources."""
    assert _FOUND is not None and _FOUND.submodule_search_locations is not None
    path = Path(_FOUND.submodule_search_locations[0], "cuda", "_compiler_cache.py")
    spec = importlib.util.spec_from_file_location("cupy_compiler_cache", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.DiskKernelCacheBackend(str(tmp_path))


def test_what_cupy_writes_is_sound_and_gives_what_it_was_given(owner: Any, tmp_path: Path) -> None:
    """Byte by byte."""
    owner.save(f"{key(0)}.cubin", PTX, "source")
    cache = SYSTEM.open(Location("cupy", str(tmp_path), "--cache", enabled=True))
    (entry,) = cache.scan()
    assert not cache.check(entry).findings and not list(cache.leftovers())
    assert cache.extract(entry) == PTX == owner.load(f"{key(0)}.cubin")


def _cut(data: bytes) -> bytes:
    return data[:-1]


def _flipped(data: bytes) -> bytes:
    return data[:50] + bytes([data[50] ^ 1]) + data[51:]


def _emptied(_: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [_cut, _flipped, _emptied])
def test_damage_is_a_miss_to_cupy_and_is_written_anew(
    damage: Callable[[bytes], bytes], owner: Any, tmp_path: Path
) -> None:
    """As the finding says."""
    name = f"{key(0)}.cubin"
    owner.save(name, PTX, "source")
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    cache = SYSTEM.open(Location("cupy", str(tmp_path), "--cache", enabled=True))
    (checked,) = (cache.check(entry) for entry in cache.scan())
    assert kinds(checked)[0] in (FindingKind.CORRUPT, FindingKind.TRUNCATED)
    assert "takes it for a miss" in checked.findings[0].detail and owner.load(name) is None
    owner.save(name, PTX, "source")
    assert owner.load(name) == PTX
