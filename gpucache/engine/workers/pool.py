"""Worker processes that may crash, hang or eat memory at the cost of their own item alone.

Owns isolation: a spawned process in an empty directory with a memory limit, silent drivers, and an
end with its parent, for it and all that it started. The pool itself is pebble's, which survives dead
workers and ends late ones; what it does not see of a dead worker is in ``processes``.
"""

import ctypes
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from pebble import ProcessExpired, ProcessPool

from gpucache.engine.workers.capacity import Turns, turns
from gpucache.engine.workers.opened_files import OPENED_FILES, UNANSWERED, watching
from gpucache.engine.workers.processes import (
    PROCESSES,
    Inherited,
    Spawning,
    at_item,
    deaf_children,
    startable,
    unstartable,
)
from gpucache.errors import GpucacheError
from gpucache.host.interrupts import held
from gpucache.host.process_groups import exit_pipe, kill_own_group_on_exit
from gpucache.host.scratch import scratch

J = TypeVar("J")
R = TypeVar("R")

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.1
_PATIENCE_S = 60.0
_SAID = "said"
_STACK_BYTES = 256 << 20
_FIRST_TO_GO = "500"


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
    limit_s: float = 0.0
    """The time limit that ended it, in seconds; 0 where none did."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What workers may take."""

    jobs: int = 1
    timeout_s: float = 300.0
    memory_bytes: int | None = None
    fresh: bool = False
    """A new process for every item."""
    queued: bool = False
    """Whether workers wait until few others of this user run on this host, for as long as those move."""
    watched: bool = False
    """Whether ``OPENED_FILES`` in a worker can tell which files it reads, where the system allows that."""


def run_isolated(
    function: Callable[[J], R],
    items: Sequence[J],
    bounds: Bounds,
    running: Callable[[Sequence[J]], None] = lambda _: None,
) -> Iterator[tuple[J, Done[R] | Failed | Died]]:
    """Run a picklable function over items in workers; yields each as it ends.

    ``running`` is told, a few times a second, which items are being worked on now. Closing the
    iterator, or an interrupt, ends the workers. Raises WorkersError if none can be started.
    """
    left = dict(enumerate(items))
    while left:
        before, wanted = len(left), max(1, min(bounds.jobs, len(left)))
        patience_s = min(bounds.timeout_s, _PATIENCE_S) if bounds.queued else None
        with turns(wanted, patience_s, lambda: running([])) as team, startable(), _place() as place:
            why = yield from _run_pool(function, left, bounds, team, place, running)
            if len(left) == before:  # a pool that broke is replaced for as long as each gets something done
                raise unstartable(why or _said(place) or "they end before they begin")


@contextmanager
def _place() -> Iterator[Path]:
    """A folder for what workers leave, gone afterwards."""
    with ExitStack() as stack:
        try:
            place = stack.enter_context(scratch("workers"))
            (place / _SAID).touch()
        except OSError as error:
            raise unstartable(error) from None
        yield place


def _said(place: Path) -> str:
    """What kept a worker from beginning, in its own words."""
    try:
        return (place / _SAID).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return ""


def _run_pool(
    function: Callable[[J], R],
    left: dict[int, J],
    bounds: Bounds,
    team: Turns,
    place: Path,
    running: Callable[[Sequence[J]], None],
) -> Generator[tuple[J, Done[R] | Failed | Died], None, OSError | None]:
    """Take what is answered out of ``left``, until nothing is or the pool breaks; what broke it."""
    futures: dict[int, Future[R]] = {}
    with held() as check_interrupt, _door(bounds) as door, exit_pipe() as line:
        spawning = Spawning(place, lambda index: _has_begun(futures.get(index)))
        pool = ProcessPool(
            max_workers=team.count,
            max_tasks=1 if bounds.fresh else 0,
            initializer=_begin,
            initargs=(
                str(place),
                os.getpid(),
                bounds.memory_bytes,
                door,
                None if line is None else Inherited(line),
            ),
            context=spawning,
        )
        manager = pool._pool_manager.worker_manager
        manager.close_channels = partial(_end_workers_first, manager, manager.close_channels)
        why = None
        try:
            try:
                # A terminal tells every process, and one that is importing would answer with a traceback.
                with deaf_children("SIGINT"):
                    for index, item in left.items():
                        guarded = _Guarded(function, place, index)
                        futures[index] = pool.schedule(guarded, args=[item], timeout=bounds.timeout_s)
            except (OSError, RuntimeError) as error:  # of a start, and of a pool that broke meanwhile
                why = _cause(error)
            waiting = {future: index for index, future in futures.items()}
            while waiting:
                active = pool.active
                done, _ = wait(waiting, timeout=_POLL_S if active else 0, return_when=FIRST_COMPLETED)
                running([left[index] for future, index in waiting.items() if future.running()])
                for future in done:
                    index, answer = waiting.pop(future), _result(future, bounds)
                    if isinstance(answer, BrokenProcessPool):
                        why = why or _cause(answer)
                    else:
                        yield left.pop(index), answer
                check_interrupt()
                if team.count < min(bounds.jobs, len(waiting)) and team.take():
                    manager.workers_number = team.count
                if not (active or done):
                    break
        finally:
            spawning.over = True
            pool.stop()
            pool.join()
    return why


