"""Compares cold with warm starts: a paired ratio with its interval, a verdict, and the result of a gate.

Pure. Owns the rules of a verdict and their order: a start that failed, a warm start that missed, a cold
start that was not cold, a cache elsewhere, an unknown ratio, a loaded machine, too few pairs,
noise larger than the effect. Also owns the caveats, the notes and the break-even, and the rule that a
peer is genuine only if its first start filled its own cache and no later one did. Must not
know how samples were taken.

The interval of a ratio is read from the sorted ratios: their k-th lowest and k-th highest enclose
the median with a probability that follows from coin tosses, for any kind of noise. Between the
two k next to the requested confidence it is interpolated as by Hettmansperger and Sheather (1986), which
keeps its confidence from six pairs on; five span all of their ratios, at 94 %. A bootstrap of the median
claims too much for few pairs: for seven, it is wholly above 1 for 6 % of all noise, and this one for
2.5 %. Ratios are compared on a logarithmic scale, on which twice and half as fast are equally far from 1.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median, median_low

from gpucache.answers.bench import (
    FEWEST_PAIRS,
    PHASES,
    Arm,
    ArmResult,
    BenchCase,
    BenchVerdict,
    BreakEven,
    CachedPart,
    Ratio,
    Sample,
    Spread,
)
from gpucache.answers.entries import Growth
from gpucache.engine.warm.command import Clues
from gpucache.units import format_duration

CONFIDENCE = 0.95
LOADED = 0.25
"""The share of all cores that others may use before figures are unreliable."""
NARROW = 1.25
"""An interval around 1 whose ends differ by less than this means no difference."""
PAIR = (Arm.COLD, Arm.WARM)
NO_LAUNCH = (
    "this compiler builds late and no local size is declared, so the cost at first launch is unknown; "
    "give --local-size, or local_sizes in a manifest"
)
NOT_LOADED = "nothing was loaded, as this machine has no device of this target"
_FIRST_RUN = 1.5
"""How many times the median a first start may take before that is reported."""
_SLOW_NS = 1_000_000_000
"""A warm start that takes longer is slow, however long a cold one takes."""


def paired_ratio(numerators: Sequence[int], denominators: Sequence[int]) -> Ratio:
    """The median of the ratios of pairs, with the ends of its 95 % interval; needs at least one pair.

    With fewer than five pairs the interval is from the lowest to the highest ratio.
    """
    logs = sorted(
        math.log(max(over, 1) / max(under, 1)) for over, under in zip(numerators, denominators, strict=True)
    )
    low, high = _low_end(logs), -_low_end([-value for value in reversed(logs)])
    return Ratio(math.exp(median(logs)), math.exp(low), math.exp(high))


def compare_cached(cold: Sequence[Sample], others: Sequence[Sample]) -> CachedPart | None:
    """Cold starts compared with their partners, by the phases that a cache can change; None if not timed."""
    cold_ns = [sample.cached_ns for sample in cold if sample.cached_ns is not None]
    others_ns = [sample.cached_ns for sample in others if sample.cached_ns is not None]
    if not cold_ns or len(cold_ns) != len(others_ns):
        return None
    return CachedPart(Spread.of(cold_ns), Spread.of(others_ns), paired_ratio(cold_ns, others_ns))


def _low_end(ordered: Sequence[float]) -> float:
    """The lower end of the interval, of values in ascending order."""
    count, rank = len(ordered), 1
    # Of the 2**count outcomes of the tosses: those with rank - 1 heads, and those with fewer than rank.
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


NO_CACHE = (
    "nothing to compare: this command has no cache, or one that no environment variable can move; 'gpucache "
    "run' caches its OpenCL and NVRTC builds, as in 'gpucache bench -- gpucache run -- COMMAND'"
)
NO_PAIR = "it was interrupted before a pair of starts was complete"
NOT_REACHED = "it was interrupted before this was reached"


def interrupted_after(pairs: int) -> str:
    """The result of an interrupt, for the caveats of a case."""
    return f"it was interrupted after {pairs} {'pair' if pairs == 1 else 'pairs'} of starts"


def judge(measured: "Measured", ratio: Ratio | None) -> tuple[BenchVerdict, str]:
    """The verdict of cold against warm, with its reason; the first that applies."""
    own = measured.own
    failed = next((sample for sample in own if sample.error), None)
    if failed is not None:
        article = "an" if failed.arm == Arm.AS_IS else "a"
        return BenchVerdict.FAILED, f"{article} {failed.arm} start failed: {failed.error}"
    if measured.same_output and len({sample.output for sample in own}) > 1:
        return BenchVerdict.FAILED, "the output differs from start to start"
    doubt = next(_doubts(measured), None)
    if doubt == NO_CACHE:
        return BenchVerdict.NO_CACHE, doubt
    if doubt is not None or ratio is None:
        return BenchVerdict.DEGRADED, doubt or "there is no ratio"
    return _compare(ratio, len(_of(Arm.COLD, own)))


def _compare(ratio: Ratio, pairs: int) -> tuple[BenchVerdict, str]:
    if pairs < FEWEST_PAIRS:
        counted = "1 pair of starts is" if pairs == 1 else f"{pairs} pairs of starts are"
        few = f"{counted} too few to distinguish noise from effect; give --runs {FEWEST_PAIRS} or more"
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
            f"the noise is larger than the effect: the ratio is between {ends}{more}",
        )
    seen = math.ceil(100 * (max(ratio.high, 1 / ratio.low) - 1))
    return BenchVerdict.NO_DIFFERENCE, f"a difference of {seen} % or more would have shown"


def _doubts(measured: "Measured") -> Iterator[str]:
    cold, warm = (_of(arm, measured.samples) for arm in PAIR)
    missed = next((sample.missed for sample in warm if sample.missed), None)
    if missed is not None:
        yield f"the warm starts missed: {missed}"
    if wrote := _caches(warm):
        yield f"the warm starts missed: they wrote into {', '.join(wrote)}"
    cold_writes = measured.wrote or any(sample.growth for sample in _of(Arm.COLD, measured.first))
    if cold_writes and any(not sample.growth for sample in cold):
        yield "the cold starts were not cold: they wrote nothing into their empty caches, so another was used"
    elsewhere = replace(measured.clues, cold_ns=tuple(sample.cpu_ns for sample in cold)).reason
    if elsewhere:
        yield elsewhere
    if measured.alike:
        yield measured.alike
    if measured.foreign_load > LOADED:
        share = round(100 * measured.foreign_load)
        yield f"other processes used {share} % of the machine; run it on a quiet one"


def is_peer(arm: str) -> bool:
    """Whether an arm's starts use some cache, but not ours or the user's own."""
    return arm not in (Arm.COLD, Arm.WARM, Arm.AS_IS)


@dataclass(frozen=True, slots=True)
class Measured:
    """All measured facts about one program on one target, or about one command."""

    first: tuple[Sample, ...] = ()
    """Uncounted starts of each arm, which fill the caches of the warm ones."""
    samples: tuple[Sample, ...] = ()
    late: bool = False
    """Whether the compiler goes on compiling at first launches."""
    warming_ns: int | None = None
    """The cost of filling the caches; None if unknown."""
    wrote: bool = False
    """Whether a run that filled the caches wrote into one; the first cold start's writes also count."""
    clues: Clues = field(default_factory=Clues)
    no_ratio: str = ""
    """Why cold and warm starts are the same; empty if they may differ."""
    same_output: bool = False
    foreign_load: float = 0.0
    """The share of all cores that other processes used during the measurement, from 0 to 1."""
    against: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def own(self) -> tuple[Sample, ...]:
        """The starts, but none of a peer's; the uncounted first starts if there are no others."""
        return tuple(sample for sample in self.samples or self.first if not is_peer(sample.arm))

    @property
    def alike(self) -> str:
        """Why no ratio can be given; empty if one can."""
        late = self.late and not all(_has("first launch", sample) for sample in self.own)
        return NO_LAUNCH if late else self.no_ratio


