"""Worker processes that may crash, hang or use up memory without harm to other items.

Owns their isolation: a spawned process in an empty directory, with a memory limit and silent drivers, that
ends with its parent together with everything it started. And it owns the pool: each worker has a pipe to this
process, which hands it one item after another, so it is always known which item a late or dead worker had.

Owns how a worker process starts, and which processes end with it.
"""

import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import reduction, resource_tracker
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, TypeVar

from gpucache.backends.interface import backend_names, load_backend
from gpucache.engine.workers.capacity import Turns, turns
from gpucache.engine.workers.opened_files import OPENED_FILES, UNANSWERED, watching
from gpucache.errors import GpucacheError, WorkersError
from gpucache.host.environment import variable
from gpucache.host.interrupts import held
from gpucache.host.process_groups import exit_pipe, kill_group, kill_own_group_on_exit, yield_as_before
from gpucache.host.scratch import scratch

if sys.platform != "win32":
    from multiprocessing.popen_spawn_posix import Popen

_START_S = 60.0
# -P: nothing is imported from the current directory.
_TRY = ("-P", "-c", "import multiprocessing.connection, pickle, struct")
PROCESSES = "raise the limit of processes (ulimit -u) or end some"
_REMEDIES = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of the machine",
    errno.EAGAIN: PROCESSES,
    errno.ENOMEM: "free some memory",
    errno.ENOSPC: "make room for files in the temporary directory (TMPDIR) and in /dev/shm",
    errno.ENOENT: "set TMPDIR to a directory that exists and can be written",
}
_REMEDY = (
    "check that this user can run Python and write to the temporary directory (TMPDIR) and /dev/shm, "
    "and the limits of processes and memory (ulimit -a)"
)


@cache
def require_start() -> None:
    """Start Python as a worker would be started, once in this process; raises WorkersError if that fails.

    Without this each worker would leave a traceback on the terminal.
    """
    try:
        done = subprocess.run(
            [sys.executable, *_TRY],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_START_S,
        )
    except OSError as error:
        raise unstartable(error) from None
    except subprocess.TimeoutExpired:
        raise unstartable(f"Python did not start within {_START_S:g} s") from None
    if done.returncode != 0:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
        raise unstartable(last or f"Python ended with status {done.returncode}")
    if os.name == "posix":
        _start_silent_tracker()


def _start_silent_tracker() -> None:
    """Start multiprocessing's tracker, which cleans up after killed processes, without its warnings.

    It ignores the signals that end a process, except that of a closed terminal, which this blocks.
    """
    try:
        with variable("PYTHONWARNINGS", "ignore"), deaf_children("SIGHUP"):
            resource_tracker.ensure_running()
    except OSError as error:
        raise unstartable(error) from None


def unstartable(why: BaseException | str) -> WorkersError:
    """The error for workers that cannot be started, with the remedy."""
    number = why.errno if isinstance(why, OSError) else None
    return WorkersError(f"no worker process can be started ({why}); {_REMEDIES.get(number or 0, _REMEDY)}")


@contextmanager
def startable() -> Iterator[None]:
    """Within the context, new workers import nothing from the current directory.

    A umask that takes permissions from the owner is changed, as they could not use their directories.
    Raises WorkersError if none can be started.
    """
    mask = os.umask(0)
    os.umask(mask & 0o077)
    try:
        with variable("PYTHONSAFEPATH", "1"):
            require_start()
            yield
    finally:
        os.umask(mask)


@contextmanager
def deaf_children(name: str) -> Iterator[None]:
    """Block a signal in all processes and threads that are started within the context."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {getattr(signal, name)})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Inherited:
    """Passes a descriptor to a worker: pickled, it becomes the number of the worker's copy."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[..., int], tuple[Any]]:
        if sys.platform == "win32":
            raise TypeError("no descriptor is passed on Windows")
        return _number, (reduction.DupFd(self.descriptor),)


def _number(passed: Any) -> int:
    return int(passed.detach())


if sys.platform != "win32":

    class _Group(Popen):
        """A worker's process, whose children end with it."""

        def poll(self, flag: int = os.WNOHANG) -> int | None:
            # Until its parent has waited for it, no other group can have its number.
            if self.returncode is None and hasattr(os, "waitid"):
                with suppress(OSError):
                    if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | (flag & os.WNOHANG)):
                        kill_group(self.pid)
            return super().poll(flag)

        def terminate(self) -> None:
            if self.returncode is None:
                kill_group(self.pid)
            super().terminate()


class WorkerProcess(SpawnProcess):
    """A process that is spawned, and everything that it starts."""

    if sys.platform != "win32":

        @staticmethod
        def _Popen(process_obj: BaseProcess) -> _Group:  # noqa: N802 - multiprocessing's name
            return _Group(process_obj)