def _end_workers_first(manager: Any, close: Callable[[], None]) -> None:
    """Close what workers are handed when none is left: one that is starting complains of what it misses."""
    manager.force_stop_workers()
    close()


def _cause(error: BaseException) -> OSError | None:
    cause = error if isinstance(error, OSError) else error.__cause__
    return cause if isinstance(cause, OSError) else None


@contextmanager
def _door(bounds: Bounds) -> Iterator[socket.socket | None]:
    """Where workers ask to be watched; None if they are not to be."""
    if not bounds.watched:
        yield None
        return
    with ExitStack() as stack:
        with deaf_children("SIGINT"):
            door = stack.enter_context(watching())
        yield door


def _has_begun(future: "Future[R] | None") -> bool:
    return future is not None and (future.running() or future.done())


@dataclass(frozen=True, slots=True)
class _Guarded(Generic[J, R]):
    """A function over one item, whose exceptions can all travel: bindings raise some that cannot."""

    function: Callable[[J], R]
    place: Path
    index: int

    def __call__(self, item: J) -> R:
        with at_item(self.place, self.index):
            return self._called(item)

    def _called(self, item: J) -> R:
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


def _result(future: "Future[R]", bounds: Bounds) -> Done[R] | Failed | Died | BrokenProcessPool:
    try:
        return Done(future.result())
    except TimeoutError:
        return Died(f"it did not end within {bounds.timeout_s:g} s", bounds.timeout_s)
    except ProcessExpired as error:
        if error.exitcode == UNANSWERED:
            return Failed(GpucacheError(f"nobody could watch what it opens; {PROCESSES}, and try again"))
        return Died(_death(error.exitcode))
    except CancelledError:
        return Died("it was called off")
    except BrokenProcessPool as error:
        return error
    except Exception as error:  # whatever the function raised is the answer
        return Failed(error)


def _death(status: int) -> str:
    try:
        return f"its compiler process died of {signal.Signals(-status).name}"
    except ValueError:
        return f"its compiler process ended with status {status & 255}"


def _begin(
    place: str, parent: int, memory_bytes: int | None, door: socket.socket | None, line: int | None
) -> None:
    """Start of a worker: an empty directory of its own, silence, limits, and no life after its parent."""
    if hasattr(os, "setsid"):
        os.setsid()  # what it starts ends with it, and no terminal reaches either
    if line is not None:
        kill_own_group_on_exit(line)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        os.chdir(tempfile.mkdtemp(dir=place))
        _isolate_driver_caches(Path(place))
    except OSError as error:
        (Path(place) / _SAID).write_text(str(error), encoding="utf-8")
        raise
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the parent went before the signal was armed
    _limit_memory(memory_bytes)
    OPENED_FILES.ask_at(door, place)


def _limit_memory(memory_bytes: int | None) -> None:
    with suppress(OSError):  # where memory runs out all the same, a worker is to go, and not who waits for it
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")
    if sys.platform == "win32":
        return
    import resource

    # A stack is no data: where it has no limit, a compiler that calls itself without end takes all memory.
    stack, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if stack == resource.RLIM_INFINITY or stack > _STACK_BYTES:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, hard))
    if memory_bytes is None:
        return
    # Data, not address space: drivers reserve far more than they touch.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, hard))


def _isolate_driver_caches(place: Path) -> None:
    """Give PoCL a cache of its own: its binaries pack whatever that holds for the program."""
    os.environ["POCL_KERNEL_CACHE"] = "1"
    os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp(prefix="pocl-", dir=place)
    try:
        Path.home()
    except RuntimeError:  # a uid without a name; PyOpenCL refuses to load a binary if there is no home
        os.environ["HOME"] = str(place)
