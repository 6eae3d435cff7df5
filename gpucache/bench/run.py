"""Runs starts with nothing cached against starts with everything cached, and next to them starts of peers.

Owns the order: rounds of one start of each arm in a newly drawn order, so that no arm is always first,
until there are enough of them or the user interrupts. A kind of start (``sources``, a command) names its
case, fills the caches of its warm starts, and makes one start of an arm at a time. It also measures the share
of the machine that other processes used meanwhile.

A command has three arms: cold starts each with fresh empty directories for every known cache, warm ones with
directories that were filled until nothing new was written, and starts with the user's own caches. The files
that a start wrote are its proof. Must not know which caches exist or how they are redirected.
"""

import os
import random
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gpucache.answers.bench import FEWEST_PAIRS, Arm, BenchCase, BenchVerdict, Sample, SettleRun
from gpucache.answers.entries import growth
from gpucache.bench.compare import (
    NO_CACHE,
    NO_PAIR,
    NOT_REACHED,
    PAIR,
    Measured,
    fold,
    interrupted_after,
    is_peer,
)
from gpucache.engine.warm import command
from gpucache.engine.warm.command import CacheEnvironment, Clues, Homeless, Watched, settle
from gpucache.host.interrupts import disarm
from gpucache.host.process_groups import CommandRun, run_command, run_prepare
from gpucache.host.scratch import scratch

Say = Callable[[str], None]
"""Receives the current step, for people who wait."""
_SEED = 5


@dataclass(frozen=True, slots=True)
class Extent:
    """How many pairs of starts are taken for each case."""

    runs: int | None = None
    """The number of pairs; with a budget, the minimum."""
    budget_s: float | None = None

    @property
    def least(self) -> int:
        return FEWEST_PAIRS if self.runs is None else self.runs

    def is_enough(self, pairs: int, rounds: int, elapsed_s: float) -> bool:
        """Whether to stop after some pairs, when all rounds, including uncounted ones, took this long."""
        if pairs < self.least:
            return False
        return self.budget_s is None or elapsed_s * (rounds + 1) / rounds > self.budget_s


