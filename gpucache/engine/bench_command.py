"""Any command, started with empty caches against started with full ones, in turn.

Owns the arms of a command: cold starts each with fresh empty folders for every known cache, warm ones
with folders that were filled until nothing new was written, and as it is with the user's own caches.
What a start wrote is its proof. Must not know which caches there are nor how they are redirected.
"""

import random
import shlex
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median_low

from gpucache.engine import elsewhere
from gpucache.engine.commands import CommandRun, run_command, run_prepare
from gpucache.engine.elsewhere import Clues, Homeless, Watched
from gpucache.engine.load import measure_load
from gpucache.engine.settling import Surroundings, settle
from gpucache.engine.statistics import paired_ratio
from gpucache.engine.verdicts import NO_PAIR, Evidence, interrupted_after, judge
from gpucache.host.interrupts import disarm
from gpucache.outcomes import (
    Arm,
    ArmResult,
    BenchCase,
    BenchVerdict,
    BreakEven,
    Growth,
    Sample,
    SettleRun,
    Spread,
)
from gpucache.outcomes.growth import growth

PHASE = "run"
_SEED = 6
_WARM_FOLDER = "warm"


@dataclass(frozen=True, slots=True)
class CommandPlan:
    """What is run and how often."""

    argv: tuple[str, ...]
    runs: int
    timeout_s: float
    prepare: str = ""
    same_output: bool = False
    as_is: bool = False
    budget_s: float | None = None
    """As many pairs as fit into it, and no fewer than ``runs``."""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms, the measured pair first."""
        return (Arm.COLD, Arm.WARM, Arm.AS_IS) if self.as_is else (Arm.COLD, Arm.WARM)


def bench_command(
    plan: CommandPlan, around: Surroundings, place: Path, progress: Callable[[str], None] = lambda _: None
) -> BenchCase:
    """The case of a command, below a folder of ours; raises UsageError where it cannot be started."""
    label = shlex.join(plan.argv)
    bench = _Bench(plan, around, place)
    begun_ns = time.time_ns()
    primed = list(bench.prime(progress))
    case = BenchCase(label, "", BenchVerdict.FAILED, redirects=bench.redirects)
    if primed[-1].error:
        return replace(case, reason=f"the first runs failed: {primed[-1].error}")
    progress("looking where it caches")
    clues = Clues(primed[0].cpu_ns, homeless=bench.homeless(), places=bench.places(begun_ns))
    end_load = measure_load()
    samples: list[Sample] = []
    interrupted = False
    try:
        for sample in bench.samples(progress):
            samples.append(sample)
    except KeyboardInterrupt:
        disarm()
        interrupted = True
        pairs = len(samples) // len(plan.arms)
        del samples[pairs * len(plan.arms) :]
        case = replace(case, interrupted=True)
        if not pairs:
            return replace(case, verdict=BenchVerdict.UNDECIDED, reason=NO_PAIR)
    done = _folded(case, plan, primed, tuple(samples), end_load(), clues, around.notes)
    return replace(done, notes=(interrupted_after(pairs), *done.notes)) if interrupted else done


@dataclass(frozen=True, slots=True)
class _Bench:
    """A command between its arms."""

    plan: CommandPlan
    around: Surroundings
    place: Path

    @property
    def redirects(self) -> tuple[tuple[str, str], ...]:
        """The variables of the warm arm, with the folder of the benchmark left out."""
        own = self.around.isolate(self.place / _WARM_FOLDER)
        return tuple(
            (name, value.replace(str(self.place / _WARM_FOLDER), "DIR")) for name, value in own.items()
        )

    def prime(self, progress: Callable[[str], None]) -> Iterator[SettleRun]:
        environ = self._environ(self.place / _WARM_FOLDER)
        runs = settle(lambda: self._run(environ), lambda: self.around.look(environ, private=True))
        for run in runs:
            progress(f"warming: run {run.number} done")
            yield run

    def homeless(self) -> Homeless | None:
        """A cold start with an empty home folder; None where the command does not run so."""
        folder = self.place / "homeless"
        environ = self._environ(folder)
        done = self._run({**environ, **elsewhere.homeless_environment(folder, self.around.environ)})
        wrote = elsewhere.homeless_places(folder)
        shutil.rmtree(folder, ignore_errors=True)
        return None if done.error else Homeless(done.cpu_ns, wrote)

    def places(self, begun_ns: int) -> tuple[str, ...] | None:
        """The caches outside of our folders that a warm start reads; None where it cannot be traced."""
        words = (*self.plan.argv, str(Path.cwd()))
        watched = Watched(begun_ns, time.time_ns(), self.place, self.around.root_of, words)
        environ = self._environ(self.place / _WARM_FOLDER)
        return elsewhere.trace(
            lambda argv: self._run(environ, argv), self.plan.argv, self.place / "trace", watched
        )

    def samples(self, progress: Callable[[str], None]) -> Iterator[Sample]:
        draw, begun = random.Random(_SEED), time.monotonic()
        for number in count():
            if number >= self.plan.runs and not self._fits(number, time.monotonic() - begun):
                return
            for arm in draw.sample(self.plan.arms, len(self.plan.arms)):
                progress(f"{arm} start {number + 1} of {max(self.plan.runs, number + 1)}")
                yield self._sample(arm, number)

    def _fits(self, number: int, spent_s: float) -> bool:
        """Whether one pair more fits into the budget."""
        budget_s = self.plan.budget_s
        return budget_s is not None and spent_s + spent_s / max(number, 1) <= budget_s

    def _sample(self, arm: Arm, number: int) -> Sample:
        if arm is Arm.AS_IS:
            done = self._run(self.around.environ)
            return Sample(
                arm, ((PHASE, done.duration_ns),), error=done.error, output=done.output, cpu_ns=done.cpu_ns
            )
        folder = self.place / (_WARM_FOLDER if arm is Arm.WARM else f"cold-{number}")
        environ = self._environ(folder)
        before = self.around.look(environ, private=True)
        done = self._run(environ)
        added = growth(before, self.around.look(environ, private=True))
        if arm is Arm.COLD:
            shutil.rmtree(folder, ignore_errors=True)
        phases = ((PHASE, done.duration_ns),)
        return Sample(
            arm,
            phases,
            hit=arm is Arm.WARM and not added,
            error=done.error,
            growth=added,
            output=done.output,
            cpu_ns=done.cpu_ns,
        )

    def _environ(self, folder: Path) -> dict[str, str]:
        return {**self.around.environ, **self.around.isolate(folder)}

    def _run(self, environ: Mapping[str, str], argv: tuple[str, ...] = ()) -> CommandRun:
        if self.plan.prepare:
            failed = run_prepare(self.plan.prepare, environ, self.plan.timeout_s)
            if failed:
                return CommandRun(0, failed, "")
        return run_command(argv or self.plan.argv, environ, self.plan.timeout_s)


def _folded(
    case: BenchCase,
    plan: CommandPlan,
    primed: Sequence[SettleRun],
    samples: tuple[Sample, ...],
    load: float,
    clues: Clues,
    notes: Callable[[Collection[str]], tuple[str, ...]],
) -> BenchCase:
    if any(sample.error for sample in samples):
        verdict, reason = judge(samples, None, Evidence())
        return replace(case, verdict=verdict, reason=reason, samples=samples)
    cold, warm = (_durations(samples, arm) for arm in (Arm.COLD, Arm.WARM))
    ratio = paired_ratio(cold, warm)
    wrote = any(run.growth for run in primed)
    clues = replace(clues, cold_ns=tuple(sample.cpu_ns for sample in samples if sample.arm is Arm.COLD))
    evidence = Evidence(load, wrote, plan.same_output, clues.reason)
    verdict, reason = judge(samples, ratio, evidence)
    if not wrote and not clues.reason and verdict is not BenchVerdict.FAILED:
        verdict, reason = BenchVerdict.DEGRADED, _NOTHING_WRITTEN
    spreads = Spread.of(cold), Spread.of(warm)
    return replace(
        case,
        verdict=verdict,
        reason=reason,
        cold=spreads[0],
        warm=spreads[1],
        ratio=ratio,
        arms=tuple(_others(plan, samples, cold)),
        break_even=_break_even(primed, *spreads) if verdict is BenchVerdict.FASTER else None,
        notes=(
            *_notes(primed),
            *notes({one.cache for run in primed for one in run.growth}),
            *((elsewhere.UNTRACED,) if clues.places is None else ()),
        ),
        growth=_typical(samples),
        samples=samples,
    )


_NOTHING_WRITTEN = (
    "the command wrote nothing into any known cache, so cold and warm are the same: it keeps none, or where "
    "no variable moves it"
)


def _durations(samples: Sequence[Sample], arm: Arm) -> list[int]:
    return [sample.total_ns for sample in samples if sample.arm is arm]


def _others(plan: CommandPlan, samples: Sequence[Sample], cold: Sequence[int]) -> Iterator[ArmResult]:
    for arm in plan.arms[2:]:
        own = _durations(samples, arm)
        yield ArmResult(arm, Spread.of(own), paired_ratio(cold, own))


def _break_even(primed: Sequence[SettleRun], cold: Spread, warm: Spread) -> BreakEven | None:
    saving_ns = cold.median_ns - warm.median_ns
    if saving_ns <= 0:
        return None
    warming_ns = sum(run.duration_ns for run in primed if run.growth)
    if not warming_ns:
        return None
    return BreakEven(warming_ns, saving_ns, -(-warming_ns // saving_ns))


def _notes(primed: Sequence[SettleRun]) -> Iterator[str]:
    writing = [run.number for run in primed if run.growth]
    if primed[-1].growth:
        caches = ", ".join(one.cache for one in primed[-1].growth)
        yield f"it never came to rest: run {primed[-1].number} of warming still wrote into {caches}"
    elif writing:
        yield f"it was fully warm after run {writing[-1]}, as run {primed[-1].number} wrote nothing new"


def _typical(samples: Sequence[Sample]) -> tuple[Growth, ...]:
    """What the cold start with the middle number of entries wrote."""
    cold = [sample for sample in samples if sample.arm is Arm.COLD]
    written = {sum(one.entries for one in sample.growth): sample.growth for sample in cold}
    middle = median_low(sum(one.entries for one in sample.growth) for sample in cold)
    return written[middle]
