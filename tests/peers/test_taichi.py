"""Taichi's own cache on this CPU: Taichi's behaviour with damage and after a repair."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind, Location
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds
from tests.patience import PATIENCE_S

SYSTEM = of_others("taichi")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("taichi") is None, reason="Taichi is not installed"),
]

_PROGRAM = """
import taichi as ti
ti.init(arch=ti.cpu)

@ti.kernel
def total(count: ti.i32) -> ti.i32:
    found = 0
    for number in range(count):
        found += number
    return found

assert total(10) == 45
"""


def _run(root: Path) -> dict[str, int]:
    """The files of kernels after a run, with the time at which each was written."""
    program = root.parent / "program.py"
    program.write_text(_PROGRAM, encoding="ascii")
    environ = {**os.environ, "TI_OFFLINE_CACHE_FILE_PATH": str(root)}
    subprocess.run(
        [sys.executable, program], env=environ, capture_output=True, timeout=PATIENCE_S, check=True
    )
    return {path.name: path.stat().st_size for path in root.glob("*.tic")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("taichi") / "cache"
    assert len(_run(root)) == 1
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "cache"))


def test_what_taichi_writes_is_sound(root: Path) -> None:
    """A kernel of this CPU, with its row."""
    cache = SYSTEM.open(Location("taichi", str(root), "--cache", enabled=True))
    (entry,) = cache.scan()
    assert entry.program == "total" and entry.target in ("x64", "arm64")
    assert not cache.check(entry).findings and not list(cache.leftovers())
    assert cache.extract(entry).startswith(b"; ModuleID")


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 10)


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (_cut, FindingKind.TRUNCATED),
        (_flipped, FindingKind.CORRUPT),
        (_emptied, FindingKind.TRUNCATED),
        (Path.unlink, None),
    ],
)
def test_taichi_never_writes_a_damaged_kernel_anew_until_a_repair(
    damage: Callable[[Path], None], kind: FindingKind | None, root: Path
) -> None:
    """As in the findings: a missing file or any damaged one."""
    (path,) = root.glob("*.tic")
    sound = path.read_bytes()
    damage(path)
    damaged = path.read_bytes() if path.exists() else None
    _run(root)
    assert (path.read_bytes() if path.exists() else None) == damaged
    cache = SYSTEM.open(Location("taichi", str(root), "--cache", enabled=True))
    for entry in cache.scan():
        checked = cache.check(entry)
        assert kinds(checked) == [kind] and cache.repair(checked, entry).findings[0].repaired
    for checked in cache.leftovers():
        assert kind is None and cache.repair(checked, None).findings[0].repaired
    assert _run(root) == {path.name: len(sound)}
