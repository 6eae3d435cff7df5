"""Many processes on one cache, and processes that are killed at the worst moment."""

import os
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from gpucache.store.directory import DirectoryStore
from tests.faults.conftest import build_entry
from tests.store.conftest import left

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


_WAIT = """
say("waiting")
with store.single_flight(build_entry().key, 60) as held:
    say(held)
"""
_HOLD = "with store.single_flight(build_entry().key, 60): block()"


def test_killed_holder_frees_its_waiters(start: Start, root: Path, store: DirectoryStore) -> None:
    """The lock of a killed process passes to a waiter, and its file goes with the last."""
    holder = start(_HOLD, root)
    assert _line(holder) == "blocked"
    with store.single_flight(build_entry().key, 0) as held:
        assert not held
    waiter = start(_WAIT, root)
    assert _line(waiter) == "waiting"
    _kill(holder)
    assert _line(waiter) == "True"
    waiter.wait()
    assert left(root) == []


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
    store.history.record("saxpy", Event(number, "built", "0" * 64, "cuda:sm_90"))
"""


def test_processes_do_not_tear_each_others_lines(start: Start, root: Path, store: DirectoryStore) -> None:
    """Every line of a journal and history that several processes write is whole and in its order."""
    children = [start("from gpucache.store.interface import Event\n" + _JOURNAL, root) for _ in range(3)]
    for child in children:
        assert _line(child) == "ready"
    for child in children:
        _release(child)
    assert [child.wait() for child in children] == [0, 0, 0]
    records = store.journal_tail(1000)
    for child in children:
        numbers = [record["number"] for record in records if record["writer"] == child.pid]
        assert numbers == list(reversed(range(100)))
    # One byte more or less would be a line that cannot be parsed.
    lines = [line for path in root.glob("v1/**/*.jsonl") for line in path.read_bytes().splitlines()]
    assert len(lines) == 2 * len(records) == 600
