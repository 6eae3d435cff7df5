"""The workers of a cluster that somebody else runs: what each can build for, and jobs that run there.

Owns how they are reached, which of them are there, and which job a lost one had. A job is bytes with parts,
which a process keeps for its next jobs; its answer is bytes. It runs in a process apart from the worker: a
crash in a worker would end its other jobs as well, and Dask's workers may have no children by
``multiprocessing``. Dask and mpi4py pickle what travels, so the workers of a cluster must be trusted. Must
not know what a job is.

Workers import this module, too: the functions after the engines are called there.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from gpucache import __version__
from gpucache.backends.interface import load_backend
from gpucache.engine.machine import Machine, profile_of, select_target
from gpucache.engine.workers.pool import Died, Done, Failed
from gpucache.errors import GpucacheError, UsageError, WorkersError
from gpucache.host import os_errors
from gpucache.host.interrupts import held
from gpucache.host.process_groups import kill_group, start_group
from gpucache.model import Device, Target, Toolchain
from gpucache.probe.profile import Profile, decode_profile, encode_profile
from gpucache.units import format_count

J = TypeVar("J")

_ANSWER_CAP = 5 << 30
_KEPT_CAP = 256 << 20
_IDLE_S = 15.0
_POLL_S = 0.1
_LOOK_S = 1.0
_CONNECT_S = 10.0
_RETURN_S = 30.0
"""How long jobs wait when no worker can do them any more: lost ones may be started again."""
_START_S = 120.0
"""How long a cluster without a worker may take to start one, as adaptive ones do for a task."""
_PROBE_S = 120.0
"""How long a worker may take to say what it can build for."""
_GRACE_S = 180.0
"""How long an answer may take beyond the time limit of the job, for its turn, its process and its way."""
_LAST_S = 10.0
_TOLD_CHARS = 500
_FETCH_S = 60.0
"""How long the answer of a finished call may take to arrive: its host may be gone."""


class _Engine(Protocol):
    def slots(self) -> Mapping[str, int]:
        """The present workers, each with the number of jobs that it takes at once."""

    def submit(self, worker: str, function: Callable[..., Any], *arguments: object) -> Any: ...

    def cancel(self, worker: str, future: Any) -> None: ...

    def wait(self) -> None: ...


class Job(NamedTuple):
    """The bytes of a job, and those of its parts by their digests."""

    data: bytes
    parts: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, eq=False)
class Task(Generic[J]):
    """An item for a worker with its target's toolchain."""

    item: J
    target: Target
    toolchain: Toolchain
    pack: Callable[[], Job | Done[Any] | Failed | None]
    """Returns the job for a free worker, or its answer if known; None to be asked again later."""


