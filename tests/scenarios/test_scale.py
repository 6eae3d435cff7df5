"""The generator of large caches, in small: what it writes is sound and explains itself."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from gpucache.assembly import open_cache
from gpucache.engine.layers import Layers
from gpucache.engine.lookup import find, look_up
from gpucache.outcomes import Hit, Miss, Verdict
from gpucache.settings import Settings
from gpucache.store import DirectoryStore
from tests.patience import PATIENCE_S

_GENERATOR = Path(__file__).parents[1] / "scale.py"


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("scale", _GENERATOR)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def made(scale: ModuleType, tmp_path: Path) -> Callable[[int, int], Path]:
    def make(programs: int, entries_each: int) -> Path:
        scale.make_cache(tmp_path / "root", programs, entries_each)
        return tmp_path / "root"

    return make


def test_every_entry_is_sound(made: Callable[[int, int], Path]) -> None:
    """Verify finds nothing wrong, and nothing beside the entries."""
    cache = open_cache(Settings(made(20, 3), "test"))
    checked = [cache.check(entry) for entry in cache.scan()]
    assert len(checked) == 60
    assert [finding for one in checked for finding in one.findings] == []
    assert list(cache.leftovers()) == []


def test_entries_hit_and_histories_explain(made: Callable[[int, int], Path], scale: ModuleType) -> None:
    """What was made is a hit; another value is explained by the nearest entry of its program."""
    layers = Layers(user=DirectoryStore(made(5, 3), writable=False))
    assert isinstance(find(layers, scale.wanted(3, 2)), Hit)
    miss = look_up(layers, scale.wanted(3, 9))
    assert isinstance(miss, Miss) and miss.verdict is Verdict.KEY_CHANGED
    assert miss.detail.startswith("the define VALUE: 2 -> 9 (")


def test_the_generator_runs_by_itself(tmp_path: Path) -> None:
    """As a program it makes as many entries as it is asked for."""
    command = [sys.executable, str(_GENERATOR), str(tmp_path / "root"), "--programs", "2", "--entries", "3"]
    subprocess.run(command, check=True, timeout=PATIENCE_S, env=dict(os.environ))
    assert len(list((tmp_path / "root").rglob("*.gpc"))) == 6
