"""Recorded kernels of Triton, compiled by workers: processes of the Python that recorded them.

Owns these processes: the kernels of one environment share one, the time limit is each kernel's, and a worker
that dies costs the kernel that it was compiling. The kernels' modules are imported there alone. Must not know
Triton: ``kernels/`` does.
"""

import base64
import json
import os
import re
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gpucache.answers.lookup import Verdict
from gpucache.answers.warm import FleetCommand, FleetOutcome, WarmOutcome, WarmResult
from gpucache.engine.machine import Machine
from gpucache.engine.warm.plan import Progress
from gpucache.engine.workers.capacity import worker_count
from gpucache.host.process_groups import kill_group, start_group
from gpucache.kernels import WORKER
from gpucache.recording.kernels import Kernels, RecordedKernel, wanted_targets
from gpucache.units import format_count

if TYPE_CHECKING:
    from gpucache.engine.warm.run import Warming

_RESULTS = {
    "hit": WarmResult.HIT,
    "built": WarmResult.BUILT,
    "missing": WarmResult.MISSING,
    "skipped": WarmResult.SKIPPED,
    "refused": WarmResult.FAILED,
    "failed": WarmResult.FAILED,
}
_FEW = 8
"""The number of kernels up to which one worker is enough, as its imports take seconds."""
_START_S = 300.0
_TAIL_BYTES = 2000
_MISSING = "Triton's cache does not have it"


@dataclass(slots=True)
class _Batch:
    """Kernels of one environment for one target, in the order in which a worker compiles them."""

    target: str
    triple: tuple[object, ...]
    left: list[RecordedKernel]
    begun: bool = False
    answered: bool = False


@dataclass(slots=True)
class _Worker:
    batch: _Batch
    process: "subprocess.Popen[bytes]"
    errors: IO[bytes]
    deadline: float
    ends: ExitStack = field(default_factory=ExitStack)
    text: bytes = b""


def warm_kernels(run: "Warming", found: Kernels, targets: Sequence[str]) -> list[WarmOutcome]:
    """The outcome of each kernel for each given target that takes kernels, or for its recorded target."""
    wanted = wanted_targets(found.kernels.values(), targets)
    own = {one.told_target: one for one in found.kernels.values()}
    batches = list(_batches(run, found.kernels, wanted, every=bool(targets)))
    outcomes = [
        WarmOutcome(name, "", WarmResult.SKIPPED, reason=f"it was not recorded: {why}")
        for name, why in found.unrecorded
    ]
    if run.cluster is not None:
        why = "kernels of Triton are compiled on this machine only; leave --on out"
        left_out = {"result": "skipped", "why": why}
        return outcomes + [_outcome(one, batch.target, left_out) for batch in batches for one in batch.left]
    made = _Rounds(run, batches).outcomes()
    outcomes += sorted(made, key=lambda one: (one.program, one.target, one.variant))
    for target in wanted:
        done = sum(
            one.target == target and one.result in (WarmResult.BUILT, WarmResult.HIT) for one in outcomes
        )
        if done and target not in own:
            told = format_count(done, "kernel was", "kernels were")
            run.say(f"{told} recorded elsewhere; a program may choose others on {target}.")
    return outcomes


def check_fleet_kernels(
    run: "Warming", found: Kernels, machines: Mapping[str, Machine], folders: Sequence[Path]
) -> tuple[list[FleetOutcome], list[FleetCommand]]:
    """The kernels that the GPUs of some machines would miss, and the commands that compile them."""
    asking: dict[str, list[str]] = {}
    for name, machine in machines.items():
        for target in dict.fromkeys(str(device.target) for device in machine.devices):
            asking.setdefault(target, []).append(name)
    outcomes: list[FleetOutcome] = []
    commands: list[FleetCommand] = []
    for target in wanted_targets((), asking) if asking else ():
        some = warm_kernels(run, found, [target])
        outcomes += (FleetOutcome(one, tuple(asking[target]), one.reason) for one in some)
        if missing := sum(one.result is WarmResult.MISSING for one in some):
            given = (word for folder in folders for word in ("--recording", str(folder)))
            words = ("gpucache", "warm", *given, "--target", target)
            names = tuple(asking[target])
            commands.append(FleetCommand(words, missing, names, len(names)))
    return outcomes, commands


