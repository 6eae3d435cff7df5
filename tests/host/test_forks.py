"""Work distributed among copies of a process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpucache.errors import CacheUnusableError, WorkersError
from gpucache.host.forks import shared_out
from tests.children import run_text
from tests.patience import PATIENCE_S

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have left threads that wait for silent servers."""
    monkeypatch.setattr("gpucache.host.forks.threading.active_count", lambda: 1)


def test_every_share_is_done_elsewhere() -> None:
    """Each share is done once, in a separate process, and all its results arrive."""

    def work(share: int) -> Iterator[tuple[int, int, int]]:
        return ((share, number, os.getpid()) for number in range(1000))

    found = list(shared_out(work, 3))
    assert sorted(one[:2] for one in found) == [
        (share, number) for share in range(3) for number in range(1000)
    ]
    assert len({pid for *_, pid in found} | {os.getpid()}) == 4


def test_what_a_copy_raises_is_raised_here() -> None:
    """An error of the work is raised unchanged, after the results before it."""

    def work(share: int) -> Iterator[int]:
        yield share
        raise CacheUnusableError("it is gone")

    found = shared_out(work, 1)
    assert next(found) == 0
    with pytest.raises(CacheUnusableError, match="it is gone"):
        next(found)


def test_a_killed_copy_is_told() -> None:
    """A copy that is killed before its end is not taken for finished."""

    def work(share: int) -> Iterator[int]:
        yield share
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkersError, match="was killed"):
        list(shared_out(work, 2))


def test_no_copy_outlives_an_interrupt() -> None:
    """Closing the iterator, as an interrupt does, ends the copies."""

    def work(_: int) -> Iterator[int]:
        while True:
            yield os.getpid()

    found = shared_out(work, 2)
    pids = {next(found) for _ in range(2)}
    found.close()  # type: ignore[attr-defined] # it is a generator
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_copies_end_with_their_process() -> None:
    """If the first process is killed, its copies end at their next result."""
    program = """
import os, signal
from gpucache.host.forks import shared_out
def work(share):
    while True:
        yield os.getpid()
found = shared_out(work, 3)
print(*{next(found) for _ in range(3)}, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    # It returns when the last copy has closed its inherited files.
    done = run_text([sys.executable, "-c", program])
    assert (done.returncode, len(done.stdout.split())) == (-signal.SIGKILL, 3)


def test_a_process_with_threads_works_alone() -> None:
    """If another thread may hold a lock, the process does not fork."""
    program = """
import os, threading
from gpucache.host.forks import shared_out
threading.Thread(target=threading.Event().wait, daemon=True).start()
assert set(shared_out(lambda share: [os.getpid()], 2)) == {os.getpid()}
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)
