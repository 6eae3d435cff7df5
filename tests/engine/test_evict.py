"""Removals of a plan from our own cache, whose entries are judged and removed as they are read."""

from pathlib import Path

from gpucache.engine.evict import plan_evict, run_evict
from gpucache.engine.eviction_policy import Limits
from gpucache.store import DirectoryStore
from tests.engine.test_eviction_policy import NOW_NS
from tests.faults.conftest import build_entry
from tests.faults.killed_process import own


def _filled(root: Path, seeds: str) -> DirectoryStore:
    store = DirectoryStore(root, writable=True)
    for seed in seeds:
        store.publish(build_entry(seed))
    return store


def test_what_is_read_first_is_gone_before_the_rest_is_read(tmp_path: Path) -> None:
    """No more than one entry is held of a cache that is emptied, however large it is."""
    store = _filled(tmp_path, "abcd")
    cache = own(store)
    outcomes = run_evict(cache, plan_evict(cache, Limits(everything=True), NOW_NS))
    assert next(outcomes).removed
    added = build_entry("e")
    rest = {one.key for one in store.scan()} | {added.key}
    store.publish(added)
    assert len(rest) == 4
    gone = {outcome.removal.entry.key for outcome in outcomes}
    assert gone <= {key.hex for key in rest} and len(gone) >= 3


def test_what_was_used_since_it_was_ranked_stays(tmp_path: Path) -> None:
    """A size limit takes the least recently used; one of these that is used meanwhile is none any more."""
    store = _filled(tmp_path, "abcd")
    cache = own(store)
    plan = plan_evict(cache, Limits(max_size_bytes=1), NOW_NS)
    used = build_entry("b").key
    store.get(used)
    assert all(outcome.removed for outcome in run_evict(cache, plan))
    assert [one.key for one in store.scan()] == [used]
