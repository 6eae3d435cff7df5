"""The generator of large caches, on a small scale: its entries are sound and its misses are explained."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from gpucache.answers.entries import CacheEntry
from gpucache.answers.lookup import Hit, Miss, Verdict
from gpucache.answers.verify import Checked, Finding
from gpucache.assembly import open_cache
from gpucache.engine import verify
from gpucache.engine.lookup import find, look_up
from gpucache.engine.selection import Opened
from gpucache.engine.staleness import Origins
from gpucache.engine.stores import Stores
from gpucache.engine.verify import run_shares, run_verify
from gpucache.keys import cache_key
from gpucache.model import Entry, KeyField
from gpucache.settings import Settings
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import ScannedEntry
from tests.benchmarks.large_cache import CREATED_NS, make_cache, wanted


@pytest.fixture
def made(tmp_path: Path) -> Callable[[int, int], Path]:
    def make(programs: int, entries_each: int) -> Path:
        make_cache(tmp_path / "root", programs, entries_each)
        return tmp_path / "root"

    return make


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_large_cache_is_verified_as_a_small_one(made: Callable[[int, int], Path]) -> None:
    """The findings are the same if cores share the entries, and few outcomes stand for all sound ones."""
    root = made(60, 3)
    first, second, *_ = sorted(root.rglob("*.gpc"))
    first.write_bytes(first.read_bytes()[:-1])
    second.write_bytes(second.read_bytes()[:-1] + b"?")
    first.with_name("thesis.txt").write_text("a year of work")
    cache = open_cache(Settings(root, "test"))

    def told(found: Iterable[tuple[Checked, CacheEntry | None]]) -> list[tuple[bool, tuple[Finding, ...]]]:
        every = ([(entry is not None, one.findings)] * (one.counts or 1) for one, entry in found)
        return sorted(chain.from_iterable(every))

    alone = told(run_verify(cache, None))
    shared = list(run_shares(cache, 10**6, Origins()))
    assert told(shared) == alone and len(shared) < 10
    assert [len(findings) for _, findings in alone].count(1) == 3 and len(alone) == 181


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("days", [10, 0])
def test_superseded_entries_of_a_large_cache_are_found(
    made: Callable[[int, int], Path], monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """A newer version of an entry is found among those that other processes read; without one nothing is read
    twice."""
    root = made(8, 3)
    cache = open_cache(Settings(root, "test"))
    store = DirectoryStore(root, writable=True)
    old = next(iter(store.scan()))
    whole = store.check(old)
    assert isinstance(whole, Entry)
    for number in range(2 if days else 1):
        created_ns = CREATED_NS + number * days * 86_400 * 10**9
        fields = (*whole.detail.key_fields, KeyField("number", str(number)))
        head = whole.head._replace(created_ns=created_ns, place="here", program="twice")
        detail = whole.detail._replace(key_fields=fields)
        store.publish(whole._replace(key=cache_key(fields), head=head, detail=detail))

    def found(share: int) -> list[Finding]:
        monkeypatch.setattr(verify, "_WORTH_A_SHARE", share)
        opened = Opened(Settings(root, "test"), (cache,))
        told = verify.verify_caches(opened, (), {}, lambda _: (), lambda *_: None, repair=False, whole=False)
        return [finding for one in told for finding in one.findings]

    alone = found(10**9)
    assert found(2) == alone and len(alone) == bool(days)
    scans = 0

    def scan(_: DirectoryStore, *, heads: bool = True) -> Iterator[ScannedEntry]:
        nonlocal scans
        scans += 1
        yield from store_scan(store, heads=heads)

    store_scan = DirectoryStore.scan
    monkeypatch.setattr(DirectoryStore, "scan", scan)
    found(2)
    assert scans == (2 if days else 0)


def test_entries_hit_and_histories_explain(made: Callable[[int, int], Path]) -> None:
    """A generated entry is a hit; another value is explained by the nearest entry of its program."""
    stores = Stores(user=DirectoryStore(made(5, 3), writable=False))
    assert isinstance(find(stores, wanted(3, 2)), Hit)
    miss = look_up(stores, wanted(3, 9))
    assert isinstance(miss, Miss) and miss.verdict is Verdict.KEY_CHANGED
    assert miss.detail.startswith("the define VALUE: 2 -> 9 (")