def fold(case: BenchCase, measured: Measured) -> BenchCase:
    """The case of the measurements; it fails with the first failed start, unless that is a peer's."""
    case = replace(case, samples=measured.samples or measured.first)
    if not measured.samples or any(sample.error for sample in measured.own):
        verdict, reason = judge(measured, None)
        return replace(case, verdict=verdict, reason=reason, caveats=measured.caveats, notes=measured.notes)
    case = replace(case, starts=tuple(_arms(measured)), growth=_typical(_of(Arm.COLD, measured.samples)))
    verdict, reason = judge(measured, case.ratio)
    case = replace(case, verdict=verdict, reason=reason)
    return replace(
        case,
        break_even=_break_even(case, measured),
        caveats=tuple(_caveats(case, measured)),
        notes=(*_first_run(case, measured), *_slow(case), *measured.notes),
    )


def _arms(measured: Measured) -> Iterator[ArmResult]:
    """The figures of each arm, compared with the cold starts of its pairs; without arms that failed."""
    cold = _of(Arm.COLD, measured.samples)
    for arm in (*PAIR, *measured.against):
        own = _of(arm, measured.samples)
        if len(own) != len(cold) or any(sample.error for sample in own):
            continue
        compared = arm != Arm.COLD and not (arm == Arm.WARM and measured.alike)
        totals_ns = tuple(sample.total_ns for sample in own)
        yield ArmResult(
            arm,
            Spread.of(totals_ns),
            paired_ratio([sample.total_ns for sample in cold], totals_ns) if compared else None,
            _doubt(arm, measured.first, own) if is_peer(arm) else "",
            compare_cached(cold, own) if compared else None,
            tuple(_medians(own)),
            totals_ns,
        )


