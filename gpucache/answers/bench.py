"""Outcomes of bench, of the cost of checks inside kernels, and of warming by a command."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, log
from typing import NamedTuple

from gpucache.answers.growth import Growth
from gpucache.json_keys import Duration, OrNull, json_keys

FEWEST_FOR_OUTLIERS = 8
"""The fewest durations of which outliers are counted."""
FEWEST_PAIRS = 5
"""Of four pairs of mere noise one run in sixteen has all on one side, of five one in thirty-two."""


CACHED = ("key", "lookup", "compile", "load", "kernels", "first launch")
"""The phases of a start that a cache can change, in their order. A command is timed as a whole."""


class Arm(StrEnum):
    """The caches that a start finds filled.

    A peer's own cache, warm and nothing else, is an arm as well, by the name of the peer.
    """

    COLD = "cold"
    """Nothing in any store."""
    WARM = "warm"
    """Everything, in caches of the benchmark's own."""
    AS_IS = "as-is"
    """The content of the user's own caches."""
    DRIVER = "driver"
    """The driver's cache alone, warm."""


class BenchVerdict(StrEnum):
    """The result of a comparison."""

    FASTER = "faster"
    """Warm starts are faster: the whole interval of the ratio is above 1."""
    NO_DIFFERENCE = "no-difference"
    """They are not faster; the smallest difference that would have shown follows."""
    UNDECIDED = "undecided"
    """There are too few pairs to tell."""
    DEGRADED = "degraded"
    """The figures are unreliable; the reason follows."""
    FAILED = "failed"
    """A start failed; the reason follows."""


@json_keys("arm total_ns phases hit missed growth output error")
@dataclass(frozen=True, slots=True)
class Sample:
    """One start, in a fresh process."""

    arm: str
    """The caches that it finds filled: cold, warm, as-is, driver, or a peer of --against."""
    phases: tuple[tuple[str, Duration], ...] = ()
    """How long each part took, in milliseconds."""
    hit: bool = False
    """Whether our own cache answered."""
    missed: OrNull = ""
    """Why our own cache missed, if it was queried."""
    error: OrNull = ""
    """Why it failed."""
    growth: tuple[Growth, ...] = ()
    """The entries that it wrote, by cache."""
    output: OrNull = ""
    """SHA-256 of its output, with --same-output."""
    cpu_ns: int = 0
    """CPU time of a command, without the system's; 0 where that was not taken."""

    @property
    def total_ns(self) -> int:
        """How long it took."""
        return sum(duration for _, duration in self.phases)

    @property
    def cached_ns(self) -> int | None:
        """The sum of the phases that a cache can change; None where none of them was timed."""
        durations = [duration for name, duration in self.phases if name in CACHED]
        return sum(durations) if durations else None


@dataclass(frozen=True, slots=True)
class Spread:
    """How long some starts took, in milliseconds."""

    median_ns: int
    """The median start."""
    low_ns: int
    """The fastest."""
    high_ns: int
    """The slowest."""
    runs: int
    """How many starts there were."""
    outliers: int = 0
    """The number of outliers among them."""

    @classmethod
    def of(cls, durations_ns: Iterable[int]) -> "Spread":
        """The spread of at least one duration; outliers are more than 3 scaled median deviations away."""
        values = sorted(durations_ns)
        from statistics import median  # only a benchmark needs it

        middle = median(values)
        deviation = 1.4826 * median(abs(value - middle) for value in values)
        enough = deviation and len(values) >= FEWEST_FOR_OUTLIERS
        outliers = sum(abs(value - middle) > 3 * deviation for value in values) if enough else 0
        return cls(round(middle), values[0], values[-1], len(values), outliers)


@dataclass(frozen=True, slots=True)
class Ratio:
    """One kind of starts divided by another, pair by pair.

    Of fewer than five pairs the ends of the interval are the lowest and the highest.
    """

    median: float
    """The median of the pairs."""
    low: float
    """The low end of its 95 % interval."""
    high: float
    """The high end."""


@dataclass(frozen=True, slots=True)
class CachedPart:
    """The phases of starts that a cache can change: all but starting the process and making a context."""

    cold: Spread
    """With nothing cached."""
    warm: Spread
    """With everything cached, or as the arm finds it."""
    ratio: Ratio
    """Cold divided by warm."""


@json_keys("arm spread.* ratio cached_part reason")
@dataclass(frozen=True, slots=True)
class ArmResult:
    """Starts other than the cold and the warm ones."""

    arm: str
    """The caches that they find filled: as-is, driver, or a peer of --against."""
    spread: Spread
    ratio: Ratio
    """Cold starts divided by these."""
    reason: str = ""
    """Why the figures are unreliable; empty if they are not."""
    cached_part: CachedPart | None = None
    """The same for the part of a start that a cache can change."""


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The cost of warming, and the time that it saves."""

    warming_ns: int
    """The cost of warming."""
    saving_ns: int
    """The time that each warm start saves."""
    starts: int
    """After how many starts it has paid."""


class Phase(NamedTuple):
    """A part of a start."""

    phase: str
    """Its name, such as compile."""
    cold_ns: int | None
    """Its median in cold starts."""
    warm_ns: int | None
    """Its median in warm starts."""


@json_keys(
    "program target variant verdict reason cold warm ratio cached_part phases arms break_even "
    "notes=every_note growth interrupted redirects samples"
)
@dataclass(frozen=True, slots=True)
class BenchCase:
    """A program on a target, or a command, cold against warm."""

    program: str
    """The program's name, or the command."""
    target: str
    """The target; empty for a command."""
    verdict: BenchVerdict
    """The result of the comparison."""
    reason: str = ""
    """Why it is not faster; empty where it is."""
    variant: str = ""
    """The difference from other builds of its program, such as T=float."""
    cold: Spread | None = None
    """Starts with nothing cached."""
    warm: Spread | None = None
    """Starts with everything cached."""
    ratio: Ratio | None = None
    """Cold divided by warm."""
    cached_part: CachedPart | None = None
    """The same for the part of a start that a cache can change; null for a command."""
    phases: tuple[Phase, ...] = ()
    """The parts of a start, in order."""
    arms: tuple[ArmResult, ...] = ()
    """The other starts that were timed."""
    break_even: BreakEven | None = None
    """After how many starts warming has paid."""
    caveats: tuple[str, ...] = ()
    """The limits of the figures, a sentence each: binaries that were not loaded, caches that were not
    redirected."""
    notes: tuple[str, ...] = ()
    growth: tuple[Growth, ...] = ()
    """The entries that a cold start writes, by cache."""
    interrupted: bool = False
    """Whether it was stopped before all was measured."""
    redirects: tuple[tuple[str, str], ...] = ()
    """The variables that put caches elsewhere."""
    samples: tuple[Sample, ...] = field(default=(), repr=False)
    """Every start, in the order they were taken."""

    @property
    def every_note(self) -> tuple[str, ...]:
        """Notes, a sentence each."""
        return (*self.caveats, *self.notes)


