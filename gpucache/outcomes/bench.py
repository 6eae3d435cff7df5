"""Outcomes of bench, of what checks inside kernels cost, and of warming by a command."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, log

from gpucache.answers.growth import Growth

FEWEST_FOR_OUTLIERS = 8
"""Of fewer durations nobody can say which lie far from the others."""
FEWEST_PAIRS = 5
"""Of four pairs of mere noise one run in sixteen has all on one side, of five one in thirty-two."""


CACHED = ("key", "lookup", "compile", "load", "kernels", "first launch")
"""The phases of a start that a cache can change, in their order. A command is timed as a whole."""


class Arm(StrEnum):
    """What a start finds cached, and by whom.

    A peer's own cache, warm and nothing else, is an arm as well, by the name of the peer.
    """

    COLD = "cold"
    """Nothing at any layer."""
    WARM = "warm"
    """Everything, in caches of the benchmark's own."""
    AS_IS = "as-is"
    """Whatever the user's own caches hold."""
    DRIVER = "driver"
    """The driver's cache alone, warm."""


class BenchVerdict(StrEnum):
    """What a comparison comes to."""

    FASTER = "faster"
    NO_DIFFERENCE = "no-difference"
    UNDECIDED = "undecided"
    """There are too few pairs to tell noise from effect."""
    DEGRADED = "degraded"
    """The figures do not say what they seem to say; the reason tells why."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Sample:
    """One start in a fresh process: phases in order, in ns, or why it failed."""

    arm: str
    """As ``Arm`` has it, or the name of a peer."""
    phases: tuple[tuple[str, int], ...] = ()
    hit: bool = False
    """Whether our own cache answered."""
    missed: str = ""
    """Why our own cache did not answer a start that asked it: verdict and detail."""
    error: str = ""
    growth: tuple[Growth, ...] = ()
    """What it wrote into each known cache."""
    output: str = ""
    """SHA-256 of what it printed; empty where that was not kept."""
    cpu_ns: int = 0
    """CPU time of a command, without the system's; 0 where that was not taken."""

    @property
    def total_ns(self) -> int:
        """The sum of all phases."""
        return sum(duration for _, duration in self.phases)

    @property
    def cached_ns(self) -> int | None:
        """The sum of the phases that a cache can change; None where none of them was timed."""
        durations = [duration for name, duration in self.phases if name in CACHED]
        return sum(durations) if durations else None


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest of some durations in ns, and those that lie far from the others."""

    median_ns: int
    low_ns: int
    high_ns: int
    runs: int
    outliers: int = 0

    @classmethod
    def of(cls, durations_ns: Iterable[int]) -> "Spread":
        """The spread of at least one duration; outliers lie beyond 3 scaled median deviations."""
        values = sorted(durations_ns)
        from statistics import median  # which only a benchmark needs

        middle = median(values)
        deviation = 1.4826 * median(abs(value - middle) for value in values)
        enough = deviation and len(values) >= FEWEST_FOR_OUTLIERS
        outliers = sum(abs(value - middle) > 3 * deviation for value in values) if enough else 0
        return cls(round(middle), values[0], values[-1], len(values), outliers)


@dataclass(frozen=True, slots=True)
class Ratio:
    """One arm's durations divided by another's, pair by pair: median, and the ends of its 95 % interval.

    Of fewer than five pairs the ends are the lowest and the highest.
    """

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CachedPart:
    """The part of starts that a cache can change: all but starting the process and making a context."""

    cold: Spread
    warm: Spread
    """Of the warm starts, or of those of an arm beside them."""
    ratio: Ratio


@dataclass(frozen=True, slots=True)
class ArmResult:
    """An arm beside the cold and the warm one, with how many times it is as fast as a cold start."""

    arm: str
    spread: Spread
    ratio: Ratio
    reason: str = ""
    """Why it is not what it seems to be; empty where it is."""
    cached_part: CachedPart | None = None


@dataclass(frozen=True, slots=True)
class BreakEven:
    """What warming cost, what a warm start saves, and after how many starts it has paid."""

    warming_ns: int
    saving_ns: int
    starts: int


@dataclass(frozen=True, slots=True)
class BenchCase:
    """One program on one target, or one command, cold against warm."""

    program: str
    target: str
    verdict: BenchVerdict
    reason: str = ""
    variant: str = ""
    """What tells it from other builds of its program, such as ``T=float``."""
    cold: Spread | None = None
    warm: Spread | None = None
    ratio: Ratio | None = None
    """Cold divided by warm."""
    cached_part: CachedPart | None = None
    """None for a command, and where there is no ratio."""
    phases: tuple[tuple[str, int | None, int | None], ...] = ()
    """Phase, its cold median and its warm median in ns."""
    arms: tuple[ArmResult, ...] = ()
    break_even: BreakEven | None = None
    caveats: tuple[str, ...] = ()
    """What the figures leave out or may hide, a sentence each: what was not loaded or not redirected."""
    notes: tuple[str, ...] = ()
    """What else is worth knowing, a sentence each, such as a first-run effect."""
    growth: tuple[Growth, ...] = ()
    """What a cold start writes into each cache, by the median start."""
    interrupted: bool = False
    """Whether it was stopped before all was measured."""
    redirects: tuple[tuple[str, str], ...] = ()
    """The variables that put caches elsewhere, with what they stood for."""
    samples: tuple[Sample, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class SettleRun:
    """One run of a command that is repeated until it adds nothing to any cache."""

    number: int
    duration_ns: int
    growth: tuple[Growth, ...] = ()
    error: str = ""
    """Why it failed; empty where it did not."""
    cpu_ns: int = 0
    """CPU time, without the system's."""


@dataclass(frozen=True, slots=True)
class SettleSummary:
    """What the runs of a command added, and whether they came to rest."""

    runs: int
    settled: bool
    failed: str
    growth: tuple[Growth, ...]
    """All that was added to each cache."""
    restless: tuple[Growth, ...] = ()
    """What the last run still added."""
    environment: tuple[tuple[str, str], ...] = ()
    """What makes a program use what was warmed; empty where the user's own caches were."""
    missed: tuple[str, ...] = ()
    """Why a start elsewhere may compile all the same: what was not moved, or that nothing was warmed."""
    notes: tuple[str, ...] = ()


PAPER_ASYNC = (1.04, 1.11)
PAPER_SYNC = (1.61, 1.66)
"""Geometric means over 41 benchmarks on two GPUs: Henriksen, Bounds Checking on GPU, 2021."""


@dataclass(frozen=True, slots=True)
class CheckedCase:
    """One kernel on one target, without checks and in both modes with them; or why it was not timed."""

    target: str
    kernel: str = ""
    kind: str = ""
    runs: int = 0
    none_ns: int = 0
    """Median of a sample without checks."""
    sync: Ratio | None = None
    """How many times as long it takes."""
    asynchronous: Ratio | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class CheckedMeans:
    """The geometric means over the kernels of one target."""

    target: str
    sync: float
    asynchronous: float


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
