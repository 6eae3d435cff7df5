"""Many processes on one cache, and processes that are killed at the worst moment."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from gpucache.store import Absent, DirectoryStore, Found
from tests.faults.conftest import build_entry

Child = Popen[str]
Start = Callable[[str, Path], Child]
HOUR_NS = 3600 * 10**9
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs locks that the kernel frees")


def _line(child: Child) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def _kill(child: Child) -> None:
    child.kill()
    child.wait()


def _release(child: Child) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def store(root: Path) -> DirectoryStore:
    return DirectoryStore(root, writable=True)


@pytest.mark.parametrize("step", ["os.write", "os.fsync", "os.replace"])
def test_killed_writer_leaves_only_a_leftover(
    start: Start, root: Path, store: DirectoryStore, step: str
) -> None:
    """A writer killed at any step before its rename costs its own entry, and blocks nobody."""
    store.publish(build_entry("other"))
    child = start(f"{step} = block\nstore.publish(build_entry())", root)
    assert _line(child) == "blocked"
    _kill(child)
    assert store.get(build_entry().key) == Absent()
    assert [found.key for found in store.scan()] == [build_entry("other").key]
    (leftover,) = store.leftovers(time.time_ns() + 2 * HOUR_NS)
    store.publish(build_entry())
    assert isinstance(store.get(build_entry().key), Found)
    assert store.remove_leftover(leftover)


_COMPILE = """
say("ready")
sys.stdin.readline()
key = build_entry().key
with store.single_flight(key, 60):
    if isinstance(store.get(key), Found):
        say("hit")
    else:
        store.publish(build_entry())
        say("compiled")
"""


def test_processes_that_want_one_key_compile_it_once(start: Start, root: Path) -> None:
    """Of several processes that miss at once, one compiles and the others find what it published."""
    children = [start(_COMPILE, root) for _ in range(4)]
    for child in children:
        assert _line(child) == "ready"
    for child in children:
        _release(child)
    assert sorted(map(_line, children)) == ["compiled", "hit", "hit", "hit"]
    for child in children:
        child.wait()
    assert list((root / "v1" / "locks").iterdir()) == []


_WAIT = """
say("waiting")
with store.single_flight(build_entry().key, 60) as held:
    say(held)
"""
_HOLD = "with store.single_flight(build_entry().key, 60): block()"


def test_killed_holder_frees_its_waiters(start: Start, root: Path, store: DirectoryStore) -> None:
    """The lock of a killed process passes to whoever waits for it, and its file goes with the last."""
    holder = start(_HOLD, root)
    assert _line(holder) == "blocked"
    with store.single_flight(build_entry().key, 0) as held:
        assert not held
    waiter = start(_WAIT, root)
    assert _line(waiter) == "waiting"
    _kill(holder)
    assert _line(waiter) == "True"
    waiter.wait()
    assert list((root / "v1" / "locks").iterdir()) == []


def test_lock_does_not_outlive_its_holder_in_a_forked_child(
    start: Start, root: Path, store: DirectoryStore
) -> None:
    """A child that a holder forked does not keep the lock of its killed parent."""
    script = """
with store.single_flight(build_entry().key, 60):
    if os.fork() == 0:
        block()
        os._exit(0)
    sys.stdin.read()
"""
    holder = start(script, root)
    assert _line(holder) == "blocked"
    with store.single_flight(build_entry().key, 0) as held:
        assert not held
    _kill(holder)
    with store.single_flight(build_entry().key, 60) as held:
        assert held


_JOURNAL = """
say("ready")
sys.stdin.readline()
for number in range(100):
    store.journal({"writer": os.getpid(), "number": number, "text": "x" * (number * 20)})
    store.record("saxpy", Event(number, "built", "0" * 64, "cuda:sm_90"))
"""


def test_processes_do_not_tear_each_others_lines(start: Start, root: Path, store: DirectoryStore) -> None:
    """Every line of a journal and history that several processes write is whole and in its order."""
    children = [start("from gpucache.store import Event\n" + _JOURNAL, root) for _ in range(3)]
    for child in children:
        assert _line(child) == "ready"
    for child in children:
        _release(child)
    assert [child.wait() for child in children] == [0, 0, 0]
    records = store.journal_tail(1000)
    for child in children:
        numbers = [record["number"] for record in records if record["writer"] == child.pid]
        assert numbers == list(reversed(range(100)))
    # One byte more or less would be a line that does not read.
    lines = (root / "v1" / "journal" / "misses.jsonl").read_bytes().splitlines()
    assert len(lines) == len(records) == 300


_READ = """
say("ready")
while True:
    result = store.get(build_entry().key)
    if isinstance(result, Absent):
        assert result.reason is None
    else:
        assert result.payload == b"payload"
    if len(list(store.scan())) == 2:
        break
say("sound")
"""


def test_readers_never_see_half_of_anything(start: Start, root: Path, store: DirectoryStore) -> None:
    """A reader beside a writer that publishes and evicts over and over sees an entry or none."""
    child = start(_READ, root)
    assert _line(child) == "ready"
    for _ in range(30):
        store.publish(build_entry())
        for scanned in store.scan():
            store.remove(scanned, "test")
    store.publish(build_entry())
    store.publish(build_entry("last"))
    assert _line(child) == "sound"
