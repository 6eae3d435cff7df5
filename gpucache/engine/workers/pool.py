"""Worker processes that may crash, hang or use up memory without harm to other items.

Owns their isolation: a spawned process in an empty directory, with a memory limit and silent drivers, that
ends with its parent together with everything it started. And it owns the pool: each worker has a pipe to this
process, which hands it one item after another, so it is always known which item a late or dead worker had.

Owns how a worker process starts, and which processes end with it.

Owns how many workers this machine has room for, from its cores and free memory, in containers as well, and
their turns. Turns limit the workers of all
runs of a user on a host, however many are started together, as hundreds of compilers would need more memory
than there is. A turn is a locked file in a directory in shared memory that only this user may enter; the
kernel frees the lock with the process that has it. Processes in another container have their own
turns; other systems have none. Must not know the work of workers.
"""

import ctypes
import errno
import os
import signal
import socket
import stat
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

from gpucache.backends.registry import backend_names, load_backend
from gpucache.engine.workers.opened_files import OPENED_FILES, UNANSWERED, watching
from gpucache.errors import GpucacheError, WorkersError
from gpucache.host.environment import variable
from gpucache.host.interrupts import held
from gpucache.host.process_groups import exit_pipe, kill_group, kill_own_group_on_exit, yield_as_before
from gpucache.host.scratch import scratch

if sys.platform != "win32":
    import fcntl