@json_keys("cases counts.* fail_below below")
@dataclass(frozen=True, slots=True)
class BenchSummary:
    """The number of cases by verdict."""

    cases: int
    """How many there are."""
    counts: dict[BenchVerdict, int]
    """Cases whose verdict is"""
    fail_below: float | None = None
    """The limit of --fail-below."""
    below: tuple[str, ...] = ()
    """The results below it, a sentence each."""


def summarise_bench(
    cases: Iterable[BenchCase], fail_below: float | None = None, below: tuple[str, ...] = ()
) -> BenchSummary:
    """Count the cases, the cases with each verdict, and the cases that fall short of the thresholds."""
    verdicts = [BenchVerdict(case.verdict) for case in cases]
    counts = {verdict: verdicts.count(verdict) for verdict in BenchVerdict}
    return BenchSummary(len(verdicts), counts, fail_below, below)


@json_keys("run=number duration_ns added=growth error")
@dataclass(frozen=True, slots=True)
class SettleRun:
    """A run of a command that warms caches."""

    number: int
    """Which run, from 1."""
    duration_ns: int
    """How long it took."""
    growth: tuple[Growth, ...] = ()
    """The entries that it added, by cache."""
    error: OrNull = ""
    """Why it failed."""
    cpu_ns: int = 0
    """CPU time, without the system's."""


@json_keys("runs settled failed added=growth restless environment missed notes")
@dataclass(frozen=True, slots=True)
class SettleSummary:
    """The entries that the runs of a command added, and whether the last run added none."""

    runs: int
    """How many runs there were."""
    settled: bool
    """Whether the last run added nothing."""
    failed: OrNull
    """Why a run failed."""
    growth: tuple[Growth, ...]
    """All that was added to each cache."""
    restless: tuple[Growth, ...] = ()
    """The entries that the last run still added."""
    environment: tuple[tuple[str, str], ...] = ()
    """With --into: the variables that lead a program there."""
    missed: tuple[str, ...] = ()
    """The caches that were not moved, or the note that nothing was warmed; exit code 3."""
    notes: tuple[str, ...] = ()
    """Notes, a sentence each."""


PAPER_ASYNC = (1.04, 1.11)
PAPER_SYNC = (1.61, 1.66)
"""Geometric means over 41 benchmarks on two GPUs: Henriksen, Bounds Checking on GPU, 2021."""


@json_keys("target kernel kind runs none_ns sync async=asynchronous error")
@dataclass(frozen=True, slots=True)
class CheckedCase:
    """A kernel of the suite on one target, without checks and with them."""

    target: str
    """The target."""
    kernel: str = ""
    """The kernel; empty where the target failed."""
    kind: str = ""
    """Its typical feature."""
    runs: int = 0
    """Samples of each mode."""
    none_ns: int | None = None
    """The median without checks."""
    sync: Ratio | None = None
    """The mode sync divided by none."""
    asynchronous: Ratio | None = None
    """The mode async divided by none."""
    error: str = ""
    """Why the target was not timed; empty where it was."""


@json_keys("target sync async=asynchronous")
@dataclass(frozen=True, slots=True)
class CheckedMeans:
    """How many times as long kernels take with checks."""

    target: str
    """The target."""
    sync: float
    """In the mode sync."""
    asynchronous: float
    """In the mode async."""


class CheckedSummary(NamedTuple):
    """The cost of checks, next to their cost in Henriksen's paper of 2021."""

    means: tuple[CheckedMeans, ...]
    """The geometric mean over the kernels of each target."""
    paper_sync: tuple[float, ...] = PAPER_SYNC
    """The range of the means in Henriksen's paper of 2021, sync."""
    paper_async: tuple[float, ...] = PAPER_ASYNC
    """The same for async."""


def summarise_checked(cases: Iterable[CheckedCase]) -> tuple[CheckedMeans, ...]:
    """The means of each target that was timed."""
    found: dict[str, list[tuple[Ratio, Ratio]]] = {}
    for case in cases:
        if case.sync is not None and case.asynchronous is not None:
            found.setdefault(case.target, []).append((case.sync, case.asynchronous))
    return tuple(
        CheckedMeans(target, _mean(sync for sync, _ in pairs), _mean(other for _, other in pairs))
        for target, pairs in found.items()
    )


def _mean(ratios: Iterable[Ratio]) -> float:
    logs = [log(ratio.median) for ratio in ratios]
    return exp(sum(logs) / len(logs))
