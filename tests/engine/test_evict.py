"""Removals of a plan from our own cache, whose entries are judged and removed as they are read."""

from pathlib import Path

from gpucache.engine.evict import Limits, plan, run_evict
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Event
from tests.engine.test_eviction_policy import NOW_NS
from tests.faults.conftest import build_entry, own


def _filled(root: Path, seeds: str) -> DirectoryStore:
    store = DirectoryStore(root, writable=True)
    for seed in seeds:
        store.publish(build_entry(seed))
    return store


def test_what_is_read_first_is_gone_before_the_rest_is_read(tmp_path: Path) -> None:
    """No more than one entry of a cache that is emptied is in memory, however large it is."""
    store = _filled(tmp_path, "abcd")
    cache = own(store)
    outcomes = run_evict(cache, plan(cache.entries(), Limits(everything=True), NOW_NS))
    assert next(outcomes).removed
    added = build_entry("e")
    rest = {one.key for one in store.scan()} | {added.key}
    store.publish(added)
    assert len(rest) == 4
    gone = {outcome.removal.entry.key for outcome in outcomes}
    assert gone <= {key.hex for key in rest} and len(gone) >= 3


def test_what_was_used_since_it_was_ranked_stays(tmp_path: Path) -> None:
    """A size limit removes the least recently used entries, but not one that was used since the plan."""
    store = _filled(tmp_path, "abcd")
    cache = own(store)
    ranked = plan(cache.entries(), Limits(max_size_bytes=1), NOW_NS)
    used = build_entry("b").key
    store.get(used)
    assert all(outcome.removed for outcome in run_evict(cache, ranked))
    assert [one.key for one in store.scan()] == [used]


def test_all_is_known_to_go_before_it_goes(tmp_path: Path) -> None:
    """A removal of everything that is interrupted leaves a record for every entry that is gone."""
    store = _filled(tmp_path, "ab")
    store.history.record("saxpy", Event(1, "built", build_entry("a").key.hex, "cuda:sm_90"))
    cache = own(store)
    found = plan(cache.entries(), Limits(everything=True), NOW_NS)
    assert store.history.removed("saxpy") is None
    assert next(run_evict(cache, found)).removed
    removed = store.history.removed("saxpy")
    assert removed is not None and removed.why == "--all" and store.history.events("saxpy")


def test_what_goes_whole_need_not_be_read(tmp_path: Path) -> None:
    """Names and sizes are enough if everything goes, but not in a root without our mark."""
    store = _filled(tmp_path, "abc")
    for path in tmp_path.rglob("*.gpc"):
        path.write_bytes(b"no entry")
    cache = own(store)
    found = list(cache.entries(heads=False))
    assert len(found) == 3 and not any(one.damage or one.program for one in found)
    assert {one.key for one in found} == {build_entry(seed).key.hex for seed in "abc"}
    (tmp_path / "CACHEDIR.TAG").unlink()
    outcomes = list(run_evict(cache, plan(cache.entries(heads=False), Limits(everything=True), NOW_NS)))
    assert [one.stays for one in outcomes] == [True] * 3 and len(list(store.scan())) == 3
