"""Starts with nothing cached against starts with everything cached, in turn.

Owns the plan, the isolation of driver caches, and folding samples into a case. What one start does
is in ``samples``. Timings are shown as medians with their spread; a ratio is paired.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TypeVar

from gpucache.backends.interface import Backend, Launch
from gpucache.engine.pool import Bounds, Died, Done, run_isolated
from gpucache.engine.samples import PHASES, SampleJob
from gpucache.engine.warm import Job, WarmItem
from gpucache.model import BuildRequest, Toolchain
from gpucache.outcomes import BenchCase, Built, Hit, Ratio, Sample, Spread, Temperature

J = TypeVar("J")
R = TypeVar("R")

NO_LAUNCH = (
    "this compiler builds late and no local size is declared, so the cost at first launch is not known; "
    "give --local-size, or local_sizes in a manifest"
)
# What each driver reads to find its own cache, given a folder of its own for every cold start.
_PLACES = (
    "POCL_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "NEO_CACHE_DIR",
    "MESA_SHADER_CACHE_DIR",
    "AMD_COMGR_CACHE_DIR",
)


@dataclass(frozen=True, slots=True)
class Prepare:
    """What a child prepares before anything is timed: the entry, and the launches to make."""

    job: Job
    root: str


@dataclass(frozen=True, slots=True)
class Timed:
    """A sample to take, against the cache at ``root``."""

    job: SampleJob
    root: str


@dataclass(frozen=True, slots=True)
class Workers:
    """The functions that run in fresh processes."""

    build: Callable[[Prepare], Hit | Built]
    launches: Callable[[Prepare], tuple[Launch, ...]]
    sample: Callable[[Timed], Sample]


def run_bench(
    items: Sequence[WarmItem],
    workers: Workers,
    bounds: Bounds,
    backends: Mapping[str, Backend],
    *,
    runs: int,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[BenchCase]:
    """One case for each item, in a cache of its own that goes afterwards."""
    for item in items:
        with tempfile.TemporaryDirectory(prefix="gpucache-bench-") as place:
            alone = replace(bounds, fresh=True, jobs=1)
            yield _case(item, workers, alone, backends, runs, Path(place), progress)


def _case(
    item: WarmItem,
    workers: Workers,
    bounds: Bounds,
    backends: Mapping[str, Backend],
    runs: int,
    place: Path,
    progress: Callable[[str], None],
) -> BenchCase:
    if item.request is None or item.toolchain is None:
        return BenchCase(item.program, item.target, "failed", item.skipped)
    label = f"{item.program} on {item.target}"
    progress(f"{label}: building once")
    wanted = Prepare(Job(item.request, item.toolchain, bounds.timeout_s), str(place / "root"))
    built = _one(workers.build, wanted, bounds)
    if isinstance(built, str):
        return BenchCase(item.program, item.target, "failed", built)
    if isinstance(built, Built) and built.key is None:
        return BenchCase(item.program, item.target, "failed", f"nothing was kept: {built.note}")
    launches = _one(workers.launches, wanted, bounds)
    job = SampleJob(
        item.request, item.toolchain, () if isinstance(launches, str) else launches, Temperature.COLD
    )
    jobs = [_timed(job, place, run, temperature) for run in range(runs + 1) for temperature in Temperature]
    samples: list[Sample] = []
    for number, timed in enumerate(jobs):
        progress(f"{label}: {timed.job.temperature} start {number // 2} of {runs}")
        sample = _one(workers.sample, timed, bounds)
        samples.append(Sample(timed.job.temperature, error=sample) if isinstance(sample, str) else sample)
    late = _is_late(item.request, item.toolchain, backends)
    case = fold(item.program, item.target, samples[2:], late=late)
    return replace(case, reason=f"no first launch: {launches}") if isinstance(launches, str) else case


def _is_late(request: BuildRequest, toolchain: Toolchain, backends: Mapping[str, Backend]) -> bool:
    return backends[request.target.backend].plan(request, toolchain, {}).late


def _timed(job: SampleJob, place: Path, run: int, temperature: Temperature) -> Timed:
    """Cold starts get empty driver caches each; warm ones share the ones that the first of them filled."""
    drivers = place / (f"cold-{run}" if temperature is Temperature.COLD else "warm")
    drivers.mkdir(exist_ok=True)
    environment = tuple((name, str(drivers / name.lower())) for name in _PLACES)
    for _, path in environment:
        Path(path).mkdir(exist_ok=True)  # some drivers cache only where the folder is there
    extra = (("PYOPENCL_NO_CACHE", "1"),)
    return Timed(replace(job, temperature=temperature, environment=environment + extra), str(place / "root"))


def fold(program: str, target: str, samples: Sequence[Sample], *, late: bool) -> BenchCase:
    """The case that samples make; the first failed sample makes it failed."""
    failed = next((sample for sample in samples if sample.error), None)
    if failed is not None:
        reason = f"a {failed.temperature} start failed: {failed.error}"
        return BenchCase(program, target, "failed", reason, samples=tuple(samples))
    cold = [sample for sample in samples if sample.temperature is Temperature.COLD]
    warm = [sample for sample in samples if sample.temperature is Temperature.WARM]
    launched = all(any(name == "first launch" for name, _ in sample.phases) for sample in samples)
    case = BenchCase(
        program,
        target,
        "measured",
        cold=Spread.of(sample.total_ns for sample in cold),
        warm=Spread.of(sample.total_ns for sample in warm),
        phases=_phases(cold, warm),
        samples=tuple(samples),
    )
    if late and not launched:
        return replace(case, verdict="no-ratio", reason=NO_LAUNCH)
    ratios = [one.total_ns / other.total_ns for one, other in zip(cold, warm, strict=True)]
    return replace(case, ratio=Ratio(median(ratios), min(ratios), max(ratios)), reason=_left_out(samples))


def _left_out(samples: Sequence[Sample]) -> str:
    loaded = any(name == "kernels" for sample in samples for name, _ in sample.phases)
    return "" if loaded else "nothing was loaded, as no device of this target is here"


def _phases(cold: Sequence[Sample], warm: Sequence[Sample]) -> tuple[tuple[str, int | None, int | None], ...]:
    rows = ((name, _median_of(name, cold), _median_of(name, warm)) for name in PHASES)
    return tuple(row for row in rows if row[1] is not None or row[2] is not None)


def _median_of(name: str, samples: Sequence[Sample]) -> int | None:
    durations = [duration for sample in samples for phase, duration in sample.phases if phase == name]
    return round(median(durations)) if durations else None


def _one(function: Callable[[J], R], item: J, bounds: Bounds) -> R | str:
    """One item in a fresh process; a sentence where it failed."""
    for _, answer in run_isolated(function, [item], bounds):
        if isinstance(answer, Done):
            return answer.value
        return answer.reason if isinstance(answer, Died) else str(answer.error)
    return "the worker gave no answer"
