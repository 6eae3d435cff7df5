"""TileLang's own cache, made for an absent GPU and for the CPU, and TileLang's use of it."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import CacheEntry, FindingKind
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds, opened
from tests.patience import PATIENCE_S

SYSTEM = of_others("tilelang")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("tilelang") is None, reason="TileLang is not installed"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc, which TileLang compiles with, is missing"),
]

_PROGRAM = """
import logging
import tilelang, tilelang.language as T

@T.prim_func
def scale(A: T.Tensor((1024,), "float32"), B: T.Tensor((1024,), "float32")):
    with T.Kernel(8, threads=128) as bx:
        for i in T.Parallel(128):
            B[bx * 128 + i] = A[bx * 128 + i] * 2.0

told = []
class Told(logging.Handler):
    def emit(self, record):
        told.append(record.getMessage())
logging.getLogger("tilelang.cache.kernel_cache").addHandler(Told())
for target in ({"kind": "cuda", "arch": "sm_90"}, "c"):
    tilelang.compile(scale, out_idx=[1], target=target, verbose=True)
print(*("hit" if one.startswith("Found kernel") else "miss" for one in told
        if one.startswith(("Found kernel", "No cached"))), file=open("said", "w"))
"""


def _run(root: Path) -> str:
    """The messages of TileLang's cache about its two compiles."""
    program = root.parent / "program.py"
    program.write_text(_PROGRAM, encoding="ascii")
    environ = {**os.environ, "TILELANG_CACHE_DIR": str(root)}
    subprocess.run(
        [sys.executable, program],
        env=environ,
        cwd=root.parent,
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return (root.parent / "said").read_text(encoding="ascii").strip()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a kernel for two targets."""
    root = tmp_path_factory.mktemp("tilelang") / "cache"
    assert _run(root) == "miss miss"
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "cache")


def _held(root: Path, holds: str, target: str) -> tuple[Cache, CacheEntry]:
    cache = opened(SYSTEM, root)
    (found,) = (one for one in cache.scan() if ("holds", holds) in one.fields and one.target == target)
    return cache, found


def test_what_tilelang_writes_is_sound_and_says_what_it_is(root: Path) -> None:
    """A kernel for each target, and the cubin that is in the first; a copied cache is hit, too."""
    cache = opened(SYSTEM, root)
    found = sorted((dict(one.fields)["holds"], one.target, one.artifact_kind) for one in cache.scan())
    assert found == [
        ("cuda-binaries", "cuda:sm_90", "cubin"), ("kernels", "", "elf"), ("kernels", "cuda:sm_90", "elf"),
    ]  # fmt: skip
    assert _held(root, "kernels", "cuda:sm_90")[1].program == "scale_kernel"
    assert not [one for entry in cache.scan() for one in cache.check(entry).findings]
    assert not list(cache.leftovers()) and _run(root) == "hit hit"


def _library_cut(folder: Path) -> None:
    path = folder / "executable.so"
    path.write_bytes(path.read_bytes()[:10_000])


def _parameters_changed(folder: Path) -> None:
    path = folder / "params.json"
    path.write_bytes(path.read_bytes().replace(b"1024", b"2048"))


def _manifest_gone(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def _source_changed(folder: Path) -> None:
    path = folder / "device_kernel.cu"
    path.write_bytes(path.read_bytes().replace(b"scale", b"scald"))


@pytest.mark.parametrize(
    ("damage", "kind", "served"),
    [
        (_library_cut, FindingKind.TRUNCATED, "miss hit"),
        (_parameters_changed, FindingKind.CORRUPT, "miss hit"),
        (_manifest_gone, FindingKind.TRUNCATED, "miss hit"),
        (_source_changed, FindingKind.CORRUPT, "hit hit"),
    ],
)
def test_damage_is_found_and_tilelang_does_with_it_what_findings_say(
    damage: Callable[[Path], None], kind: FindingKind, served: str, root: Path
) -> None:
    """It compares all but the sources; after a repair it compiles only that kernel."""
    cache, entry = _held(root, "kernels", "cuda:sm_90")
    folder = Path(entry.path).parent
    damage(folder)
    checked = cache.check(cache.find(entry.key)[0])
    assert kinds(checked) == [kind]
    kept = shutil.copytree(root, root.with_name("kept"))
    assert _run(kept) == served
    assert cache.repair(checked, cache.find(entry.key)[0]).findings[0].repaired and not folder.exists()
    assert _run(root) == "miss hit"


def test_a_broken_cubin_is_never_written_anew_until_it_is_removed(root: Path) -> None:
    """It is compiled at every start instead, unless its kernel is cached."""
    cache, entry = _held(root, "cuda-binaries", "cuda:sm_90")
    path = Path(entry.path)
    cut = path.read_bytes()[:100]
    path.write_bytes(cut)
    _, kernel = _held(root, "kernels", "cuda:sm_90")
    assert cache.remove(kernel, "test") is None and _run(root) == "miss hit"
    assert path.read_bytes() == cut
    (entry,) = cache.find(entry.key)
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.TRUNCATED] and cache.repair(checked, entry).findings[0].repaired
    assert cache.remove(_held(root, "kernels", "cuda:sm_90")[1], "test") is None
    assert _run(root) == "miss hit" and not cache.check(cache.find(entry.key)[0]).findings
