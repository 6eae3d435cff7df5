"""TorchInductor's own caches, made by torch.compile for the CPU, and its behaviour with broken ones."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds, opened
from tests.patience import PATIENCE_S

SYSTEM = of_others("inductor")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++, its compiler, is missing"),
]

_PROGRAM = """
import torch
from torch._dynamo.utils import counters

def f(x, y):
    return torch.nn.functional.gelu(x @ y) + x.sum()

torch.compile(f)(torch.ones(64, 64), torch.ones(64, 64))
print("hits", counters["aot_autograd"]["autograd_cache_hit"], counters["inductor"]["fxgraph_cache_hit"])
"""


def _run(root: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(root)}
    command = [sys.executable, "-c", _PROGRAM]
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("inductor") / "cache"
    assert "hits 0 0" in _run(root).stdout
    return root


@pytest.fixture
def root(made: Path) -> Path:
    """The same, which a test may damage: at its original place, as graphs name their code by that."""
    kept = made.with_name("kept")
    if not kept.exists():
        shutil.copytree(made, kept)
    shutil.rmtree(made)
    shutil.copytree(kept, made)
    return made


def test_what_it_writes_is_sound_and_no_stranger(root: Path) -> None:
    """Two graphs, their module and libraries; the next start finds both graphs."""
    cache = opened(SYSTEM, root)
    found = [entry.artifact_kind for entry in cache.scan()]
    assert sorted(set(found)) == [
        "compiled graph", "compiled graph with gradients", "generated code", "library",
    ]  # fmt: skip
    assert not [one for entry in cache.scan() for one in cache.check(entry).findings]
    assert not list(cache.leftovers()) and "hits 1 1" in _run(root).stdout


def _library_emptied(root: Path) -> Path:
    (path,) = root.glob("*/*.main.so")
    path.write_bytes(b"")
    return path


def _module_changed(root: Path) -> Path:
    (path,) = root.glob("*/*.py")
    path.write_bytes(path.read_bytes() + b"raise SystemExit(7)\n")
    return path


def _graph_cut(root: Path) -> Path:
    (path,) = root.glob("aotautograd/*/*")
    os.truncate(path, 100)
    return path


@pytest.mark.parametrize(
    ("damage", "kind", "status"),
    [
        (_library_emptied, FindingKind.TRUNCATED, 1),
        (_module_changed, FindingKind.CORRUPT, 7),
        (_graph_cut, FindingKind.CORRUPT, 0),
    ],
)
def test_damage_is_found_and_after_a_repair_it_compiles_again(
    damage: Callable[[Path], Path], kind: FindingKind, status: int, root: Path
) -> None:
    """It loads an empty library and runs a changed module; only a cut graph is missed."""
    path = damage(root)
    assert _run(root).returncode == status
    cache = opened(SYSTEM, root)
    (entry,) = (one for one in cache.scan() if Path(one.path).parent == path.parent)
    checked = cache.check(entry)
    assert kinds(checked) == [kind]
    assert cache.repair(checked, entry).findings[0].repaired and not path.exists()
    assert _run(root).returncode == 0 and "hits 1" in _run(root).stdout