class Cluster:
    """The workers of an engine that have this gpucache, and the profile of each."""

    def __init__(self, engine: _Engine, told: str) -> None:
        """Looks at every worker; raises WorkersError if none can be used. ``told`` is the engine's name."""
        self.told = told
        self.engine = engine
        self._slots: Mapping[str, int] = {}
        self._of: dict[str, bytes] = {}
        self._profiles: dict[bytes, Profile] = {}
        self._refused: dict[str, str] = {}
        self._looking: dict[Any, tuple[str, float]] = {}
        self._able: dict[tuple[Target, Toolchain, bytes], bool] = {}
        self._asked_s, self._changed_s = 0.0, time.monotonic()
        self.notice()
        end_s = time.monotonic() + _START_S
        while self._looking or not (self._slots or time.monotonic() > end_s):
            engine.wait()
            self.notice()
        if not self._of:
            why = next(iter(self._refused.values()), f"none came within {_START_S:g} s; start one")
            raise WorkersError(f"no worker of {told} can be used: {why}")
        self.machine = self._machine()

    @property
    def is_settled(self) -> bool:
        return not self._looking and time.monotonic() - self._changed_s > _RETURN_S

    def notice(self) -> None:
        """Find out who is there now and then, and what new workers can build for."""
        now_s = time.monotonic()
        if now_s - self._asked_s >= _LOOK_S:
            before, self._slots, self._asked_s = self._slots, self.engine.slots(), now_s
            if before.keys() != self._slots.keys():
                self._changed_s = now_s
            self._of = {name: of for name, of in self._of.items() if name in self._slots}
            self._refused = {name: why for name, why in self._refused.items() if name in self._slots}
            known = {*self._of, *self._refused, *(name for name, _ in self._looking.values())}
            for name in self._slots.keys() - known:
                self._looking[self.engine.submit(name, look, __version__)] = name, now_s + _PROBE_S
        for future, (name, end_s) in list(self._looking.items()):
            is_late = now_s >= end_s
            if not (future.done() or is_late or name not in self._slots):
                continue
            del self._looking[future]
            self._changed_s = now_s
            if not future.done():
                if is_late:
                    self._refused[name] = f"it did not say within {_PROBE_S:g} s what it can build for"
                continue
            try:
                data = future.result(timeout=_FETCH_S)
                profile = decode_profile(data if isinstance(data, bytes) else b"")
            except Exception as error:  # whatever it raised, in whatever version of gpucache
                self._refused[name] = _line(error)
            else:
                self._of[name] = data
                self._profiles[data] = profile

    def cancel(self, worker: str, future: Any) -> None:
        with suppress(Exception):  # an engine that is gone
            self.engine.cancel(worker, future)

    def refuse(self, worker: str, why: str) -> None:
        self._refused[worker] = why
        self._of.pop(worker, None)

    def told_refused(self) -> str:
        """The present workers that are not used, in parentheses; empty if all are used."""
        refused = [f"{name}: {why}" for name, why in self._refused.items()]
        return f" ({'; '.join(refused)[:_TOLD_CHARS]})" if refused else ""

    def slots(self, task: Task[Any] | None = None) -> Counter[str]:
        """The usable workers, for a task if one is given, each with the number of jobs that it takes."""
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
        timeout_s: float,
        running: Callable[[Sequence[J]], None],
    ) -> Iterator[tuple[J, Done[Any] | Failed | Died]]:
        """Have a module answer each task in a process, as ``run_isolated`` runs a function for each item.

        At most ``jobs`` run at once, None for as many as the workers take. A job has the time limit
        ``timeout_s``; a worker that does not answer long after it gets nothing any more.
        """
        deal = _Deal(self, module, deque(tasks), sys.maxsize if jobs is None else jobs, timeout_s + _GRACE_S)
        with held() as raise_if_interrupted:
            try:
                while deal.has_work():
                    self.notice()
                    yield from deal.hand_out()
                    running(deal.running())
                    raise_if_interrupted()
                    self.engine.wait()
                    yield from deal.ended()
                    yield from deal.unable()
                    raise_if_interrupted()
            finally:
                deal.end()

    def _machine(self) -> Machine:
        """The devices of all workers, and for each compiler the variables that most workers have."""
        counts = Counter(self._of.values())
        profiles = [self._profiles[of] for of, _ in counts.most_common()]
        devices: dict[object, Device] = {}
        for device in sorted((one for each in profiles for one in each.devices), key=_unavailable):
            devices.setdefault(device.target or (device.backend, device.name), device)
        environment: dict[str, str] = {}
        chosen: set[tuple[str, Toolchain]] = set()
        for each in profiles:
            have = ((one.backend, one.toolchain) for one in each.devices if one.available)
            new = {(name, toolchain) for name, toolchain in have if toolchain is not None} - chosen
            environment |= {
                name: text
                for backend, toolchain in new
                for name, text in load_backend(backend).environment(toolchain, each.environment)
                if not any(load_backend(other).environment(one, {name: text}) for other, one in chosen)
            }
            chosen |= new
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


class _Given(NamedTuple, Generic[J]):
    task: Task[J]
    worker: str
    job: Job
    end_s: float


