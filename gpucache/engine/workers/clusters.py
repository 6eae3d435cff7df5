"""The workers of a cluster that somebody else runs: what each can build for, and jobs that run there.

Owns how they are reached, which of them are there, and which job a lost one had. A job is bytes, and so is
its answer. It runs in a process of its own on the worker's host: a crash in a worker would end its other jobs
as well, and Dask's workers may have no children by ``multiprocessing``. Dask and mpi4py pickle what travels,
so the workers of a cluster must be trusted. Must not know what a job is.

Workers import this module, too: its last functions are called there.
"""

import logging
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from gpucache import __version__
from gpucache.backends.registry import load_backend
from gpucache.engine.machine import Machine, profile_of, select_target
from gpucache.engine.workers.pool import Died, Done, Failed
from gpucache.errors import GpucacheError, UsageError, WorkersError
from gpucache.host.interrupts import held
from gpucache.host.process_groups import kill_group, start_group
from gpucache.host.scratch import scratch
from gpucache.model import Device, Target, Toolchain
from gpucache.probe.profile import Profile, decode_profile, encode_profile
from gpucache.units import format_count

J = TypeVar("J")

JOB, ANSWER = "job", "answer"
"""The files of the process of a job, in the directory that it is given."""
_ANSWER_CAP = 5 << 30
_POLL_S = 0.1
_LOOK_S = 1.0
"""How often an engine is asked who is there."""
_CONNECT_S = 10.0
_RETURN_S = 30.0
"""How long jobs wait when no worker can do them any more: lost ones may be started again."""
_PROBE_S = 120.0
_FETCH_S = 60.0
"""How long the answer of a call that has ended may take to arrive: the host that has it may be gone."""


class _Engine(Protocol):
    """The means of a cluster."""

    def slots(self) -> Mapping[str, int]:
        """The workers that are there now, each with how many jobs it takes at once."""
        ...

    def submit(self, worker: str, function: Callable[..., Any], *arguments: object) -> Any:
        """The future of a call on a worker."""
        ...

    def cancel(self, worker: str, future: Any) -> None:
        """Have a worker stop what it is at."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Task(Generic[J]):
    """An item for a worker with its target's toolchain."""

    item: J
    target: Target
    toolchain: Toolchain
    pack: Callable[[], bytes | Done[Any] | Failed | None]
    """Makes its job when a worker is free, or knows the answer already; None if it is to be asked later."""