_WORKER_BYTES = 1024**3
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_LONGEST_WAIT = 10
"""The wait for a queue that moves, as a multiple of the wait for one that does not."""
SHARED = Path("/dev/shm")
"""The place of the turns: on this machine alone, wherever its users' homes and temporary directories are."""
PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
# For both versions of control groups: the files of limit and usage, and the label in memory.stat of the part
# of the usage that is cached files.
_MEMORY = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def worker_count(items: int) -> int:
    """How many workers suit the usable cores, the free memory and the number of items."""
    return max(1, min(items, cores(), free_bytes() // _WORKER_BYTES))


def memory_share(jobs: int) -> int | None:
    """One worker's share, in bytes, of three quarters of the free memory; None if that is not known."""
    free = free_bytes()
    return max(2 * _WORKER_BYTES, free * 3 // 4 // max(1, jobs)) if free < sys.maxsize else None


def cores(proc: Path = PROC, groups: Path = GROUPS) -> int:
    """How many cores this process may use."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _groups("cpu", proc, groups):
        old = (*_numbers(group / "cpu.cfs_quota_us"), *_numbers(group / "cpu.cfs_period_us"))
        quota, period = _numbers(group / "cpu.max") or old or (0, 0)
        if quota > 0 and period > 0:
            own = min(own, max(1, quota // period))
    return own


def free_bytes(proc: Path = PROC, groups: Path = GROUPS) -> int:
    """How much memory is free; ``sys.maxsize`` if that is not known."""
    free = _numbers(proc / "meminfo", "MemAvailable:")
    bytes_ = free[0] * 1024 if free else sys.maxsize
    for group in _groups("memory", proc, groups):
        for limit_name, used_name, files_name in _MEMORY:
            limit, used = _numbers(group / limit_name), _numbers(group / used_name)
            if limit and used:  # cached files are dropped when memory is needed
                files = _numbers(group / "memory.stat", files_name) or (0,)
                bytes_ = min(bytes_, max(0, limit[0] - used[0] + files[0]))
    return bytes_


def _groups(controller: str, proc: Path, groups: Path) -> Iterator[Path]:
    """The control groups of this process and those above them, as far as this process can see them."""
    try:
        lines = (proc / "self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = groups / controller if controllers else groups
        own = top / path.lstrip("/")
        yield own
        yield from (above for above in own.parents if above.is_relative_to(top))


def _numbers(file: Path, label: str = "") -> tuple[int, ...]:
    """The whole numbers in a file's first line, or in its line with a label; none if it has none."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    words = [line.split() for line in text.splitlines()]
    told = next((line[1:2] for line in words if line[0] == label), []) if label else (words or [[]])[0]
    try:
        return tuple(map(int, told))
    except ValueError:  # "max"
        return ()


def turn_count() -> int:
    """How many workers all runs of a user may have: more than cores, as some wait and one may hang."""
    return max(4, 2 * cores())


class Turns:
    """The turns that this process has."""

    def __init__(self, most: int, ends: ExitStack, shared: Path = SHARED) -> None:
        self.count = 0
        self._free = list(range(most))
        self._ends = ends
        self._folder: Path | None = None
        with suppress(OSError):  # then turns cannot be counted, and every one is free
            self._folder = _own_folder(shared)

    def take(self) -> bool:
        """Take one more turn; False if all are taken."""
        for number in self._free:
            try:
                if self._folder is not None:
                    self._ends.callback(os.close, _locked(self._folder / str(number)))
            except BlockingIOError:
                continue
            except OSError:
                pass  # as if there were no directory
            self._free.remove(number)
            self.count += 1
            return True
        return False

    def last_taken_ns(self) -> int:
        """When any process last took a turn; 0 if that is not known."""
        with suppress(OSError):
            if self._folder is not None:
                return max((file.stat().st_mtime_ns for file in self._folder.iterdir()), default=0)
        return 0


@contextmanager
def turns(
    wanted: int, patience_s: float | None, waiting: Callable[[], None], shared: Path = SHARED
) -> Iterator[Turns]:
    """Wait for a turn, and take as many more as are wanted and free; all at once if ``patience_s`` is None.

    ``waiting`` is called now and then meanwhile. If no process takes a turn for ``patience_s`` seconds, this
    goes on without one, as the processes that have them may be stopped; so it does after ten times as long.
    """
    with ExitStack() as ends:
        held, pause_s = Turns(max(wanted, turn_count()), ends, shared), _FIRST_PAUSE_S
        if patience_s is None:
            held.count = wanted
            yield held
            return
        now_s, last = time.monotonic(), held.last_taken_ns()
        limit_s, end_s = now_s + patience_s, now_s + _LONGEST_WAIT * patience_s
        while not held.take() and time.monotonic() < min(limit_s, end_s):
            waiting()
            if (taken := held.last_taken_ns()) != last:
                limit_s, last = time.monotonic() + patience_s, taken
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        while 0 < held.count < wanted and held.take():
            pass
        held.count = max(1, held.count)
        yield held


def _own_folder(shared: Path) -> Path:
    """The directory of this user's turns, which is made if it is missing; raises OSError.

    If another user has taken its name, it is the first with another ending that is ours.
    """
    if sys.platform != "linux":
        raise OSError("locks that end with their process are known for Linux only")
    usual = shared / f"gpucache-turns-{os.geteuid()}"
    with suppress(FileExistsError):
        usual.mkdir(mode=stat.S_IRWXU)
    if _is_own(usual):
        return usual
    own = min(filter(_is_own, shared.glob(f"{usual.name}-*")), default=None)
    return own or Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=shared))


def _is_own(folder: Path) -> bool:
    with suppress(FileNotFoundError):
        status = folder.lstat()
        return status.st_uid == os.geteuid() and status.st_mode == stat.S_IFDIR | stat.S_IRWXU
    return False


def _locked(file: Path) -> int:
    """A descriptor with the lock of a file; raises BlockingIOError if another has it, and OSError."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, stat.S_IRUSR | stat.S_IWUSR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.utime(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


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
    """Workers that are started meanwhile import nothing from the current directory.

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
    """Processes and threads that are started meanwhile have a signal blocked, for their whole life."""
    if not hasattr(signal, "pthread_sigmask"):
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
    """Whether its host or the way there may be the cause: its item is tried again, and never poisoned."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many workers there may be, and the limits of each."""

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
    try:
        return (place / _SAID).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return ""


@dataclass(slots=True)
class _Worker(Generic[J]):
    process: WorkerProcess
    ready: bool = False
    at: tuple[J] | None = None
    """The item that it has."""
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
        """Why the last worker that was started did not begin; empty after one that answered."""

    def has_work(self) -> bool:
        """Whether an item waits, or is worked on."""
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
            self._workers[own] = _Worker(process)
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
            yield worker.at[0], _death(-signal.SIGKILL if status is None else status)
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
"""For each cache of a compiler the variable that names its directory, and those that turn it on."""


def _caches_of_compilers() -> Caches:
    """Passed to a worker as plain values, as it would have to import every backend to find them."""
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
    """Give compilers their own caches, as their binaries may pack the contents of these for the program."""
    for name, turn_on in caches:
        os.environ[name] = tempfile.mkdtemp(prefix="compiler-", dir=place)
        os.environ.update(turn_on)
    try:
        Path.home()
    except RuntimeError:  # a uid without a name; PyOpenCL refuses to load a binary without a home
        os.environ["HOME"] = str(place)
