"""A process's line in the journal at its end: hits and misses, by each forked process too."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gpucache.store.directory import DirectoryStore
from tests.children import run_text

_COUNTING = """
import os, signal, sys, threading
from gpucache.library.process import stores
from gpucache.library.rows import COUNTER

opened = stores()
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
    """Run a script that counts; the counts of each of its processes, as (hits, misses), oldest first."""
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork here")
    root = tmp_path / "cache"

    def run(script: str) -> list[tuple[int, int]]:
        done = run_text(
            [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", _COUNTING + script],
            env={**os.environ, "GPUCACHE_DIR": str(root)},
        )
        assert (done.returncode, done.stderr) == (0, "")
        lines = DirectoryStore(root, writable=False).journal_tail(10)
        processes = [line for line in lines if line["kind"] == "process"]
        assert len({line["pid"] for line in processes}) == len(processes)
        return [(int(str(line["hits"])), int(str(line["misses"]))) for line in reversed(processes)]

    return run


_CASES = {
    "parent and child write one line each, with just their own counts": (
        """
COUNTER.count(opened, hit=True)
forked(lambda: COUNTER.count(opened, hit=False))
COUNTER.count(opened, hit=True)
""",
        [(0, 1), (2, 0)],
    ),
    "a child that asked nothing writes nothing": (
        "COUNTER.count(opened, hit=True)\nforked(lambda: None)",
        [(1, 0)],
    ),
    "counting begins anew at each fork": (
        """
def child():
    COUNTER.count(opened, hit=False)
    forked(lambda: COUNTER.count(opened, hit=False))

COUNTER.count(opened, hit=True)
forked(child)
""",
        [(0, 1), (0, 1), (1, 0)],
    ),
    "a fork while another thread holds the counter does not hang": (
        """
holding, done = threading.Event(), threading.Event()

def hold():
    with COUNTER._lock:
        holding.set()
        done.wait()

COUNTER.count(opened, hit=True)
thread = threading.Thread(target=hold)
thread.start()
holding.wait()
forked(lambda: COUNTER.count(opened, hit=False))
done.set()
thread.join()
""",
        [(0, 1), (1, 0)],
    ),
}


@pytest.mark.parametrize("case", _CASES)
def test_each_process_counts_for_itself(processes: Any, case: str) -> None:
    """Each process that looked anything up writes one line, without its parent's counts."""
    script, lines = _CASES[case]
    assert processes(script) == lines