class _Deal(Generic[J]):
    def __init__(
        self, cluster: Cluster, module: str, waiting: deque[Task[J]], most: int, limit_s: float
    ) -> None:
        self._cluster, self._module, self._waiting, self._most = cluster, module, waiting, most
        self._limit_s = limit_s
        self._given: dict[Any, _Given[J]] = {}
        self._kept: dict[str, set[str]] = {}
        """The digests of the parts that each worker received."""

    def has_work(self) -> bool:
        return bool(self._waiting or self._given)

    def running(self) -> list[J]:
        return [given.task.item for given in self._given.values()]

    def hand_out(self) -> Iterator[tuple[J, Done[Any] | Failed]]:
        """Give tasks to free workers that can do them; yields tasks whose answer is known already."""
        free = self._cluster.slots()
        free.subtract(given.worker for given in self._given.values())
        for _ in range(len(self._waiting)):
            if len(self._given) >= self._most or max(free.values(), default=0) <= 0:
                return
            task = self._waiting.popleft()
            able = self._cluster.slots(task)
            worker = max(able, key=lambda name: free[name], default=None)
            job = task.pack() if worker is not None and free[worker] > 0 else None
            if worker is None or job is None:
                self._waiting.append(task)
            elif isinstance(job, Job):
                self._give(task, worker, job)
                free[worker] -= 1
            else:
                yield task.item, job

    def _give(self, task: Task[J], worker: str, job: Job) -> None:
        kept = self._kept.setdefault(worker, set())
        parts = {name: None if name in kept else part for name, part in job.parts.items()}
        kept.update(parts)
        future = self._cluster.engine.submit(worker, in_process, self._module, job.data, parts)
        self._given[future] = _Given(task, worker, job, time.monotonic() + self._limit_s)

    def ended(self) -> Iterator[tuple[J, Done[Any] | Failed | Died]]:
        there = self._cluster.slots()
        for future, (task, worker, job, end_s) in list(self._given.items()):
            is_late = time.monotonic() > end_s
            if not (future.done() or is_late) and worker in there:
                continue
            del self._given[future]
            if not future.done():
                self._cluster.cancel(worker, future)
                why = "was lost"
                if worker in there:
                    why = f"gave no answer within {self._limit_s:g} s"
                    self._cluster.refuse(worker, f"it {why}")
                yield task.item, Died(f"its worker {worker} {why}", lost=True)
                continue
            try:
                value = future.result(timeout=_FETCH_S)
            except CancelledError:
                why = f"the connection to {self._cluster.told} was lost"
                yield task.item, Died(why, lost=True)
            except Exception as error:  # it cannot be fetched, or the engine gave up
                yield task.item, Died(f"its worker {worker} gave no answer ({_line(error)})", lost=True)
            else:
                if value == LACKS_PARTS:
                    self._kept.pop(worker)
                    self._give(task, worker, job)
                else:
                    yield task.item, _meant(worker, value)

    def unable(self) -> Iterator[tuple[J, Failed]]:
        for task in list(self._waiting) if self._cluster.is_settled and not self._given else ():
            if not self._cluster.slots(task):
                self._waiting.remove(task)
                told = f"no worker of {self._cluster.told} that can build it is left"
                why = self._cluster.told_refused()
                yield task.item, Failed(GpucacheError(f"{told}{why}; start one and warm again"))

    def end(self) -> None:
        for future, given in self._given.items():
            self._cluster.cancel(given.worker, future)


def _meant(worker: str, value: object) -> Done[bytes] | Failed | Died:
    """The outcome of a job, from the value that ``in_process`` returned."""
    if isinstance(value, bytes) and len(value) <= _ANSWER_CAP:
        return Done(value)
    if isinstance(value, int):
        told = f"its gpucache process on {worker} ended with status {value}"
        return Died(told, lost=value >= 0)  # a signal may be the compiler's fault
    why = f"cannot run it: {value[:200]}" if isinstance(value, str) else "gave an answer that cannot be read"
    return Failed(GpucacheError(f"its worker {worker} {why}"))