class Cluster:
    """The workers of an engine that have this gpucache, and the profile of each."""

    def __init__(self, engine: _Engine, told: str) -> None:
        """Looks at every worker; raises WorkersError if none can be used. ``told`` is the engine's name."""
        self.told = told
        self._engine = engine
        self._woken = threading.Event()
        self._slots: Mapping[str, int] = {}
        self._of: dict[str, bytes] = {}
        """The profile of each worker, as it told it."""
        self._profiles: dict[bytes, Profile] = {}
        self._refused: dict[str, str] = {}
        self._looking: dict[Any, str] = {}
        self._able: dict[tuple[Target, Toolchain, bytes], bool] = {}
        self._asked_s, self._changed_s = 0.0, time.monotonic()
        end_s = self._changed_s + _PROBE_S
        self.notice()
        while not (self._slots or self.is_settled) or (self._looking and time.monotonic() < end_s):
            self.wait()
            self.notice()
        if not self._of:
            slow = f"none told within {_PROBE_S:g} s what it can build for"
            why = next(iter(self._refused.values()), slow if self._looking else "it has none")
            raise WorkersError(f"no worker of {told} can be used: {why}")
        self.machine = self._machine()

    @property
    def is_settled(self) -> bool:
        """Whether nobody has come or gone for a while."""
        return not self._looking and time.monotonic() - self._changed_s > _RETURN_S

    def wait(self) -> None:
        """Wait a moment, or until a job has ended."""
        self._woken.wait(_POLL_S)
        self._woken.clear()

    def notice(self) -> None:
        """Find out who is there now and then, and what new workers can build for."""
        now_s = time.monotonic()
        if now_s - self._asked_s >= _LOOK_S:
            before, self._slots, self._asked_s = self._slots, self._engine.slots(), now_s
            if before.keys() != self._slots.keys():
                self._changed_s = now_s
            self._of = {name: of for name, of in self._of.items() if name in self._slots}
            self._refused = {name: why for name, why in self._refused.items() if name in self._slots}
            known = {*self._of, *self._refused, *self._looking.values()}
            for name in self._slots.keys() - known:
                self._looking[self.submit(name, look, __version__)] = name
        for future in [one for one, name in self._looking.items() if one.done() or name not in self._slots]:
            name, self._changed_s = self._looking.pop(future), now_s
            if not future.done():
                continue
            try:
                data = future.result(timeout=_FETCH_S)
                profile = decode_profile(data if isinstance(data, bytes) else b"")
            except Exception as error:  # whatever it raised, in whatever version of gpucache
                self._refused[name] = _line(error)
            else:
                self._of[name] = data
                self._profiles[data] = profile

    def submit(self, worker: str, function: Callable[..., Any], *arguments: object) -> Any:
        """The future of a call on a worker, whose end ``wait`` notices."""
        future = self._engine.submit(worker, function, *arguments)
        future.add_done_callback(lambda _: self._woken.set())
        return future

    def cancel(self, worker: str, future: Any) -> None:
        """Have a worker stop what it is at."""
        with suppress(Exception):  # an engine that is gone
            self._engine.cancel(worker, future)

    def slots(self, task: Task[Any] | None = None) -> Counter[str]:
        """The workers that can be used now, or those that can do a task, with how many jobs each takes."""
        return Counter({
            name: self._slots[name]
            for name, of in self._of.items()
            if task is None or self._builds(of, task.target, task.toolchain)
        })  # fmt: skip

    def run(
        self,
        module: str,
        tasks: Sequence[Task[J]],
        jobs: int | None,
        running: Callable[[Sequence[J]], None],
    ) -> Iterator[tuple[J, Done[Any] | Failed | Died]]:
        """Have a module answer each task in a process, as ``run_isolated`` runs a function for each item.

        At most ``jobs`` run at once, None for as many as the workers take.
        """
        deal = _Deal(self, module, deque(tasks), sys.maxsize if jobs is None else jobs)
        with held() as raise_if_interrupted:
            try:
                while deal.has_work():
                    self.notice()
                    yield from deal.hand_out()
                    running(deal.running())
                    raise_if_interrupted()
                    self.wait()
                    yield from deal.ended()
                    raise_if_interrupted()
            finally:
                deal.end()

    def _machine(self) -> Machine:
        """The devices of all workers and the variables of each backend; where they differ, those of most."""
        counts = Counter(self._of.values())
        profiles = [self._profiles[of] for of, _ in counts.most_common()]
        devices: dict[object, Device] = {}
        for device in sorted((one for each in profiles for one in each.devices), key=_unavailable):
            devices.setdefault(device.target or (device.backend, device.name), device)
        givers: dict[str, Profile] = {}
        for each in profiles:
            for device in each.devices:
                if device.available:
                    givers.setdefault(device.backend, each)
        environment = {
            name: text
            for backend, each in givers.items()
            for device in each.devices
            if device.backend == backend and device.toolchain is not None
            for name, text in load_backend(backend).environment(device.toolchain, each.environment)
        }
        self.machine = Machine(tuple(devices.values()), environment)
        return self.machine._replace(notes=tuple(self._notes(counts)))

    def _notes(self, counts: Counter[bytes]) -> Iterator[str]:
        yield f"Building on {format_count(len(self._of), 'worker')} of {self.told}."
        for name, why in self._refused.items():
            yield f"{name} builds nothing: {why}."
        for device in self.machine.devices:
            if device.target is None or device.toolchain is None or not device.available:
                continue
            others = sum(
                count
                for of, count in counts.items()
                if any(one.target == device.target and one.available for one in self._profiles[of].devices)
                if not self._builds(of, device.target, device.toolchain)
            )
            if others:
                told = format_count(others, "worker")
                yield f"{told} with another driver or environment for {device.target} build nothing for it."

    def _builds(self, of: bytes, target: Target, toolchain: Toolchain) -> bool:
        """Whether workers with a profile build for a target with this toolchain and the same variables."""
        asked = target, toolchain, of
        if asked not in self._able:
            there, reaching = self._profiles[of], load_backend(target.backend).environment
            self._able[asked] = False
            with suppress(GpucacheError):
                alike = select_target(str(target), there.devices).toolchain == toolchain
                here = reaching(toolchain, self.machine.environment)
                self._able[asked] = alike and reaching(toolchain, there.environment) == here
        return self._able[asked]


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _unavailable(device: Device) -> bool:
    return not device.available