J = TypeVar("J")
R = TypeVar("R")

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.1
_LAST_S = 5.0
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
    """The worker crashed or was ended; ``reason`` gives the cause in words."""

    reason: str
    limit_s: float = 0.0
    """The time limit that ended it, in seconds; 0 if none did."""
    lost: bool = False
    """Whether its host or the network may be the cause: the item is tried again, and never poisoned."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many workers there may be, and the limits of each."""

    jobs: int = 1
    timeout_s: float = 300.0
    memory_bytes: int | None = None
    fresh: bool = False
    queued: bool = False
    """Whether workers wait for a turn among all workers of this user on this host."""
    watched: bool = False
    """Whether ``OPENED_FILES`` in a worker can see which files it reads, if the system allows that."""


def run_isolated(
    function: Callable[[J], R],
    items: Sequence[J] | deque[J],
    bounds: Bounds,
    running: Callable[[Sequence[J]], None] = lambda _: None,
) -> Iterator[tuple[J, Done[R] | Failed | Died]]:
    """Run a picklable function for each item in workers; yields each item with its result as it ends.

    To a deque items can be added after each result. It is empty at the end.
    ``running`` is called a few times a second with the items that are being worked on. Closing the iterator,
    or an interrupt, ends the workers. Raises WorkersError if none can be started.
    """
    wanted = max(1, min(bounds.jobs, len(items)))
    patience_s = min(bounds.timeout_s, _PATIENCE_S) if bounds.queued else None
    with (
        turns(wanted, patience_s, lambda: running([])) as team,
        startable(),
        _place() as place,
        held() as raise_if_interrupted,
        _door(bounds) as door,
        exit_pipe() as line,
    ):
        begin = (
            str(place),
            os.getpid(),
            bounds.memory_bytes,
            door,
            None if line is None else Inherited(line),
            _caches_of_compilers(),
        )
        waiting = items if isinstance(items, deque) else deque(items)
        pool = _Pool(function, waiting, bounds, team, begin)
        try:
            while pool.has_work():
                pool.start_workers(place)
                for item, answer in pool.step():
                    yield item, answer
                    raise_if_interrupted()
                running(pool.running())
                raise_if_interrupted()
        finally:
            pool.end()


@contextmanager
def _place() -> Iterator[Path]:
    with ExitStack() as stack:
        try:
            place = stack.enter_context(scratch("workers"))
            (place / _SAID).touch()
        except OSError as error:
            raise unstartable(error) from None
        yield place


def _said(place: Path) -> str:
    """Why a worker could not begin, as it wrote itself."""
    try:
        return (place / _SAID).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return ""


@dataclass(slots=True)
class _Worker(Generic[J]):
    """A worker process, and its present work."""

    process: WorkerProcess
    ready: bool = False
    at: tuple[J] | None = None
    since_s: float = 0.0


