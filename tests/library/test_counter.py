"""What a process writes to the journal at its end: one line of hits and misses, whoever forked it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpucache.store import DirectoryStore
from tests.patience import PATIENCE_S

_COUNTING = """
import os, signal, sys, threading
from gpucache.library.process import _COUNTER, layers

opened = layers()
opened.target.root.mkdir(mode=0o700)

def forked(child):
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)  # nobody is left behind, should it hang
        child()
        sys.exit()
    assert os.waitpid(pid, 0)[1] == 0
"""


@pytest.fixture
def processes(tmp_path: Path) -> Any:
    """Run a script that counts; what each of its processes wrote, as (hits, misses), oldest first."""
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork here")
    root = tmp_path / "cache"

    def run(script: str) -> list[tuple[int, int]]:
        done = subprocess.run(
            [sys.executable, "-c", _COUNTING + script],
            env={**os.environ, "GPUCACHE_DIR": str(root)},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert (done.returncode, done.stderr) == (0, "")
        lines = DirectoryStore(root, writable=False).journal_tail(10)
        processes = [line for line in lines if line["kind"] == "process"]
        assert len({line["pid"] for line in processes}) == len(processes)
        return [(int(str(line["hits"])), int(str(line["misses"]))) for line in reversed(processes)]

    return run


def test_a_forked_child_counts_for_itself(processes: Any) -> None:
    """A parent with two hits and its child with a miss write one line each, with just their own counts."""
    script = """
_COUNTER.count(opened, hit=True)
forked(lambda: _COUNTER.count(opened, hit=False))
_COUNTER.count(opened, hit=True)
"""
    assert processes(script) == [(0, 1), (2, 0)]


def test_a_child_that_asked_nothing_writes_nothing(processes: Any) -> None:
    """What the parent counted before it forked is not written a second time by its child."""
    assert processes("_COUNTER.count(opened, hit=True)\nforked(lambda: None)") == [(1, 0)]


def test_a_child_of_a_child_counts_too(processes: Any) -> None:
    """Counting begins anew at each fork, and the line is written once by each process."""
    script = """
def child():
    _COUNTER.count(opened, hit=False)
    forked(lambda: _COUNTER.count(opened, hit=False))

_COUNTER.count(opened, hit=True)
forked(child)
"""
    assert processes(script) == [(0, 1), (0, 1), (1, 0)]


def test_a_fork_while_another_thread_counts_does_not_hang(processes: Any) -> None:
    """A child whose parent's other thread held the counter at the fork still counts and ends."""
    script = """
holding, done = threading.Event(), threading.Event()

def hold():
    with _COUNTER._lock:
        holding.set()
        done.wait()

_COUNTER.count(opened, hit=True)
thread = threading.Thread(target=hold)
thread.start()
holding.wait()
forked(lambda: _COUNTER.count(opened, hit=False))
done.set()
thread.join()
"""
    assert processes(script) == [(0, 1), (1, 0)]
