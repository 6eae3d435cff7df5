"""Entries in memory: bounded, and safe over fork."""

import os

import pytest

from gpucache.model import Entry
from gpucache.store.interface import Absent, Found
from gpucache.store.memory import ENTRY_OVERHEAD_BYTES, MemoryStore
from tests.children import run_python
from tests.store.conftest import build_entry

_ONE = ENTRY_OVERHEAD_BYTES + 100 + len(build_entry().detail.build_log)


def _kept(store: MemoryStore, *entries: Entry) -> list[bool]:
    return [isinstance(store.get(entry.key), Found) for entry in entries]


def test_least_recently_used_goes_first() -> None:
    """At the limit the entry used longest ago makes room."""
    store = MemoryStore(2 * _ONE)
    a, b, c = (build_entry(seed, bytes(100)) for seed in "abc")
    store.publish(a)
    store.publish(b)
    store.get(a.key)
    store.publish(c)
    assert _kept(store, a, b, c) == [True, False, True]


def test_entry_beyond_the_limit_drives_nobody_out() -> None:
    """An entry that alone is too large is not kept, and the others stay."""
    store = MemoryStore(2 * _ONE)
    small, large = build_entry("a", bytes(100)), build_entry("b", bytes(3 * _ONE))
    store.publish(small)
    store.publish(large)
    assert _kept(store, small, large) == [True, False]


def test_publishing_again_counts_once() -> None:
    """The same key published often takes the room of one."""
    store = MemoryStore(2 * _ONE)
    a, b = build_entry("a", bytes(100)), build_entry("b", bytes(100))
    store.publish(a)
    for _ in range(5):
        store.publish(b)
    assert _kept(store, a, b) == [True, True]


def test_limit_of_zero_turns_it_off() -> None:
    """Nothing is kept, and publishing is not an error."""
    store = MemoryStore(0)
    assert store.publish(build_entry()) > 0
    assert store.get(build_entry().key) == Absent()


# The fork happens while the lock is held, from within the lookup of a key. A child that waits for
# a lock that no process will release is ended by the alarm.
_FORK = """
import os, signal, sys
from gpucache.model import CacheKey
from gpucache.store.interface import Absent
from gpucache.store.memory import MemoryStore

store = MemoryStore(1 << 20)
plain = CacheKey("a" * 64)

class ForkingKey(CacheKey):
    def __hash__(self):
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            os._exit(0 if store.get(plain) == Absent() else 1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

store.get(ForkingKey("b" * 64))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_child_of_a_fork_does_not_inherit_a_held_lock() -> None:
    """A process forked while another thread uses the store can use it too."""
    run_python("-c", _FORK)