@contextmanager
def open_cluster(name: str) -> Iterator[Cluster | None]:
    """The cluster of a name: ``dask:ADDRESS``, ``dask:///FILE``, or ``mpi`` for mpiexec's other processes.

    In mpiexec's other processes this serves until the asking process ends, and gives None. Raises UsageError
    if its extra is not installed, WorkersError if it cannot be reached or has no worker.
    """
    kind, _, address = name.partition(":")
    if (kind, bool(address)) not in (("dask", True), ("mpi", False)):
        raise UsageError(
            f"{name!r} is not a cluster; write mpi or dask:ADDRESS as in dask:tcp://10.0.0.1:8786, or "
            "dask:///FILE for a scheduler file"
        )
    with _mpi() if kind == "mpi" else _dask(address) as engine:
        yield None if engine is None else Cluster(engine, name)


def _missing(name: str, library: str) -> UsageError:
    return UsageError(f"--on {name} needs a library; install it with: pip install {library}")


class _Dask:
    def __init__(self, client: Any) -> None:
        self._client = client
        self._woken = threading.Event()
        self._slots: Mapping[str, int] = {}
        self._failed_s = 0.0
        self._demand: Any = None
        """A task that waits while there is no worker, so that an adaptive cluster starts one."""

    def slots(self) -> Mapping[str, int]:
        try:
            self._slots, self._failed_s = dict(self._client.nthreads(callback_timeout=_CONNECT_S)), 0.0
        except Exception:  # each version tells in its own way that the scheduler gives no answer, or is gone
            self._failed_s = self._failed_s or time.monotonic()
            if time.monotonic() - self._failed_s > _RETURN_S:
                self._slots = {}
        if self._slots or self._failed_s:
            self._demand = None
        elif self._demand is None:
            self._demand = self._client.submit(len, (), pure=False)
        return self._slots

    def submit(self, worker: str, function: Callable[..., Any], *arguments: object) -> Any:
        there = {"workers": [worker], "allow_other_workers": False, "pure": False}

        def call() -> Any:
            return self._noticed(self._client.submit(in_dask, function, *arguments, **there))

        if function is not look:
            return call()
        imported = self._client.submit(import_module, __name__, **there)
        names = attrgetter(*(one.__name__ for one in (in_dask, look, in_process)))
        return _Found(self._noticed(self._client.submit(names, imported, **there)), call)

    def cancel(self, _: str, future: Any) -> None:
        future.cancel()

    def _noticed(self, future: Any) -> Any:
        future.add_done_callback(lambda _: self._woken.set())
        return future

    def wait(self) -> None:
        self._woken.wait(_POLL_S)
        self._woken.clear()


class _Found:
    """The future of the first call on a worker, which may have no gpucache or another one.

    A function that travels by reference ends a worker that does not have it, with the tasks of others there.
    So it is looked for by a task of its own, which consists of functions that every Python has.
    """

    def __init__(self, found: Any, call: Callable[[], Any]) -> None:
        self._future = found
        self._call: Callable[[], Any] | None = call

    def done(self) -> bool:
        if self._call is not None and self._future.done() and self._future.status == "finished":
            self._future, self._call = self._call(), None
        return bool(self._future.done())

    def result(self, timeout: float) -> Any:
        try:
            return self._future.result(timeout=timeout)
        except (ImportError, AttributeError) as error:
            raise WorkersError(
                f"it cannot import gpucache {__version__} ({_line(error)}); install the same there"
            ) from None


def _where(address: str) -> Mapping[str, str]:
    """The arguments of Dask's client for an address, or ``///`` and a scheduler file; raises UsageError."""
    from distributed.security import Security

    if address.startswith("///"):
        path = address[2:]
        try:
            address = str(json.loads(Path(path).read_bytes())["address"])
        except OSError as error:
            raise UsageError(f"the scheduler file {path} cannot be read: {os_errors.reason(error)}") from None
        except (ValueError, KeyError, TypeError):
            raise UsageError(
                f"{path} is not a scheduler file; name the one of 'dask scheduler --scheduler-file FILE'"
            ) from None
    address = address.removeprefix("//")
    if address.startswith("tls://") and Security().get_connection_args("client")["ssl_context"] is None:
        raise UsageError(
            f"{address} needs TLS, and Dask's settings name no certificates; set "
            "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, and CERT and KEY of DASK_DISTRIBUTED__COMM__TLS__CLIENT__"
        )
    return {"address": address}