class _Deal(Generic[J]):
    """The tasks of one run, and who has which."""

    def __init__(self, cluster: Cluster, module: str, waiting: deque[Task[J]], most: int) -> None:
        self._cluster, self._module, self._waiting, self._most = cluster, module, waiting, most
        self._given: dict[Any, tuple[Task[J], str]] = {}

    def has_work(self) -> bool:
        """Whether an item waits, or is worked on."""
        return bool(self._waiting or self._given)

    def running(self) -> list[J]:
        """The items that are worked on."""
        return [task.item for task, _ in self._given.values()]

    def hand_out(self) -> Iterator[tuple[J, Done[Any] | Failed]]:
        """Give tasks to workers that are free and can do them; yields those whose answer is known already."""
        free = self._cluster.slots()
        free.subtract(worker for _, worker in self._given.values())
        for _ in range(len(self._waiting)):
            if len(self._given) >= self._most or max(free.values(), default=0) <= 0:
                return
            task = self._waiting.popleft()
            able = self._cluster.slots(task)
            worker = max(able, key=lambda name: free[name], default=None)
            job = task.pack() if worker is not None and free[worker] > 0 else None
            if worker is None or job is None:
                self._waiting.append(task)
            elif isinstance(job, bytes):
                self._given[self._cluster.submit(worker, in_process, self._module, job)] = task, worker
                free[worker] -= 1
            else:
                yield task.item, job

    def ended(self) -> Iterator[tuple[J, Done[Any] | Failed | Died]]:
        """The answers that came, and those for lost workers and for tasks that nobody can do any more."""
        there = self._cluster.slots()
        for future, (task, worker) in list(self._given.items()):
            if not future.done() and worker in there:
                continue
            del self._given[future]
            if not future.done():
                self._cluster.cancel(worker, future)
                yield task.item, Died(f"its worker {worker} was lost", lost=True)
                continue
            try:
                value = future.result(timeout=_FETCH_S)
            except Exception as error:  # it cannot be fetched, or the engine gave up
                yield task.item, Died(f"its worker {worker} gave no answer ({_line(error)})", lost=True)
            else:
                yield task.item, _meant(worker, value)
        for task in list(self._waiting) if self._cluster.is_settled and not self._given else ():
            if not self._cluster.slots(task):
                self._waiting.remove(task)
                told = (
                    f"no worker of {self._cluster.told} that can build it is left; start one and warm again"
                )
                yield task.item, Failed(GpucacheError(told))

    def end(self) -> None:
        """Have the workers stop what they are at."""
        for future, (_, worker) in self._given.items():
            self._cluster.cancel(worker, future)


def _meant(worker: str, value: object) -> Done[bytes] | Failed | Died:
    """What the answer of ``in_process`` means."""
    if isinstance(value, bytes) and len(value) <= _ANSWER_CAP:
        return Done(value)
    if isinstance(value, int):
        told = f"its gpucache process on {worker} ended with status {value}"
        return Died(told, lost=value >= 0)  # a signal may be the compiler's fault
    why = f"cannot run it: {value[:200]}" if isinstance(value, str) else "gave an answer that cannot be read"
    return Failed(GpucacheError(f"its worker {worker} {why}"))


@contextmanager
def open_cluster(name: str) -> Iterator[Cluster | None]:
    """The cluster of a name: ``dask:HOST:PORT``, or ``mpi`` for the other processes of mpiexec.

    In those it is None, when the process that asks has ended. Raises UsageError if its extra is not
    installed, WorkersError if it cannot be reached or has no worker.
    """
    kind, _, address = name.partition(":")
    if (kind, bool(address)) not in (("dask", True), ("mpi", False)):
        raise UsageError(
            f"{name!r} is not a cluster; write mpi or dask:ADDRESS as in dask:tcp://10.0.0.1:8786"
        )
    with _mpi() if kind == "mpi" else _dask(address) as engine:
        yield None if engine is None else Cluster(engine, name)


def _missing(name: str, extra: str) -> UsageError:
    return UsageError(
        f"--on {name} needs the extra '{extra}'; install it with: pip install 'gpucache[{extra}]'"
    )


