"""Worker processes that may crash, hang or use up memory without harm to other items.

Owns their isolation: a spawned process in an empty directory, with a memory limit and silent drivers, that
ends with its parent together with everything it started. The pool itself is pebble's, which survives dead
workers and ends late ones; ``processes`` adds what that does not see of a dead worker.
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

from gpucache.backends.registry import backend_names, load_backend
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
from gpucache.host.process_groups import exit_pipe, kill_own_group_on_exit, yield_as_before
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
    """The function raised this error."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Died:
    """The worker crashed or was ended; ``reason`` says how in words."""

    reason: str
    limit_s: float = 0.0
    """The time limit that ended it, in seconds; 0 if none did."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many workers there may be, and what each of them may use."""

    jobs: int = 1
    timeout_s: float = 300.0
    memory_bytes: int | None = None
    fresh: bool = False
    """A new process for every item."""
    queued: bool = False
    """Whether workers wait for a turn among all workers of this user on this host."""
    watched: bool = False
    """Whether ``OPENED_FILES`` in a worker can see which files it reads, if the system allows that."""


def run_isolated(
    function: Callable[[J], R],
    items: Sequence[J],
    bounds: Bounds,
    running: Callable[[Sequence[J]], None] = lambda _: None,
) -> Iterator[tuple[J, Done[R] | Failed | Died]]:
    """Run a picklable function for each item in workers; yields each item with its answer as it ends.

    ``running`` is called a few times a second with the items that are being worked on. Closing the iterator,
    or an interrupt, ends the workers. Raises WorkersError if none can be started.
    """
    left = dict(enumerate(items))
    while left:
        before, wanted = len(left), max(1, min(bounds.jobs, len(left)))
        patience_s = min(bounds.timeout_s, _PATIENCE_S) if bounds.queued else None
        with turns(wanted, patience_s, lambda: running([])) as team, startable(), _place() as place:
            why = yield from _run_pool(function, left, bounds, team, place, running)
            if len(left) == before:  # a pool that broke is replaced, as long as each pool finishes an item
                raise unstartable(why or _said(place) or "they end before they begin")


@contextmanager
def _place() -> Iterator[Path]:
    """A temporary folder for the workers, removed afterwards."""
    with ExitStack() as stack:
        try:
            place = stack.enter_context(scratch("workers"))
            (place / _SAID).touch()
        except OSError as error:
            raise unstartable(error) from None
        yield place


def _said(place: Path) -> str:
    """The reason that a worker wrote down why it could not begin."""
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
    """Work on the items of ``left``, and remove those that are answered; returns what broke the pool."""
    futures: dict[int, Future[R]] = {}

    def has_begun(index: int) -> bool:
        future = futures.get(index)
        return future is not None and (future.running() or future.done())

    with held() as raise_if_interrupted, _door(bounds) as door, exit_pipe() as line:
        spawning = Spawning(place, has_begun)
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
                _caches_of_compilers(),
            ),
            context=spawning,
        )
        manager = pool._pool_manager.worker_manager
        manager.close_channels = partial(_end_workers_first, manager, manager.close_channels)
        why = None
        try:
            try:
                # A terminal sends SIGINT to every process; one that is importing would print a traceback.
                with deaf_children("SIGINT"):
                    for index, item in left.items():
                        guarded = _Guarded(function, place, index)
                        futures[index] = pool.schedule(guarded, args=[item], timeout=bounds.timeout_s)
            except (OSError, RuntimeError) as error:  # no process could be started, or the pool broke
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
                raise_if_interrupted()
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
    """Close the pool's channels only after all workers ended: one that is starting would miss them."""
    manager.force_stop_workers()
    close()


def _cause(error: BaseException) -> OSError | None:
    cause = error if isinstance(error, OSError) else error.__cause__
    return cause if isinstance(cause, OSError) else None


@contextmanager
def _door(bounds: Bounds) -> Iterator[socket.socket | None]:
    """The socket at which workers ask to be watched; None if they should not be."""
    if not bounds.watched:
        yield None
        return
    with ExitStack() as stack:
        with deaf_children("SIGINT"):
            door = stack.enter_context(watching())
        yield door


@dataclass(frozen=True, slots=True)
class _Guarded(Generic[J, R]):
    """A function for one item that raises only exceptions which can be pickled."""

    function: Callable[[J], R]
    place: Path
    index: int

    def __call__(self, item: J) -> R:
        with at_item(self.place, self.index):
            return self._called(item)

    def _called(self, item: J) -> R:
        try:
            return self.function(item)
        except TimeoutError as error:  # of a file system; the pool would take it for the item's time limit
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
    except Exception as error:  # the function raised it
        return Failed(error)


def _death(status: int) -> str:
    try:
        return f"its compiler process died of {signal.Signals(-status).name}"
    except ValueError:
        return f"its compiler process ended with status {status & 255}"


Caches = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""Of each cache that a compiler keeps the variable that names its folder, and those that turn it on."""


def _caches_of_compilers() -> Caches:
    """Told to a worker as plain values, as it would have to import every backend to ask for them."""
    every = (kept for name in backend_names() for kept in load_backend(name).caches)
    return tuple((kept.variable, kept.turn_on) for kept in every)


def _begin(
    place: str,
    parent: int,
    memory_bytes: int | None,
    door: socket.socket | None,
    line: int | None,
    caches: Caches,
) -> None:
    """Begin a worker: an empty directory of its own, no output, limits, and an end with its parent."""
    if hasattr(os, "setsid"):
        os.setsid()  # a group of its own, to be killed as one, and out of reach of a terminal
        yield_as_before()
    if line is not None:
        kill_own_group_on_exit(line)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        os.chdir(tempfile.mkdtemp(dir=place))
        _isolate(Path(place), caches)
    except OSError as error:
        (Path(place) / _SAID).write_text(str(error), encoding="utf-8")
        raise
    os.environ.pop("GPUCACHE_REQUIRE", None)  # it is for programs, and what is built here is to miss
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the parent ended before the signal was set
    _limit_memory(memory_bytes)
    OPENED_FILES.ask_at(door, place)


def _limit_memory(memory_bytes: int | None) -> None:
    with suppress(OSError):  # if memory runs out nevertheless, a worker should be killed and not its parent
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")
    if sys.platform == "win32":
        return
    import resource

    # The limit of data does not include the stack: without a limit, endless recursion takes all memory.
    stack, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if stack == resource.RLIM_INFINITY or stack > _STACK_BYTES:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, hard))
    if memory_bytes is None:
        return
    # Data, not address space: drivers reserve far more than they use.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, hard))


def _isolate(place: Path, caches: Caches) -> None:
    """Give compilers caches of their own, as their binaries may pack whatever these hold for the program."""
    for variable, turn_on in caches:
        os.environ[variable] = tempfile.mkdtemp(prefix="compiler-", dir=place)
        os.environ.update(turn_on)
    try:
        Path.home()
    except RuntimeError:  # a uid without a name; PyOpenCL refuses to load a binary if there is no home
        os.environ["HOME"] = str(place)
