"""What cold against warm comes to: a paired ratio with its interval, a verdict, and what a gate lets through.

Pure. Owns the rules of a verdict and their order: a start that failed, a warm start that missed, a cold
start that was not cold, a cache elsewhere, a ratio that cannot be told, a loaded machine, too few pairs,
noise larger than the effect. Must not know how samples were taken.

The interval of a ratio is read from the sorted ratios alone: their k-th lowest and k-th highest enclose
the median with a probability that follows from coin tosses, whatever the noise looks like. Between the
two k next to the wanted confidence it is interpolated as by Hettmansperger and Sheather (1986), which keeps
it at what it claims from six pairs on; five span all of their ratios, at 94 %. A bootstrap of the median
claims too much where pairs are few: of seven, it lies wholly above 1 for 6 % of all noise, and this one for
2.5 %. Ratios are compared on a logarithmic scale, on which twice and half as fast are equally far from 1.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from gpucache.outcomes.bench import (
    FEWEST_PAIRS,
    Arm,
    BenchCase,
    BenchVerdict,
    CachedPart,
    Ratio,
    Sample,
    Spread,
)

CONFIDENCE = 0.95
LOADED = 0.25
"""The share of all cores that others may use before figures are not believed."""
NARROW = 1.25
"""An interval around 1 whose ends differ by less than this says that there is no difference."""


def paired_ratio(numerators: Sequence[int], denominators: Sequence[int]) -> Ratio:
    """Median of the ratios of pairs, with the ends of its 95 % interval; needs at least one pair.

    Of fewer than five pairs the ends are the lowest and the highest ratio, which is no such interval.
    """
    logs = sorted(
        math.log(max(over, 1) / max(under, 1)) for over, under in zip(numerators, denominators, strict=True)
    )
    low, high = _low_end(logs), -_low_end([-value for value in reversed(logs)])
    return Ratio(math.exp(median(logs)), math.exp(low), math.exp(high))


def compare_cached(cold: Sequence[Sample], others: Sequence[Sample]) -> CachedPart | None:
    """What a cache can change of cold starts beside that of their partners; None where it was not timed."""
    cold_ns = [sample.cached_ns for sample in cold if sample.cached_ns is not None]
    others_ns = [sample.cached_ns for sample in others if sample.cached_ns is not None]
    if not cold_ns or len(cold_ns) != len(others_ns):
        return None
    return CachedPart(Spread.of(cold_ns), Spread.of(others_ns), paired_ratio(cold_ns, others_ns))


def _low_end(ordered: Sequence[float]) -> float:
    """The lower end of the interval, of values in ascending order."""
    count, rank = len(ordered), 1
    # Of the 2**count ways in which tosses fall: those with rank - 1 heads, and those with fewer than rank.
    ways, below = 1, 1
    while True:
        ways = ways * (count - rank + 1) // rank
        wide, narrow = (1 - 2 * part / (1 << count) for part in (below, below + ways))
        if narrow < CONFIDENCE:
            break
        rank, below = rank + 1, below + ways
    if wide <= CONFIDENCE:
        return ordered[0]
    share = (wide - CONFIDENCE) / (wide - narrow)
    inwards = (count - rank) * share / (rank + (count - 2 * rank) * share)
    return (1 - inwards) * ordered[rank - 1] + inwards * ordered[rank]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for or against a comparison, beside its durations."""

    foreign_load: float = 0.0
    """The share of all cores that other processes used meanwhile; 0 to 1."""
    cold_writes: bool = True
    """Whether a cold start is known to write into some cache below (it did while warming)."""
    same_output: bool = False
    """Whether all starts must print the same."""
    elsewhere: str = ""
    """What says that a cold start found something cached that no variable moves; empty for nothing."""
    no_ratio: str = ""
    """Why there is no ratio; empty where there is one."""


NO_PAIR = "it was interrupted before a pair of starts was complete"
NOT_REACHED = "it was interrupted before this was reached"