class _Pool(Generic[J, R]):
    """The workers of one run, each by its pipe. ``begin`` are the arguments of ``_begin``."""

    def __init__(
        self,
        function: Callable[[J], R],
        items: deque[J],
        bounds: Bounds,
        team: Turns,
        begin: tuple[Any, ...],
    ) -> None:
        self._function, self._items, self._bounds, self._team = function, items, bounds, team
        self._begin = begin
        self._workers: dict[Connection, _Worker[J]] = {}
        self._failed: BaseException | str = ""
        """Why the last started worker did not begin; empty after a worker that did."""

    def has_work(self) -> bool:
        return bool(self._items) or any(worker.at is not None for worker in self._workers.values())

    def running(self) -> list[J]:
        return [worker.at[0] for worker in self._workers.values() if worker.at is not None]

    def start_workers(self, place: Path) -> None:
        """Start as many as have something to do, and have a turn; raises WorkersError if none can begin."""
        if self._failed and not self._workers:
            raise unstartable(
                self._failed if isinstance(self._failed, OSError) else _said(place) or self._failed
            )
        idle = sum(worker.at is None for worker in self._workers.values())
        while idle < len(self._items) and not self._failed:
            if len(self._workers) >= self._team.count and not (
                self._team.count < self._bounds.jobs and self._team.take()
            ):
                return
            try:
                own, its = Pipe()
                with its, deaf_children("SIGINT"):  # one that is importing would print a traceback
                    process = WorkerProcess(
                        target=_work, args=(its, self._function, self._begin), daemon=True
                    )
                    process.start()
            except OSError as error:
                self._failed = error
                return
            self._workers[own] = _Worker(process)  # type: ignore[index,unused-ignore]  # Windows has another class
            idle += 1

    def step(self) -> Iterator[tuple[J, Done[R] | Failed | Died]]:
        """Hand out items, wait a moment, and give the results that came meanwhile."""
        for own, worker in self._workers.items():
            if worker.ready and worker.at is None and self._items:
                worker.at, worker.since_s = (self._items.popleft(),), time.monotonic()
                with suppress(OSError):  # it died, which is seen below
                    own.send(worker.at[0])
        wait(list(self._workers), _POLL_S)
        for own, worker in list(self._workers.items()):
            # A worker's children may keep its pipe open; they end when its end is seen.
            dead = worker.process.exitcode is not None
            try:
                answer = own.recv() if own.poll() else None
            except (EOFError, OSError):
                dead, answer = True, None
            if answer is not None:
                yield from self._answered(own, worker, answer)
            elif dead:
                yield from self._died(own, worker)
            elif worker.at is not None and time.monotonic() - worker.since_s > self._bounds.timeout_s:
                self._end(own)
                limit_s = self._bounds.timeout_s
                yield worker.at[0], Died(f"it did not end within {limit_s:g} s", limit_s)

    def end(self) -> None:
        for own in list(self._workers):
            self._end(own)

    def _answered(
        self, own: Connection, worker: _Worker[J], answer: Done[R] | Failed | str
    ) -> Iterator[tuple[J, Done[R] | Failed]]:
        if isinstance(answer, str):
            worker.ready = True
        elif worker.at is not None:
            (item,), worker.at, self._failed = worker.at, None, ""
            if self._bounds.fresh:
                self._end(own)
            yield item, answer

    def _died(self, own: Connection, worker: _Worker[J]) -> Iterator[tuple[J, Failed | Died]]:
        worker.process.join(_LAST_S)  # its pipe may end a moment before it does
        status = worker.process.exitcode
        self._end(own)
        if worker.at is not None:
            self._failed = ""
            yield worker.at[0], _death(-9 if status is None else status)
        elif not worker.ready:
            self._failed = "they end before they begin"

    def _end(self, own: Connection) -> None:
        worker = self._workers.pop(own)
        own.close()
        worker.process.terminate()
        worker.process.join()


def _work(channel: Connection, function: Callable[[J], R], begin: tuple[Any, ...]) -> None:
    """The life of a worker: begin, report that, and process one item after another."""
    _begin(*begin)
    channel.send("ready")
    with suppress(EOFError):
        while True:
            answer = _called(function, channel.recv())
            try:
                channel.send(answer)
            except Exception as error:  # it cannot be pickled
                channel.send(Failed(RuntimeError(f"{type(error).__name__}: {error}")))


def _called(function: Callable[[J], R], item: J) -> Done[R] | Failed:
    """The result of a function, whose errors can be pickled."""
    try:
        return Done(function(item))
    except (GpucacheError, OSError) as error:
        return Failed(error)
    except MemoryError:
        return Failed(
            GpucacheError("it needed more memory than a worker may take; run fewer at once with --jobs")
        )
    except BaseException as error:
        return Failed(RuntimeError(f"{type(error).__name__}: {error}"))


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


def _death(status: int) -> Failed | Died:
    if status == UNANSWERED:
        return Failed(
            GpucacheError(f"the files that it opens could not be traced; {PROCESSES}, and try again")
        )
    try:
        return Died(f"its compiler process died of {signal.Signals(-status).name}")
    except ValueError:
        return Died(f"its compiler process ended with status {status & 255}")


Caches = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""For each compiler's cache the variable with its directory, and the variables that turn it on."""


def _caches_of_compilers() -> Caches:
    """The caches of all compilers as plain values: a worker would have to import every backend for them."""
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
    """Begin a worker: its own empty directory, no output, limits, and an end with its parent."""
    if hasattr(os, "setsid"):
        os.setsid()  # its own group, to be killed as one, and out of reach of a terminal
        yield_as_before()
    if line is not None:
        kill_own_group_on_exit(line)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.umask(os.umask(0o077) & 0o077)  # the program's own module, imported here again, may have set it
    try:
        os.chdir(tempfile.mkdtemp(dir=place))
        _isolate(Path(place), caches)
    except OSError as error:
        (Path(place) / _SAID).write_text(str(error), encoding="utf-8")
        raise
    os.environ.pop("GPUCACHE_REQUIRE", None)  # it is for programs, and the builds of workers have to miss
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
    """Give each compiler a private cache, as a compiler may pack its cache's content into the binary."""
    for name, turn_on in caches:
        os.environ[name] = tempfile.mkdtemp(prefix="compiler-", dir=place)
        os.environ.update(turn_on)
    try:
        Path.home()
    except RuntimeError:  # a uid without a name; PyOpenCL refuses to load a binary without a home
        os.environ["HOME"] = str(place)