@contextmanager
def _dask(address: str) -> Iterator[_Engine]:
    try:
        from distributed import Client
    except ImportError:
        raise _missing("dask:ADDRESS", "distributed") from None
    for name in ("distributed", "distributed.client"):  # each has a level of its own
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="distributed")
    made, where = Future[Any](), _where(address)

    def connect() -> None:
        try:
            made.set_result(Client(**where, timeout=_CONNECT_S, set_as_default=False))
        except Exception as error:
            made.set_exception(error)

    # In a thread: it waits without end for a server that takes a connection and says nothing.
    threading.Thread(target=connect, daemon=True).start()
    try:
        client = made.result(2 * _CONNECT_S)
    except Exception as error:  # each protocol and each version has its own
        raise WorkersError(
            f"no Dask scheduler can be reached at {where['address']} ({_line(error)}); "
            "check the address, and that it runs"
        ) from None
    try:
        yield _Dask(client)
    finally:
        with suppress(Exception):
            client.close()


_CALL, _ANSWER, _STOP, _END = range(1, 5)
"""The tags of messages by MPI; a call without content asks a worker to stop its present one."""
_MPI_S = 0.002
"""How often MPI is asked for messages: to wait for one keeps a core busy."""


class _Mpi:
    """The other processes of mpiexec.

    Not by ``mpi4py.futures``, whose pools wait at the end for a worker that never answers.
    """

    def __init__(self, world: Any) -> None:
        self._world = world
        self._asked: dict[int, Future[Any]] = {}
        self._going: dict[int, Any] = {}
        self._coming: dict[int, Any] = {}
        """The messages that are on their way to each worker, and from it."""

    def slots(self) -> Mapping[str, int]:
        return {f"rank {rank}": 1 for rank in range(1, self._world.size)}

    def submit(self, worker: str, function: Callable[..., Any], *arguments: object) -> Any:
        rank = int(worker.removeprefix("rank "))
        self._asked[rank] = future = Future[Any]()
        self._going[rank] = self._world.isend((function, arguments), rank, _CALL)
        return future

    def cancel(self, worker: str, _: Any) -> None:
        self._world.Isend(b"", int(worker.removeprefix("rank ")), _STOP)

    def wait(self) -> None:
        end_s = time.monotonic() + _POLL_S
        while not self._receive() and time.monotonic() < end_s:
            time.sleep(_MPI_S)

    def _receive(self) -> bool:
        before = len(self._asked)
        for rank in list(self._asked):
            if rank not in self._coming and (message := self._world.improbe(rank, _ANSWER)) is not None:
                self._coming[rank] = message.irecv()
            has_come, answer = self._coming[rank].test() if rank in self._coming else (False, None)
            if has_come:
                del self._coming[rank]
                future = self._asked.pop(rank)
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        return len(self._asked) < before

    def end(self) -> bool:
        left, end_s = {*range(1, self._world.size)}, time.monotonic() + _LAST_S
        ends = [self._world.isend(None, rank, _CALL) for rank in left]
        while left and time.monotonic() < end_s:
            self.wait()
            for rank in [rank for rank in left if self._world.Iprobe(rank, _END)]:
                self._world.Recv(bytearray(), rank, _END)
                left.remove(rank)
        return not left and all(end.test()[0] for end in ends)


@contextmanager
def _mpi() -> Iterator[_Engine | None]:
    try:
        import mpi4py
    except ImportError:
        raise _missing("mpi", "mpi4py") from None
    mpi4py.rc.finalize = False  # which waits for every process
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        told = str(error).partition("\n")[0]
        raise UsageError(
            f"mpi4py cannot load MPI ({told}); install Open MPI, or MPICH and set LD_LIBRARY_PATH to a "
            "directory in which libmpi.so.12 is a link to its library"
        ) from None
    world = MPI.COMM_WORLD
    if world.size < 2:
        raise UsageError(
            "--on mpi has no workers; run 'mpiexec -n 3 gpucache warm ...', whose rank 0 hands out the builds"
        )
    if world.rank > 0:
        _serve_mpi(world)
        MPI.Finalize()
        yield None
        return
    engine = _Mpi(world)
    try:
        yield engine
    finally:
        if engine.end():
            MPI.Finalize()  # else mpiexec ends the others after this process


