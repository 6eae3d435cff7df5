"""Many processes on one root: whether their hits scale with the cores, and how long a start of many takes.

Each process is made ready first, and only its hits are measured. Without contention the same reads take as
much CPU time in many processes as in one, and their wall time falls with the cores.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.benchmarks.large_cache import make_cache
from tests.benchmarks.measure import CHECKOUT, Comparison, Effort, Sample, Side, compare

_READERS, _READS, _STARTS = 16, 2000, 64
_ROUNDS = 5
"""At most: a start of many processes takes seconds."""
_PROGRAMS, _ENTRIES_EACH = 20, 5
_SERVE = """
for line in sys.stdin:
    began = time.process_time_ns()
    for number in range(int(line)):
        assert read(number) is not None
    print(time.process_time_ns() - began, flush=True)
"""
_OURS = (
    """
import sys, time
from pathlib import Path
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Found
store = DirectoryStore(Path(sys.argv[1]), writable=True)
keys = [entry.key for entry in store.scan()]
def read(number):
    found = store.get(keys[number % len(keys)])
    return found if isinstance(found, Found) else None
print(len(keys), flush=True)
"""
    + _SERVE
)
_THEIRS = (
    """
import sys, time
from cuda.core.utils import FileStreamProgramCache
cache = FileStreamProgramCache(sys.argv[1])
keys = [number.to_bytes(32, "little") for number in range(int(sys.argv[2]))]
for key in keys:
    if cache.get(key) is None:
        cache[key] = key * 160
def read(number):
    return cache.get(keys[number % len(keys)])
print(len(keys), flush=True)
"""
    + _SERVE
)
_START = """
import os, sys
from pathlib import Path
from gpucache.engine.stores import Stores
from gpucache.store.directory import DirectoryStore
from tests.benchmarks.large_cache import wanted
stores = Stores(user=DirectoryStore(Path(sys.argv[1]), writable=True))
"""
_HIT = _START + "assert stores.find(wanted(0, 0).keys()).payload\n"


def run(effort: Effort) -> Iterator[Comparison]:
    """Reads by many processes next to one and next to cuda.core's cache; a start of many next to one."""
    readers, starts = (2, 2) if effort.small else (_READERS, _STARTS)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        make_cache(root, _PROGRAMS, _ENTRIES_EACH)
        with ExitStack() as stack:
            ours: list[str | Path] = [_OURS, root]
            theirs: list[str | Path] = [_THEIRS, Path(folder, "theirs"), str(_PROGRAMS * _ENTRIES_EACH)]
            reads = effort.calls(_READS)
            many, few = f"{readers} processes, {reads} hits each", "one process, as many in all"
            sides: dict[str, Side] = {
                many: stack.enter_context(_reading(ours, readers, reads)),
                few: stack.enter_context(_reading(ours, 1, readers * reads)),
            }
            absent: dict[str, str] = {}
            try:
                import cuda.core  # noqa: F401

                sides[f"cuda.core's cache, {many}"] = stack.enter_context(_reading(theirs, readers, reads))
                sides[f"cuda.core's cache, {few}"] = stack.enter_context(_reading(theirs, 1, readers * reads))
            except ImportError as error:
                absent["cuda.core's cache"] = str(error)
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
            yield compare(
                f"Hits of one root by many processes on {cores} cores", sides, effort.rounds, absent
            )
        starting = {
            f"{starts} starts at once, to the last hit": _starting([_HIT, root], starts),
            f"{starts} starts at once, without a hit": _starting([_START, root], starts),
            "one start, to its hit": _starting([_HIT, root], 1),
        }
        yield compare(f"A start of {starts} processes on a root", starting, min(effort.rounds, _ROUNDS))


@contextmanager
def _reading(script: Sequence[str | Path], processes: int, reads: int) -> Iterator[Side]:
    """A side of waiting processes, each of which reads a number of times on request."""
    with ExitStack() as stack:
        children = [stack.enter_context(_child(script)) for _ in range(processes)]
        for child in children:
            _answer(child)

        def side() -> Sample:
            began = time.perf_counter_ns()
            for child in children:
                assert child.stdin is not None
                child.stdin.write(f"{reads}\n")
                child.stdin.flush()
            cpu_ns = sum(map(_answer, children))
            return Sample(time.perf_counter_ns() - began, cpu_ns)

        yield side


def _child(script: Sequence[str | Path]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", *script],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _answer(child: "subprocess.Popen[str]") -> int:
    assert child.stdout is not None
    return int(child.stdout.readline())


def _starting(script: Sequence[str | Path], processes: int) -> Side:
    """Processes that start together and end after their work."""

    def side() -> Sample:
        began = time.perf_counter_ns()
        children = [subprocess.Popen([sys.executable, "-c", *script], cwd=CHECKOUT) for _ in range(processes)]
        used = [os.wait4(child.pid, 0)[1:] for child in children]
        took = time.perf_counter_ns() - began
        for child, (status, _) in zip(children, used, strict=True):
            child.returncode = os.waitstatus_to_exitcode(status)
            assert child.returncode == 0
        return Sample(took, round(sum(one.ru_utime + one.ru_stime for _, one in used) * 1e9))

    return side