def _medians(samples: Sequence[Sample]) -> Iterator[tuple[str, int]]:
    for name in PHASES:
        if durations := [ns for sample in samples for phase, ns in sample.phases if phase == name]:
            yield name, round(median(durations))


def _break_even(case: BenchCase, measured: Measured) -> BreakEven | None:
    """The break-even of a case; None if it is unknown whether anything is saved."""
    if case.verdict is not BenchVerdict.FASTER or measured.warming_ns is None:
        return None
    if case.cold is None or case.warm is None or case.cold.median_ns <= case.warm.median_ns:
        return None
    saving_ns = case.cold.median_ns - case.warm.median_ns
    return BreakEven(measured.warming_ns, saving_ns, -(-measured.warming_ns // saving_ns))


def _caveats(case: BenchCase, measured: Measured) -> Iterator[str]:
    if case.phases and not any(_has("kernels", sample) for sample in measured.samples):
        yield NOT_LOADED
    yield from measured.caveats
    failed = {one.arm: one.error for one in reversed((*measured.first, *measured.samples)) if one.error}
    yield from (f"{arm} does not take part: {failed[arm]}" for arm in measured.against if arm in failed)


def _first_run(case: BenchCase, measured: Measured) -> Iterator[str]:
    for sample in _of(Arm.COLD, measured.first):
        if case.cold is not None and sample.total_ns > _FIRST_RUN * case.cold.median_ns:
            times = sample.total_ns / max(case.cold.median_ns, 1)
            yield (
                f"the first start took {times:.1f} times the median of the others "
                f"({format_duration(sample.total_ns)}); not counted, as it may read from disk files that "
                "later starts find in memory"
            )


def _slow(case: BenchCase) -> Iterator[str]:
    rows = [(duration, name) for name, _, duration in case.phases if duration is not None]
    if case.cold is None or case.warm is None or not rows:
        return
    if case.warm.median_ns > case.cold.median_ns / 2 or case.warm.median_ns > _SLOW_NS:
        duration, name = max(rows)
        yield (
            f"a warm start still takes {format_duration(case.warm.median_ns)}; most of it is "
            f"{name} ({format_duration(duration)})"
        )


def _of(arm: str, samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.arm == arm]


def _has(phase: str, sample: Sample) -> bool:
    return any(name == phase for name, _ in sample.phases)


def _typical(cold: Sequence[Sample]) -> tuple[Growth, ...]:
    """The caches written by the cold start that wrote the median number of entries."""
    entries = {sum(one.entries for one in sample.growth): sample.growth for sample in cold}
    return entries[median_low(sum(one.entries for one in sample.growth) for sample in cold)]


def _doubt(arm: str, first: Sequence[Sample], own: Sequence[Sample]) -> str:
    """Why a peer's starts are not genuine; empty if they are."""
    wrote = _caches(own)
    if wrote:
        return f"its starts missed: they wrote into {', '.join(wrote)}"
    filled = _caches(sample for sample in first if sample.arm == arm)
    if not filled:
        return "nothing is cached, so these are cold starts"
    if arm == Arm.DRIVER or arm in filled:
        return ""
    return f"it has no cache for this platform and leaves that to {', '.join(filled)}"


def _caches(samples: Iterable[Sample]) -> list[str]:
    return sorted({growth.cache for sample in samples for growth in sample.growth})


def below(cases: Iterable[BenchCase], wanted: float) -> Iterator[str]:
    """A sentence for each case whose speed-up is not reliably as high as wanted."""
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
