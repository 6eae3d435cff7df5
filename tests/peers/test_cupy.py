"""CuPy's own reader and writer of its cache, which need no GPU, against our reading of its files.

They are loaded from CuPy's installation without importing it, as that would need a driver.
"""

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.registry import of_others
from tests.caches.cupy.build import key
from tests.caches.opened import PTX, kinds
from tests.children import run_text

SYSTEM = of_others("cupy")

_FOUND = importlib.util.find_spec("cupy")

pytestmark = pytest.mark.skipif(_FOUND is None, reason="CuPy is not installed")


@pytest.fixture
def owner(tmp_path: Path) -> Any:
    """CuPy's cache on disk in its own directory, which keeps no sources."""
    assert _FOUND is not None and _FOUND.submodule_search_locations is not None
    path = Path(_FOUND.submodule_search_locations[0], "cuda", "_compiler_cache.py")
    spec = importlib.util.spec_from_file_location("cupy_compiler_cache", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.DiskKernelCacheBackend(str(tmp_path))


def test_what_cupy_writes_is_sound_and_gives_what_it_was_given(owner: Any, tmp_path: Path) -> None:
    """Byte for byte."""
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
    """CuPy's behaviour is as in the finding."""
    name = f"{key(0)}.cubin"
    owner.save(name, PTX, "source")
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    cache = SYSTEM.open(Location("cupy", str(tmp_path), "--cache", enabled=True))
    (checked,) = (cache.check(entry) for entry in cache.scan())
    assert kinds(checked)[0] in (FindingKind.CORRUPT, FindingKind.TRUNCATED)
    assert "takes it for a miss" in checked.findings[0].detail and owner.load(name) is None
    owner.save(name, PTX, "source")
    assert owner.load(name) == PTX


# LTO-IR is not loaded, so CuPy's whole way to NVRTC and back runs here, except its queries of the device.
_INSTALLED = """
import gpucache.cupy
from cupy.cuda import compiler

compiler._get_arch_for_options_for_nvrtc = lambda arch: ("compute_90", "cubin")
gpucache.cupy.install()
for factor in (2, 3):
    source = 'extern "C" __global__ void scale(float *y) { y[threadIdx.x] *= %d; }' % factor
    print(compiler._compile_with_cache_cuda(source, (), "90", to_ltoir=True).hex())
ours = compiler._kernel_cache_backend
if ours.load("name.cubin") is None:
    ours.save("name.cubin", b"\\x93CUPYNE any bytes", "of any source")
print(ours.load("name.cubin"))
"""


@pytest.mark.slow
def test_our_store_serves_what_cupy_compiled(tmp_path: Path) -> None:
    """A second start hits every kernel; one whose entry is damaged is compiled again."""

    def started() -> tuple[str, list[str]]:
        here = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        ours = {"GPUCACHE_DIR": str(tmp_path / "root"), "GPUCACHE_LOG": "info", "PYTHONPATH": here}
        environ = {**os.environ, **ours, "CUPY_CACHE_DIR": str(tmp_path / "cupy")}
        command = [sys.executable, "-W", "ignore", "-c", _INSTALLED]
        done = run_text(command, env=environ, check=True)
        lines = [line.removeprefix("gpucache: ").split() for line in done.stderr.splitlines()]
        told = [line for line in lines if line[:1] in (["hit"], ["miss"])]
        return done.stdout, [line[0] if line[0] == "hit" else line[4] for line in told]

    first, told = started()
    assert told == ["never-built:", "key-changed:", "never-built:", "hit"]
    second, told = started()
    assert (second, told) == (first, ["hit"] * 4)
    assert not [*(tmp_path / "cupy").iterdir()]
    for entry in (tmp_path / "root").rglob("*.gpc"):
        entry.write_bytes(entry.read_bytes()[:-1])
    assert started()[1] == ["corrupt:", "corrupt:", "corrupt:", "hit"]