@dataclass(frozen=True, slots=True)
class Begun:
    """A program or command that is ready to be started."""

    start: Callable[[str, int], Sample]
    """Makes a start of an arm in a numbered round, and reports the entries that it wrote by cache."""
    known: Measured
    """The facts known before the first start, with the arms besides the pair."""
    uncounted: int = 0
    """The number of first rounds that only fill caches."""

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms of a round, the measured pair first."""
        return (*PAIR, *self.known.against)


@dataclass(frozen=True, slots=True)
class Planned:
    """One case before anything is measured."""

    case: BenchCase
    begin: Callable[[Path, Say], Begun | str] | None = None
    """Prepare the case below an empty directory; returns why that failed, or None."""


@contextmanager
def start_folder(place: Path, arm: str, number: int) -> Iterator[Path]:
    """The directory of a start's caches: a cold start has its own, removed later; others share an arm's."""
    if arm != Arm.COLD:
        yield place / arm
        return
    folder = place / f"{arm}-{number}"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def run_bench(
    plan: Iterable[Planned], extent: Extent, *, progress: Callable[[str], None] = lambda _: None
) -> Iterator[BenchCase]:
    """The cases of a plan one by one, each in its own directory, which is removed afterwards.

    An interrupt ends the measuring: the current case is computed from its complete pairs, the rest have no
    result. Raises CommandError for a command that cannot be started.
    """
    interrupted = False
    for planned in plan:
        case = planned.case
        nothing = replace(case, verdict=BenchVerdict.UNDECIDED, interrupted=True)
        if interrupted:
            yield replace(nothing, reason=NOT_REACHED)
            continue
        if planned.begin is None:
            yield case
            continue
        say = partial(_say, progress, f"{case.program} on {case.target}: " if case.target else "")
        with scratch("bench") as place:
            try:
                begun = planned.begin(place, say)
                if isinstance(begun, str):
                    done = replace(case, reason=begun)
                else:
                    done = _measure(case, begun, extent, say)
            except KeyboardInterrupt:
                disarm()
                done = replace(nothing, reason=NO_PAIR)
        interrupted = done.interrupted
        yield done


def _say(progress: Callable[[str], None], name: str, what: str) -> None:
    progress(f"{name}{what}")


def _measure(case: BenchCase, begun: Begun, extent: Extent, say: Say) -> BenchCase:
    before = read()
    taken: list[tuple[Sample, ...]] = []
    caveats = begun.known.caveats
    interrupted = False
    try:
        for whole in _rounds(begun, extent, say):
            taken.append(whole)
    except KeyboardInterrupt:
        disarm()
        pairs = len(taken) - begun.uncounted
        if pairs < 1:
            raise
        interrupted = True
        caveats = (interrupted_after(pairs), *caveats)
    first, counted = taken[: begun.uncounted], taken[begun.uncounted :]
    measured = replace(
        begun.known,
        first=tuple(sample for one in first for sample in one),
        samples=tuple(sample for one in counted for sample in one),
        foreign_load=foreign_share(before, read()),
        caveats=caveats,
    )
    return replace(fold(case, measured), interrupted=interrupted)


def _rounds(begun: Begun, extent: Extent, say: Say) -> Iterator[tuple[Sample, ...]]:
    """All rounds; they end early if a start fails, but a peer that fails is only left out."""
    draw = random.Random(_SEED)
    started = time.monotonic()
    arms = begun.arms
    number = 0
    while not number or not extent.is_enough(number - begun.uncounted, number, time.monotonic() - started):
        taken: list[Sample] = []
        pair = number - begun.uncounted + 1
        for arm in draw.sample(arms, len(arms)):
            counted = f"{arm} start {pair} of {max(extent.least, pair)}"
            say(counted if pair > 0 else f"first {arm} start, which is not counted")
            taken.append(begun.start(arm, number))
            if taken[-1].error and not is_peer(arm):
                yield tuple(taken)
                return
        yield tuple(taken)
        failed = {sample.arm for sample in taken if sample.error}
        arms = tuple(arm for arm in arms if arm not in failed)
        number += 1


STAT = Path("/proc/stat")
# In the line "cpu", user, nice, system, irq, softirq and steal are work; idle and iowait are not. The time of
# guests is already counted in user and nice.
_BUSY = (0, 1, 2, 5, 6, 7)


class Reading(NamedTuple):
    """The work of the cores so far, at an instant."""

    at_s: float
    busy_s: float
    own_s: float
    """Seconds used by this process and its ended children."""
    cores: int


def read(stat: Path = STAT) -> Reading | None:
    """The current reading; None if the kernel does not report it."""
    if sys.platform == "win32":
        return None
    try:
        lines = [line.split() for line in stat.read_text(encoding="ascii").splitlines()]
        named = {words[0]: words[1:] for words in lines if words and words[0].startswith("cpu")}
        busy = sum(map(int, (named["cpu"][index] for index in _BUSY if index < len(named["cpu"]))))
        ticks_per_s = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, KeyError):
        return None
    used = os.times()
    own_s = used.user + used.system + used.children_user + used.children_system
    return Reading(time.monotonic(), busy / ticks_per_s, own_s, len(named) - 1) if len(named) > 1 else None


def foreign_share(before: Reading | None, after: Reading | None) -> float:
    """The share of all cores that other processes used between two readings, from 0 to 1."""
    if before is None or after is None or after.at_s <= before.at_s:
        return 0.0
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return min(max(others / (after.cores * (after.at_s - before.at_s)), 0.0), 1.0)


PHASE = "run"


@dataclass(frozen=True, slots=True)
class Command:
    """A command, its environment, and how it is run."""

    argv: tuple[str, ...]
    around: CacheEnvironment
    timeout_s: float
    prepare: str = ""
    same_output: bool = False
    as_is: bool = False

    def plan(self) -> Planned:
        redirects = tuple(self.around.variables(Path("DIR")).items())
        case = BenchCase(shlex.join(self.argv), "", BenchVerdict.FAILED, redirects=redirects)
        return Planned(case, self._begin)

    def _begin(self, place: Path, say: Say) -> Begun | str:
        begun_ns = time.time_ns()
        environ = self._environ(place / Arm.WARM)
        primed: list[SettleRun] = []
        for run in settle(lambda: self._run(environ), lambda: self.around.look(environ, private=True)):
            say(f"warming: run {run.number} done")
            primed.append(run)
        if primed[-1].error:
            return f"the first runs failed: {primed[-1].error}"
        say("finding its caches")
        clues = Clues(
            primed[0].cpu_ns, homeless=self._homeless(place), places=self._places(place, begun_ns, environ)
        )
        writing = [run for run in primed if run.growth]
        known = Measured(
            warming_ns=sum(run.duration_ns for run in writing) or None,
            wrote=bool(writing),
            clues=clues,
            no_ratio="" if writing else NO_CACHE,
            same_output=self.same_output,
            against=(Arm.AS_IS,) if self.as_is else (),
            caveats=(
                *_restless(primed),
                *self.around.notes({one.cache for run in writing for one in run.growth}),
                *((command.UNTRACED,) if clues.places is None else ()),
            ),
            notes=tuple(_came_to_rest(primed)),
        )
        return Begun(partial(self._start, place), known)

    def _homeless(self, place: Path) -> Homeless | None:
        """A cold start with an empty home directory; None if the command does not run that way."""
        folder = place / "homeless"
        environ = self._environ(folder)
        done = self._run({**environ, **command.homeless_environment(folder, self.around.environ)})
        wrote = command.homeless_places(folder)
        shutil.rmtree(folder, ignore_errors=True)
        return None if done.error else Homeless(done.cpu_ns, wrote)

    def _places(self, place: Path, begun_ns: int, environ: Mapping[str, str]) -> tuple[str, ...] | None:
        """The caches outside our directories that a warm start reads; None if it cannot be traced."""
        words = (*self.argv, str(Path.cwd()))
        watched = Watched(begun_ns, time.time_ns(), place, self.around.root_of, words)
        return command.trace(lambda argv: self._run(environ, argv), self.argv, place / "trace", watched)

    def _start(self, place: Path, arm: str, number: int) -> Sample:
        if arm == Arm.AS_IS:
            return self._sample(arm, self.around.environ)
        with start_folder(place, arm, number) as folder:
            environ = self._environ(folder)
            before = self.around.look(environ, private=True)
            sample = self._sample(arm, environ)
            added = growth(before, self.around.look(environ, private=True))
        return replace(sample, hit=arm == Arm.WARM and not added, growth=added)

    def _sample(self, arm: str, environ: Mapping[str, str]) -> Sample:
        done = self._run(environ)
        return Sample(
            arm, ((PHASE, done.duration_ns),), error=done.error, output=done.output, cpu_ns=done.cpu_ns
        )

    def _environ(self, folder: Path) -> dict[str, str]:
        return {**self.around.environ, **self.around.isolate(folder)}

    def _run(self, environ: Mapping[str, str], argv: tuple[str, ...] = ()) -> CommandRun:
        if self.prepare:
            failed = run_prepare(self.prepare, environ, self.timeout_s)
            if failed:
                return CommandRun(0, failed, "")
        return run_command(argv or self.argv, environ, self.timeout_s)


def _restless(primed: Sequence[SettleRun]) -> Iterator[str]:
    if primed[-1].growth:
        caches = ", ".join(one.cache for one in primed[-1].growth)
        yield f"it never came to rest: run {primed[-1].number} of warming still wrote into {caches}"


def _came_to_rest(primed: Sequence[SettleRun]) -> Iterator[str]:
    writing = [run.number for run in primed if run.growth]
    if writing and not primed[-1].growth:
        yield f"it was fully warm after run {writing[-1]}, as run {primed[-1].number} wrote nothing new"
