"""Worker processes that may crash, hang or eat memory at the cost of their own item alone.

Owns isolation: a spawned process in an empty directory with a memory limit, silent drivers, and an
end with its parent. The pool itself is pebble's, which survives dead workers and ends late ones.
"""

import ctypes
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Generic, TypeVar

from pebble import ProcessExpired, ProcessPool

from gpucache.engine.interrupts import held
from gpucache.errors import GpucacheError

J = TypeVar("J")
R = TypeVar("R")

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.1
_WORKER_BYTES = 1024**3


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """The function returned."""

    value: R


@dataclass(frozen=True, slots=True)
class Failed:
    """The function raised, and this is what."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Died:
    """The worker crashed or was ended; ``reason`` says how in words."""

    reason: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """What workers may take."""

    jobs: int = 1
    timeout_s: float = 300.0
    memory_bytes: int | None = None
    fresh: bool = False
    """A new process for every item."""


def run_isolated(
    function: Callable[[J], R],
    items: Sequence[J],
    bounds: Bounds,
    running: Callable[[Sequence[J]], None] = lambda _: None,
) -> Iterator[tuple[J, Done[R] | Failed | Died]]:
    """Run a picklable function over items in workers; yields each as it ends.

    ``running`` is told, a few times a second, which items are being worked on now. Closing the
    iterator, or an interrupt, ends the workers.
    """
    with held() as check_interrupt:
        place = Path(tempfile.mkdtemp(prefix="gpucache-"))
        pool = ProcessPool(
            max_workers=max(1, min(bounds.jobs, len(items))),
            max_tasks=1 if bounds.fresh else 0,
            initializer=_begin,
            initargs=(str(place), os.getpid(), bounds.memory_bytes),
            context=get_context("spawn"),
        )
        try:
            guarded = _Guarded(function)
            with _deaf_children():
                futures: dict[Future[R], J] = {
                    pool.schedule(guarded, args=[item], timeout=bounds.timeout_s): item for item in items
                }
            while futures:
                done, _ = wait(futures, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                running([item for future, item in futures.items() if future.running()])
                for future in done:
                    yield futures.pop(future), _result(future, bounds)
                check_interrupt()
        finally:
            pool.stop()
            pool.join()
            shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """The threads that start workers hear no Ctrl-C, nor does a worker while it starts.

    A terminal sends it to every process. A worker that is still importing would answer with a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True, slots=True)
class _Guarded(Generic[J, R]):
    """A function whose every exception can travel: bindings raise ones that cannot be pickled."""

    function: Callable[[J], R]

    def __call__(self, item: J) -> R:
        try:
            return self.function(item)
        except TimeoutError as error:  # of a file system: not to be taken for the item's own time limit
            raise GpucacheError(f"it timed out: {error}") from None
        except (GpucacheError, OSError):
            raise
        except MemoryError:
            raise GpucacheError(
                "it needed more memory than a worker may take; run fewer at once with --jobs"
            ) from None
        except Exception as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from None


def _result(future: "Future[R]", bounds: Bounds) -> Done[R] | Failed | Died:
    try:
        return Done(future.result())
    except TimeoutError:
        return Died(f"it did not end within {bounds.timeout_s:g} s")
    except ProcessExpired as error:
        return Died(_death(error.exitcode))
    except CancelledError:
        return Died("it was called off")
    except Exception as error:  # whatever the function raised is the answer
        return Failed(error)


def _death(status: int) -> str:
    try:
        return f"its compiler process died of {signal.Signals(-status).name}"
    except ValueError:
        return f"its compiler process ended with status {status}"


def worker_count(items: int) -> int:
    """How many workers suit this machine: its usable cores, its free memory, the work there is."""
    return max(1, min(items, _cores(), _free_bytes() // _WORKER_BYTES))


def memory_share(jobs: int) -> int | None:
    """How many bytes one of several workers may take; None where that cannot be told."""
    free = _free_bytes()
    return max(2 * _WORKER_BYTES, free // max(1, jobs)) if free < sys.maxsize else None


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def _free_bytes() -> int:
    free = sys.maxsize
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        free = int(available.split()[1]) * 1024
    with suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
        free = min(free, max(0, limit - used))
    return free


def _begin(place: str, parent: int, memory_bytes: int | None) -> None:
    """Start of a worker: an empty directory of its own, silence, limits, and no life after its parent."""
    directory = tempfile.mkdtemp(dir=place)
    os.chdir(directory)
    _isolate_driver_caches(Path(place))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the parent went before the signal was armed
    _limit_memory(memory_bytes)


def _limit_memory(memory_bytes: int | None) -> None:
    if memory_bytes is None or sys.platform == "win32":
        return
    import resource

    # Data, not address space: drivers reserve far more than they touch.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, hard))


def _isolate_driver_caches(place: Path) -> None:
    """Give PoCL a cache of its own: its binaries pack whatever that holds for the program."""
    os.environ["POCL_KERNEL_CACHE"] = "1"
    os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp(prefix="pocl-", dir=place)
