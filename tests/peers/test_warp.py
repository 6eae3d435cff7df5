"""Warp's own cache on this CPU, and what Warp does with damage and after a repair."""

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds
from tests.children import run_text

SYSTEM = of_others("warp")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("warp") is None, reason="Warp is not installed"),
]

_PROGRAM = """
import warp as wp

@wp.kernel
def scale(x: wp.array(dtype=float), factor: float):
    x[wp.tid()] *= factor

x = wp.array([1.0, 2.0], dtype=float, device="cpu")
wp.launch(scale, dim=2, inputs=[x, 3.0], device="cpu")
assert x.numpy().tolist() == [3.0, 6.0]
"""


def _run(root: Path) -> str:
    """What became of the module: compiled, cached or failed."""
    program = root.parent / "program.py"
    program.write_text(_PROGRAM, encoding="ascii")
    environ = {**os.environ, "WARP_CACHE_PATH": str(root)}
    done = run_text([sys.executable, program], env=environ, timeout=300)
    if done.returncode:
        return "failed"
    return "compiled" if "(compiled)" in done.stdout else "cached"


def _binary_cut(folder: Path) -> None:
    path = next(folder.glob("*.o"))
    path.write_bytes(path.read_bytes()[:1000])


def _meta_cut(folder: Path) -> None:
    next(folder.glob("*.meta")).write_bytes(b'{"')


def _meta_gone(folder: Path) -> None:
    next(folder.glob("*.meta")).unlink()


@pytest.mark.parametrize(
    ("damage", "kind", "becomes"),
    [
        (_binary_cut, FindingKind.CORRUPT, "failed"),
        (_meta_cut, FindingKind.CORRUPT, "failed"),
        (_meta_gone, FindingKind.TRUNCATED, None),
    ],
)
def test_damage_is_found_and_after_a_repair_warp_compiles_once(
    damage: Callable[[Path], None], kind: FindingKind, becomes: str | None, tmp_path: Path
) -> None:
    """Warp itself fails of a broken file at every start, as the finding says; what it wrote was sound."""
    root = tmp_path / "cache"
    assert _run(root) == "compiled"
    cache = SYSTEM.open(Location("warp", str(root), "--cache", enabled=True))
    (entry,) = cache.scan()
    assert entry.target == "cpu" and not cache.check(entry).findings and not list(cache.leftovers())
    damage(Path(entry.path).parent)
    (entry,) = cache.scan()
    checked = cache.check(entry)
    assert kinds(checked) == [kind]
    if becomes:
        assert _run(root) == becomes
    assert cache.repair(checked, entry).findings[0].repaired
    assert _run(root) == "compiled" and _run(root) == "cached"