def _batches(
    run: "Warming", kernels: Mapping[str, RecordedKernel], targets: Mapping[str, Any], *, every: bool
) -> Iterator[_Batch]:
    for text, triple in targets.items():
        starts: dict[object, list[RecordedKernel]] = {}
        for one in kernels.values():
            if every or one.told_target == text:
                starts.setdefault(one.start, []).append(one)
        for some in starts.values():
            parts = min(run.jobs or worker_count(len(some)), -(-len(some) // _FEW))
            yield from (_Batch(text, triple, some[number::parts]) for number in range(parts))


class _Rounds:
    """Runs batches, as many at once as there are jobs."""

    def __init__(self, run: "Warming", batches: list[_Batch]) -> None:
        self._run = run
        self._pending = batches
        self._total = sum(len(one.left) for one in batches)
        self._outcomes: list[WarmOutcome] = []
        self._selector = selectors.DefaultSelector()

    def outcomes(self) -> list[WarmOutcome]:
        """The outcome of every kernel; an interrupt leaves the rest interrupted."""
        jobs, workers = self._run.jobs or worker_count(max(1, self._total)), dict[int, _Worker]()
        unfinished: list[_Batch] = []
        try:
            while self._pending or workers:
                while self._pending and len(workers) < jobs:
                    unfinished.append(batch := self._pending.pop(0))
                    self._start(batch, workers)
                self._wait(workers)
        except KeyboardInterrupt:
            for batch in (*unfinished, *self._pending):
                for number, one in enumerate(batch.left):
                    why = "it was being compiled" if batch.begun and not number else "it was not reached"
                    self._outcomes.append(
                        WarmOutcome(one.name, batch.target, WarmResult.INTERRUPTED, reason=why)
                    )
        finally:
            for worker in workers.values():
                self._end(worker)
        return self._outcomes

    def _start(self, batch: _Batch, workers: dict[int, _Worker]) -> None:
        request = {
            "target": batch.triple,
            "check": self._run.check,
            "kernels": [asdict(one) for one in batch.left],
        }
        batch.begun = batch.answered = False
        python = _python(batch.left[0].python)
        with ExitStack() as ends:
            try:
                told = ends.enter_context(tempfile.TemporaryFile())
                told.write(json.dumps(request).encode())
                told.seek(0)
                errors = ends.enter_context(tempfile.TemporaryFile())
                if python is None:
                    raise FileNotFoundError(2, "it is not here, and no other python3 is in PATH")
                process = start_group(
                    [python, WORKER], ends, stdin=told, stdout=subprocess.PIPE, stderr=errors, env=os.environ
                )
            except OSError as error:
                self._fail(batch, f"{python or batch.left[0].python} cannot be started: {error.strerror}")
                return
            worker = _Worker(batch, process, errors, time.monotonic() + _START_S, ends.pop_all())
        assert process.stdout is not None
        workers[process.stdout.fileno()] = worker
        self._selector.register(process.stdout, selectors.EVENT_READ)

    def _wait(self, workers: dict[int, _Worker]) -> None:
        latest = min((one.deadline for one in workers.values()), default=0.0)
        for key, _ in self._selector.select(max(0.0, latest - time.monotonic())) if workers else ():
            worker = workers[key.fd]
            if data := os.read(key.fd, 1 << 16):
                *lines, worker.text = (worker.text + data).split(b"\n")
                for line in lines:
                    self._heard(worker, json.loads(line))
            else:
                self._end(workers.pop(key.fd))
        now = time.monotonic()
        for place, worker in list(workers.items()):
            if worker.deadline <= now:
                self._end(workers.pop(place), f"it took longer than {self._run.timeout_s:g} s")

    def _heard(self, worker: _Worker, told: dict[str, Any]) -> None:
        batch = worker.batch
        batch.answered = True
        if "begun" in told:
            batch.begun, worker.deadline = True, time.monotonic() + self._run.timeout_s
        else:
            self._outcomes.append(_outcome(batch.left.pop(0), batch.target, told))
            batch.begun = False
        if batch.left:
            one = batch.left[0]
            running = ((one.name, batch.target, one.digest[:12]),)
            self._run.progress(Progress(len(self._outcomes), self._total, running))

    def _end(self, worker: _Worker, why: str = "") -> None:
        """End a worker: its current kernel has failed, and another worker compiles the rest."""
        batch, process = worker.batch, worker.process
        assert process.stdout is not None
        self._selector.unregister(process.stdout)
        if batch.left:
            kill_group(process.pid)
        code = process.wait()
        process.stdout.close()
        if batch.left and not why:
            size = worker.errors.seek(0, os.SEEK_END)
            worker.errors.seek(max(0, size - _TAIL_BYTES))
            last = worker.errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            why = ": ".join((f"its compiler was ended by {how}", *last))
        worker.ends.close()
        if batch.begun:
            self._outcomes.append(_outcome(batch.left.pop(0), batch.target, {"result": "failed", "why": why}))
        if batch.left and not batch.answered:
            self._fail(batch, why)
        elif batch.left:
            self._pending.append(batch)

    def _fail(self, batch: _Batch, why: str) -> None:
        told = {"result": "failed", "why": why}
        self._outcomes += [_outcome(one, batch.target, told) for one in batch.left]
        batch.left.clear()


def _python(recorded: str) -> str | None:
    """The interpreter that recorded a kernel, or else the one in PATH; a recording names no other program."""
    named = re.fullmatch(r"python[0-9.]*", Path(recorded).name) is not None
    if named and Path(recorded).is_absolute() and os.access(recorded, os.X_OK):
        return recorded
    return shutil.which("python3")


def _outcome(kernel: RecordedKernel, target: str, told: Mapping[str, Any]) -> WarmOutcome:
    result = _RESULTS[told["result"]]
    key = told.get("key")
    missing = result is WarmResult.MISSING
    return WarmOutcome(
        kernel.name,
        target,
        result,
        kernel.digest[:12],
        # The name of the directory in Triton's cache.
        key=base64.b32encode(bytes.fromhex(key)).decode().rstrip("=") if key else None,
        compile_ns=told.get("compile_ns") if result is WarmResult.BUILT else kernel.compile_ns or None,
        size_bytes=told.get("size_bytes"),
        reason=_MISSING if missing else told.get("why", ""),
        verdict=Verdict.NEVER_BUILT if missing else None,
    )