def _serve_mpi(world: Any) -> None:
    """In a worker of MPI: answer calls until the process that asks wants no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it says when to stop
    while True:
        while not world.Iprobe(0, _CALL):
            time.sleep(_MPI_S)
        call = world.recv(source=0, tag=_CALL)
        if call is None:
            while world.Iprobe(0, _STOP):
                world.Recv(bytearray(), 0, _STOP)
            world.Send(b"", 0, _END)
            return
        function, arguments = call
        if function is in_process:
            arguments = (*arguments, lambda: not world.Iprobe(0, _STOP))
        try:
            answer = function(*arguments)
        except Exception as error:  # whatever it is, who asked tells it
            answer = error
        world.send(answer, 0, _ANSWER)


def look(version: str) -> bytes:
    """On a worker: its profile; raises UsageError for another version of gpucache."""
    from gpucache.probe.ask import ask

    if version != __version__:
        raise UsageError(f"it has gpucache {__version__}, and {version} asks; install the same there")
    return encode_profile(profile_of(ask()))


LACKS_PARTS = b""
"""The answer of a process that does not have all parts of a job."""


def in_process(
    module: str, job: bytes, parts: Mapping[str, bytes | None], wanted: Callable[[], bool] = lambda: True
) -> bytes | int | str:
    """On a worker: the answer of a process that answers jobs one after another.

    ``parts`` are None where the process should have them. The process ends with the worker, or when its
    answer is not ``wanted`` any more. Instead of the answer it is the status of a process that ended without
    one, or why this host could not run one.
    """
    try:
        while True:
            try:
                child, is_old = _FREE.pop(), True
            except IndexError:
                child, is_old = _Child(module), False
            answer = child.ask((job, parts), wanted)
            if isinstance(answer, bytes):
                _FREE.append(child)
            elif is_old and wanted():  # it may have ended before it was asked
                continue
            return answer
    except OSError as error:  # here, not in the connection to the process that asked
        return _line(error)


class _Child:
    def __init__(self, module: str) -> None:
        words = (sys.executable, "-P", "-c", f"import {module} as it; it.answer_jobs()")
        silent = subprocess.DEVNULL
        with ExitStack() as ends:
            self._own, its = Pipe()
            ends.enter_context(self._own)
            with its:
                self._process = start_group(words, ends, stdin=its.fileno(), stdout=silent, stderr=silent)
            self._ends = ends.pop_all()

    def ask(self, job: object, wanted: Callable[[], bool]) -> bytes | int:
        """The answer of the process; its exit status if it ended without an answer."""
        with suppress(EOFError, OSError):  # it has ended
            self._own.send(job)
            while wanted():
                if self._own.poll(_POLL_S):
                    return self._own.recv_bytes(_ANSWER_CAP)
        with self._ends, suppress(subprocess.TimeoutExpired):
            if not wanted():
                kill_group(self._process.pid)
            return self._process.wait(_LAST_S)
        return -9  # which its group gets now


class Jobs:
    """In a process of a worker: its jobs, which come by its standard input."""

    def __init__(self) -> None:
        self._channel = Connection(os.dup(0))
        silence = os.open(os.devnull, os.O_RDONLY)
        os.dup2(silence, 0)  # for compilers
        os.close(silence)
        self._kept: dict[str, bytes] = {}

    def take(self) -> Job | None:
        """The next job; None if none comes for a while."""
        while self._channel.poll(_IDLE_S):
            try:
                data, parts = self._channel.recv()
            except EOFError:
                return None
            self._kept |= {name: part for name, part in parts.items() if part is not None}
            found = {name: self._kept[name] for name in parts if name in self._kept}
            if sum(map(len, self._kept.values())) > _KEPT_CAP:
                self._kept.clear()
            if len(found) == len(parts):
                return Job(data, found)
            self.answer(LACKS_PARTS)
        return None

    def answer(self, data: bytes) -> None:
        self._channel.send_bytes(data)


_FREE: list[_Child] = []


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
