"""Numba's own cache on this CPU, and what Numba does with damage and after a repair."""

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

SYSTEM = of_others("numba")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="Numba is not installed"),
]

_PROGRAM = """
import numba

@numba.njit(cache=True)
def scale(x):
    return 2 * x

assert scale(3) == 6
"""


def _run(root: Path) -> str:
    """What became of the function: saved, loaded or failed."""
    program = root.parent / "program.py"
    if not program.exists():
        program.write_text(_PROGRAM, encoding="ascii")
    environ = {**os.environ, "NUMBA_CACHE_DIR": str(root), "NUMBA_DEBUG_CACHE": "1"}
    done = run_text([sys.executable, program], env=environ, timeout=300)
    if done.returncode:
        return "failed"
    return "saved" if "data saved" in done.stdout else "loaded"


def _index_cut(index: Path) -> None:
    index.write_bytes(index.read_bytes()[:100])


def _data_cut(index: Path) -> None:
    path = next(index.parent.glob("*.nbc"))
    path.write_bytes(path.read_bytes()[:1000])


def _data_gone(index: Path) -> None:
    next(index.parent.glob("*.nbc")).unlink()


@pytest.mark.parametrize(
    ("damage", "becomes"), [(_index_cut, "failed"), (_data_cut, "failed"), (_data_gone, None)]
)
def test_damage_is_found_and_after_a_repair_numba_compiles_once(
    damage: Callable[[Path], None], becomes: str | None, tmp_path: Path
) -> None:
    """Numba itself fails of a broken file at every start, as the finding says; what it wrote was sound."""
    root = tmp_path / "cache"
    assert (_run(root), _run(root)) == ("saved", "loaded")
    cache = SYSTEM.open(Location("numba", str(root), "--cache", enabled=True))
    (entry,) = cache.scan()
    assert entry.program == "program.scale" and not cache.check(entry).findings
    assert not list(cache.leftovers())
    damage(Path(entry.path))
    (entry,) = cache.scan()
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.TRUNCATED]
    if becomes:
        assert _run(root) == becomes
    assert cache.repair(checked, entry).findings[0].repaired
    assert (_run(root), _run(root)) == ("saved", "loaded")
