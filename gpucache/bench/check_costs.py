"""The cost of checks inside kernels: the suite of ``bench --checks`` on every requested OpenCL device.

Owns the plan and the figures. Each target is timed in a separate process. Must not know how kernels are
launched.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gpucache.answers.bench import CheckedCase
from gpucache.bench.compare import paired_ratio
from gpucache.checks import include_dirs
from gpucache.engine.machine import default_devices, select_target
from gpucache.engine.workers.pool import Bounds, Died, Failed, run_isolated
from gpucache.errors import CompileError, GpucacheError, NoDeviceError, TargetError
from gpucache.model import BuildRequest, Checks, Device, Program, Toolchain

BACKEND = "opencl"
LOCAL_SIZE = 128


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of ``gpucache/examples/checks``; its items fill whole groups of ``LOCAL_SIZE``."""

    name: str
    kind: str
    """The feature that it is typical of, for people."""
    items: int
    launches: int
    """How many launches one sample times, each on the results of the one before."""
    reads: bool = False
    """Whether the host reads a number after every launch."""


SUITE = (
    Kernel("gather", "indices from data", 1 << 18, 20),
    Kernel("scatter", "indices from data", 1 << 18, 20),
    Kernel("stencil", "many indices", 1 << 18, 20),
    Kernel("reduce", "barriers", 1 << 16, 20),
    Kernel("scan", "barriers", 1 << 16, 20),
    Kernel("steps", "small launches, read between", 1 << 10, 100, reads=True),
)


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """The job of a worker: the suite for one target, and how often it takes each sample."""

    request: BuildRequest
    toolchain: Toolchain
    runs: int


Durations = Mapping[str, Mapping[Checks, Sequence[int]]]


def plan_checked(
    program: Program, devices: Sequence[Device], targets: Sequence[str], runs: int
) -> list[CheckedJob]:
    """The suite for each target; raises TargetError or NoDeviceError."""
    for text in targets:
        if not text.startswith(f"{BACKEND}:"):
            raise TargetError(f"--checks times OpenCL devices, and {text} is not one; leave it out")
    chosen = [select_target(text, devices) for text in targets] or default_devices(devices, BACKEND)
    jobs = []
    for device in chosen:
        if device.target is not None and device.toolchain is not None:
            folders = include_dirs(program.source, Checks.NONE)
            jobs.append(
                CheckedJob(BuildRequest(program, device.target, include_dirs=folders), device.toolchain, runs)
            )
    if not jobs:
        raise NoDeviceError("no OpenCL device exists to time checks on; 'gpucache devices' says why")
    return jobs


def run_checked(
    jobs: Sequence[CheckedJob],
    measure: Callable[[CheckedJob], Durations],
    timeout_s: float,
    running: Callable[[Sequence[CheckedJob]], None],
) -> Iterator[CheckedCase]:
    """The figures of each kernel, as soon as its target is done."""
    bounds = Bounds(jobs=1, timeout_s=timeout_s, fresh=True)
    for job, answer in run_isolated(measure, jobs, bounds, running):
        target = str(job.request.target)
        if isinstance(answer, Died):
            yield CheckedCase(target, error=answer.reason)
        elif isinstance(answer, Failed):
            yield CheckedCase(target, error=_words(answer.error))
        else:
            yield from (_case(target, case.name, case.kind, answer.value[case.name]) for case in SUITE)


def _words(error: BaseException) -> str:
    if isinstance(error, CompileError):
        return str(error)
    return error.message if isinstance(error, GpucacheError) else f"unexpected {error}"


def _case(target: str, kernel: str, kind: str, durations: Mapping[Checks, Sequence[int]]) -> CheckedCase:
    plain = durations[Checks.NONE]
    return CheckedCase(
        target,
        kernel,
        kind,
        len(plain),
        round(median(plain)),
        paired_ratio(durations[Checks.SYNC], plain),
        paired_ratio(durations[Checks.ASYNC], plain),
    )
