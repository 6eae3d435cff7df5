"""The generator of large caches, on a small scale: its entries are sound and its misses are explained."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.lookup import Hit, Miss, Verdict
from gpucache.answers.verify import Finding
from gpucache.assembly import open_cache
from gpucache.engine.lookup import find, look_up
from gpucache.engine.stores import Stores
from gpucache.engine.verify import run_verify
from gpucache.settings import Settings
from gpucache.store.directory import DirectoryStore
from tests.benchmarks.large_cache import make_cache, wanted


@pytest.fixture
def made(tmp_path: Path) -> Callable[[int, int], Path]:
    def make(programs: int, entries_each: int) -> Path:
        make_cache(tmp_path / "root", programs, entries_each)
        return tmp_path / "root"

    return make


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_large_cache_is_verified_as_a_small_one(made: Callable[[int, int], Path]) -> None:
    """If the entries are distributed among the cores, the findings are the same."""
    root = made(60, 3)
    first, second, *_ = sorted(root.rglob("*.gpc"))
    first.write_bytes(first.read_bytes()[:-1])
    second.write_bytes(second.read_bytes()[:-1] + b"?")
    first.with_name("thesis.txt").write_text("a year of work")
    cache = open_cache(Settings(root, "test"))
    entries = list(cache.scan())
    last = entries[-1].key

    def found(sound_alike: int) -> list[tuple[bool, tuple[Finding, ...]]]:
        checked = run_verify(cache, None, old=lambda one: one.key == last, sound_alike=sound_alike)
        return sorted((entry is not None, one.findings) for one, entry in checked)

    assert found(10**6) == found(0)
    assert [len(findings) for _, findings in found(0)].count(1) == 4 and len(found(0)) == 181


def test_entries_hit_and_histories_explain(made: Callable[[int, int], Path]) -> None:
    """A generated entry is a hit; another value is explained by the nearest entry of its program."""
    stores = Stores(user=DirectoryStore(made(5, 3), writable=False))
    assert isinstance(find(stores, wanted(3, 2)), Hit)
    miss = look_up(stores, wanted(3, 9))
    assert isinstance(miss, Miss) and miss.verdict is Verdict.KEY_CHANGED
    assert miss.detail.startswith("the define VALUE: 2 -> 9 (")