class _Dask:
    """The workers of a Dask scheduler."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._slots: Mapping[str, int] = {}
        self._failed_s = 0.0

    def slots(self) -> Mapping[str, int]:
        try:
            self._slots, self._failed_s = dict(self._client.nthreads()), 0.0
        except Exception:  # each version tells in its own way that the scheduler gives no answer, or is gone
            self._failed_s = self._failed_s or time.monotonic()
            if time.monotonic() - self._failed_s > _RETURN_S:
                self._slots = {}
        return self._slots

    def submit(self, worker: str, function: Callable[..., Any], *arguments: object) -> Any:
        there = {"workers": [worker], "allow_other_workers": False}
        return self._client.submit(in_dask, function, *arguments, pure=False, **there)

    def cancel(self, _: str, future: Any) -> None:
        future.cancel()


@contextmanager
def _dask(address: str) -> Iterator[_Engine]:
    try:
        from distributed import Client
    except ImportError:
        raise _missing("dask:ADDRESS", "dask") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="distributed")
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, ImportError) as error:
        raise WorkersError(
            f"no Dask scheduler can be reached at {address} ({error}); check the address, and that it runs"
        ) from None
    try:
        yield _Dask(client)
    finally:
        with suppress(Exception):
            client.close()


_STOP = 1
"""The tag of an empty message that asks a worker of MPI to stop what it is at."""
_MPI_S = 0.02
"""How often a worker of MPI is asked at most whether it has ended."""


class _Mpi:
    """The other processes of mpiexec, each alone in a pool, as a pool gives a job to any of its workers."""

    def __init__(self, world: Any, pools: Mapping[str, Any]) -> None:
        self._world, self._pools = world, pools

    def slots(self) -> Mapping[str, int]:
        return dict.fromkeys(self._pools, 1)

    def submit(self, worker: str, function: Callable[..., Any], *arguments: object) -> Any:
        return self._pools[worker].submit(in_mpi, function, *arguments)

    def cancel(self, worker: str, _: Any) -> None:
        self._world.Isend(b"", list(self._pools).index(worker) + 1, _STOP)


@contextmanager
def _mpi() -> Iterator[_Engine | None]:
    try:
        from mpi4py import MPI
        from mpi4py.futures import MPICommExecutor
    except ImportError:
        raise _missing("mpi", "mpi") from None
    except RuntimeError as error:
        told = str(error).partition("\n")[0]
        raise UsageError(
            f"--on mpi finds no MPI ({told}); install one, and set LD_LIBRARY_PATH if need be"
        ) from None
    world = MPI.COMM_WORLD
    if world.size < 2:
        raise UsageError(
            "--on mpi has no workers; run 'mpiexec -n 3 gpucache warm ...', whose first process asks"
        )

    def pool(rank: int) -> Any:
        both = world.Create_group(world.group.Incl([0, rank]), rank)
        return MPICommExecutor(both, root=0, backoff=_MPI_S)

    if world.rank > 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks says when to stop
        with pool(world.rank):
            pass
        yield None
        return
    with ExitStack() as ends:
        yield _Mpi(world, {f"rank {rank}": ends.enter_context(pool(rank)) for rank in range(1, world.size)})


def look(version: str) -> bytes:
    """On a worker: its profile; raises UsageError for another version of gpucache."""
    from gpucache.probe.ask import ask

    if version != __version__:
        raise UsageError(f"it has gpucache {__version__}, and {version} asks; install the same there")
    return encode_profile(profile_of(ask()))


def in_process(module: str, job: bytes, wanted: Callable[[], bool] = lambda: True) -> bytes | int | str:
    """On a worker: the answer of a process of its own for a job.

    The process ends with the worker, or when its answer is not ``wanted`` any more. Instead of the answer it
    is the status of a process that ended without one, or why this host could not run one.
    """
    try:
        return _in_process(module, job, wanted)
    except OSError as error:  # here, not in the connection to the process that asked
        return _line(error)


def _in_process(module: str, job: bytes, wanted: Callable[[], bool]) -> bytes | int:
    words = (sys.executable, "-P", "-c", f"import sys, {module} as it; it.answer_job(sys.argv[1])")
    with scratch("elsewhere") as place, ExitStack() as ends:
        (place / JOB).write_bytes(job)
        silent = subprocess.DEVNULL
        child = start_group([*words, str(place)], ends, stdout=silent, stderr=silent)
        try:
            while wanted() and child.returncode is None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_POLL_S)
        finally:
            if child.returncode is None:
                kill_group(child.pid)
                child.wait()
        if child.returncode == 0 and (place / ANSWER).stat().st_size <= _ANSWER_CAP:
            return (place / ANSWER).read_bytes()
        return child.returncode


def in_dask(function: Callable[..., Any], *arguments: object) -> Any:
    """On a worker of Dask: a call that learns when its client does not want the answer."""
    from distributed import get_worker

    if function is not in_process:
        return function(*arguments)
    worker = get_worker()
    key = worker.get_current_task()

    def wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state == "executing"

    return function(*arguments, wanted)


def in_mpi(function: Callable[..., Any], *arguments: object) -> Any:
    """On a worker of MPI: a call that learns when the process that asked does not want the answer."""
    from mpi4py import MPI

    if function is not in_process:
        return function(*arguments)
    return function(*arguments, lambda: not MPI.COMM_WORLD.Iprobe(0, _STOP))
