"""Starts with nothing cached against starts with everything cached, and beside them those of peers.

Owns the plan of a run: building once, a start of every arm that is not counted, then rounds of one start
of each arm in an order drawn anew, so that no arm is always first. What one start does is in
``samples``, where its caches lie in ``isolation``, what samples come to in ``cases``.
"""

import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gpucache.backends.interface import Backend, Launch
from gpucache.engine import peers
from gpucache.engine.cases import PAIR, Measured, fold
from gpucache.engine.isolation import REDIRECTS, make_place
from gpucache.engine.load import measure_load
from gpucache.engine.pool import Bounds, Died, Done, run_isolated
from gpucache.engine.samples import SampleJob
from gpucache.engine.verdicts import NO_PAIR, NOT_REACHED, interrupted_after
from gpucache.engine.warm.plan import Job, WarmItem
from gpucache.host.interrupts import disarm
from gpucache.host.scratch import scratch
from gpucache.model import BuildRequest, Toolchain
from gpucache.outcomes import FEWEST_PAIRS, Arm, BenchCase, BenchVerdict, Built, Hit, Sample
from gpucache.outcomes.growth import growth

J = TypeVar("J")
R = TypeVar("R")

_SEED = 5


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


@dataclass(frozen=True, slots=True)
class Extent:
    """How many pairs are taken for each case, and which peers beside them."""

    runs: int | None = None
    """Pairs; with a budget the least number of them."""
    budget_s: float | None = None
    against: tuple[Arm, ...] = ()

    def is_enough(self, pairs: int, elapsed_s: float) -> bool:
        """Whether to stop after some pairs, which with the uncounted one before took so long."""
        if pairs < (FEWEST_PAIRS if self.runs is None else self.runs):
            return False
        return self.budget_s is None or elapsed_s * (pairs + 2) / (pairs + 1) > self.budget_s


def run_bench(
    items: Sequence[WarmItem],
    workers: Workers,
    bounds: Bounds,
    backends: Mapping[str, Backend],
    extent: Extent,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[BenchCase]:
    """One case for each item, in a cache of its own that goes afterwards.

    An interrupt ends the measuring: the case at hand comes to what its whole pairs say, the rest to nothing.
    """
    interrupted = False
    for item in items:
        case = BenchCase(item.program, item.target, BenchVerdict.FAILED, variant=item.variant)
        nothing = replace(case, verdict=BenchVerdict.UNDECIDED, interrupted=True)
        if interrupted:
            yield replace(nothing, reason=NOT_REACHED)
            continue
        if item.request is None or item.toolchain is None:
            yield replace(case, reason=item.skipped)
            continue
        with scratch("bench") as place:
            job = SampleJob(item.request, item.toolchain)
            alone = replace(bounds, fresh=True, jobs=1)
            bench = _Bench(job, place, workers, alone, extent, progress)
            try:
                done = _case(replace(case, redirects=REDIRECTS), bench, backends)
            except KeyboardInterrupt:
                disarm()
                done = replace(nothing, reason=NO_PAIR)
        interrupted = done.interrupted
        yield done


@dataclass(frozen=True, slots=True)
class _Bench:
    """One case while it is measured."""

    job: SampleJob
    place: Path
    workers: Workers
    bounds: Bounds
    extent: Extent
    progress: Callable[[str], None]

    @property
    def wanted(self) -> Prepare:
        return Prepare(Job(self.job.request, self.job.toolchain, self.bounds.timeout_s), self._root)

    @property
    def _root(self) -> str:
        return str(self.place / "root")

    def say(self, what: str) -> None:
        self.progress(f"{self.job.request.program.name} on {self.job.request.target}: {what}")

    def rounds(self, arms: tuple[Arm, ...]) -> Iterator[tuple[Sample, ...]]:
        """The uncounted round, then the counted ones; ends early where a cold or warm start fails."""
        draw = random.Random(_SEED)
        started = time.monotonic()
        number = 0
        while not number or not self.extent.is_enough(number - 1, time.monotonic() - started):
            taken = []
            for arm in draw.sample(arms, len(arms)):
                self.say(f"{arm} start {number}" if number else f"first {arm} start, which is not counted")
                taken.append(self._start(arm, number))
                if taken[-1].error and arm in PAIR:
                    break
            yield tuple(taken)
            failed = {sample.arm for sample in taken if sample.error}
            if failed & set(PAIR):
                return
            arms = tuple(arm for arm in arms if arm not in failed)
            number += 1

    def _start(self, arm: Arm, number: int) -> Sample:
        """Cold starts get empty folders each; the others share the ones that their first start filled."""
        folder = self.place / (f"{arm}-{number}" if arm is Arm.COLD else arm.value)
        place = make_place(arm, folder)
        job = replace(self.job, arm=arm, environment=place.environment, peer_folder=place.peer)
        before = place.look()
        sample = one(
            self.workers.sample, Timed(replace(job, asked_ns=time.time_ns()), self._root), self.bounds
        )
        added = growth(before, place.look())
        if arm is Arm.COLD:
            shutil.rmtree(folder, ignore_errors=True)
        return Sample(arm, error=sample) if isinstance(sample, str) else replace(sample, growth=added)


def _case(case: BenchCase, bench: _Bench, backends: Mapping[str, Backend]) -> BenchCase:
    bench.say("building once")
    began = time.perf_counter_ns()
    built = one(bench.workers.build, bench.wanted, bench.bounds)
    warming_ns = time.perf_counter_ns() - began
    if isinstance(built, str):
        return replace(case, reason=built)
    if isinstance(built, Built) and built.key is None:
        return replace(case, reason=f"nothing was kept: {built.note}")
    launches = one(bench.workers.launches, bench.wanted, bench.bounds)
    notes: tuple[str, ...] = ()
    if isinstance(launches, str):
        notes = (f"no first launch: {launches}",)
    else:
        bench = replace(bench, job=replace(bench.job, launches=launches))
    target = bench.job.request.target
    against = peers.taking_part(bench.extent.against, target)
    bench = replace(bench, job=replace(bench.job, peers=peers.libraries(against)))
    end_load = measure_load()
    taken: list[tuple[Sample, ...]] = []
    interrupted = False
    try:
        for whole in bench.rounds((*PAIR, *against)):
            taken.append(whole)
    except KeyboardInterrupt:
        disarm()
        if len(taken) < 2:
            raise
        interrupted = True
        notes = (interrupted_after(len(taken) - 1), *notes)
    first, *rest = taken
    measured = Measured(
        first=first,
        samples=tuple(sample for pair in rest for sample in pair),
        late=_is_late(bench.job.request, bench.job.toolchain, backends),
        warming_ns=warming_ns,
        foreign_load=end_load(),
        against=against,
        notes=(*notes, *peers.notes(bench.extent.against, target)),
    )
    return replace(fold(case, measured), interrupted=interrupted)


def _is_late(request: BuildRequest, toolchain: Toolchain, backends: Mapping[str, Backend]) -> bool:
    return backends[request.target.backend].plan(request, toolchain, {}).late


def one(function: Callable[[J], R], item: J, bounds: Bounds) -> R | str:
    """One item in a fresh process; a sentence where it failed."""
    for _, answer in run_isolated(function, [item], bounds):
        if isinstance(answer, Done):
            return answer.value
        return answer.reason if isinstance(answer, Died) else str(answer.error)
    return "the worker gave no answer"