def interrupted_after(pairs: int) -> str:
    """What an interrupt left, for the caveats of a case."""
    return f"it was interrupted after {pairs} {'pair' if pairs == 1 else 'pairs'} of starts"


def judge(samples: Sequence[Sample], ratio: Ratio | None, evidence: Evidence) -> tuple[BenchVerdict, str]:
    """The verdict of cold against warm, with its reason; the first that holds."""
    failed = next((sample for sample in samples if sample.error), None)
    if failed is not None:
        article = "an" if failed.arm == Arm.AS_IS else "a"
        return BenchVerdict.FAILED, f"{article} {failed.arm} start failed: {failed.error}"
    if evidence.same_output and len({sample.output for sample in samples}) > 1:
        return BenchVerdict.FAILED, "the output differs from start to start"
    doubt = next(_doubts(samples, evidence), None)
    if doubt is not None or ratio is None:
        return BenchVerdict.DEGRADED, doubt or "there is no ratio"
    return _compare(ratio, sum(sample.arm == Arm.COLD for sample in samples))


def _compare(ratio: Ratio, pairs: int) -> tuple[BenchVerdict, str]:
    """What figures that can be believed come to."""
    if pairs < FEWEST_PAIRS:
        counted = "1 pair of starts is" if pairs == 1 else f"{pairs} pairs of starts are"
        few = f"{counted} too few to tell noise from effect; take {FEWEST_PAIRS} or more"
        return BenchVerdict.UNDECIDED, few
    if ratio.low > 1:
        return BenchVerdict.FASTER, ""
    if ratio.high < 1:
        return BenchVerdict.DEGRADED, "the warm starts are slower than the cold ones"
    if ratio.high / ratio.low > NARROW:
        more = f"; {pairs} pairs are few, give more --runs" if pairs < 2 * FEWEST_PAIRS else ""
        ends = f"{ratio.low:.2f} and {ratio.high:.2f}"
        return (
            BenchVerdict.DEGRADED,
            f"the noise is larger than the effect: the ratio lies between {ends}{more}",
        )
    seen = math.ceil(100 * (max(ratio.high, 1 / ratio.low) - 1))
    return BenchVerdict.NO_DIFFERENCE, f"one of {seen} % or more would have shown"


def _doubts(samples: Sequence[Sample], evidence: Evidence) -> Iterator[str]:
    cold = [sample for sample in samples if sample.arm == Arm.COLD]
    warm = [sample for sample in samples if sample.arm == Arm.WARM]
    missed = next((sample.missed for sample in warm if sample.missed), None)
    if missed is not None:
        yield f"the warm starts missed: {missed}"
    wrote = sorted({growth.cache for sample in warm for growth in sample.growth})
    if wrote:
        yield f"the warm starts missed: they wrote into {', '.join(wrote)}"
    if evidence.cold_writes and any(not sample.growth for sample in cold):
        yield "the cold starts were not cold: they wrote nothing into their empty caches, so another answered"
    if evidence.elsewhere:
        yield evidence.elsewhere
    if evidence.no_ratio:
        yield evidence.no_ratio
    if evidence.foreign_load > LOADED:
        share = round(100 * evidence.foreign_load)
        yield f"the machine was loaded: other processes used {share} % of its cores; run it on a quiet one"


def below(cases: Iterable[BenchCase], wanted: float) -> Iterator[str]:
    """A sentence for each case that is not surely so many times as fast."""
    for case in cases:
        program = f"{case.program} ({case.variant})" if case.variant else case.program
        name = f"{program} on {case.target}" if case.target else program
        if case.verdict is not BenchVerdict.FASTER or case.ratio is None:
            yield f"{name} is {case.verdict.replace('-', ' ')}, not {wanted:g} times as fast"
        elif case.ratio.low < wanted:
            yield (
                f"{name} is {case.ratio.low:.2f} times as fast at the low end of the interval, "
                f"below {wanted:g}"
            )
