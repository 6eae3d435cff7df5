"""Samples folded into a case: medians, paired ratios, the verdict, and what else is worth knowing.

Pure. Owns the caveats, the notes and the break-even, of sources and of commands alike. Must not know how
samples were taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median, median_low

from gpucache.answers.growth import Growth
from gpucache.bench import peers
from gpucache.bench.compare import Evidence, compare_cached, judge, paired_ratio
from gpucache.engine.hidden_caches import Clues
from gpucache.outcomes.bench import CACHED, Arm, BenchCase, BenchVerdict, BreakEven, Sample, Spread
from gpucache.units import format_duration

PHASES = ("process start", "context", *CACHED)
"""The parts of a start of a source, in their order; a command is timed as a whole."""
PAIR = (Arm.COLD, Arm.WARM)
NO_LAUNCH = (
    "this compiler builds late and no local size is declared, so the cost at first launch is not known; "
    "give --local-size, or local_sizes in a manifest"
)
NOT_LOADED = "nothing was loaded, as no device of this target is here"
_FIRST_RUN = 1.5
"""How many times the median a first start may take before that is told."""
_SLOW_NS = 1_000_000_000
"""A warm start that takes longer is slow, however long a cold one takes."""

Row = tuple[str, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Measured:
    """All that was found out about one program on one target, or about one command."""

    first: tuple[Sample, ...] = ()
    """Starts of each arm that are not counted, which fill the caches of those that are warm."""
    samples: tuple[Sample, ...] = ()
    """The counted ones, in the order they were taken."""
    late: bool = False
    """Whether the compiler goes on compiling at first launches."""
    warming_ns: int | None = None
    """What filling the caches cost; None where that is not known."""
    wrote: bool = False
    """Whether a run that filled the caches wrote into one; what the first cold start wrote counts, too."""
    clues: Clues = field(default_factory=Clues)
    """What was seen of caches elsewhere."""
    no_ratio: str = ""
    """Why cold and warm starts are the same; empty where they may differ."""
    same_output: bool = False
    """Whether all starts must print the same."""
    foreign_load: float = 0.0
    against: tuple[str, ...] = ()
    """The arms beside the pair that took part."""
    caveats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def fold(case: BenchCase, measured: Measured) -> BenchCase:
    """The case of what was measured; the first start that failed and is no peer's makes it failed."""
    taken = measured.samples or measured.first
    case = replace(case, samples=taken)
    cold, warm = _of(Arm.COLD, taken), _of(Arm.WARM, taken)
    own = tuple(sample for sample in taken if not peers.is_peer(sample.arm))
    if not measured.samples or any(sample.error for sample in own):
        verdict, reason = judge(own, None, Evidence())
        return replace(case, verdict=verdict, reason=reason, caveats=measured.caveats, notes=measured.notes)
    cold_ns, warm_ns = _totals(cold), _totals(warm)
    late = measured.late and not all(_has("first launch", sample) for sample in own)
    no_ratio = NO_LAUNCH if late else measured.no_ratio
    ratio = None if no_ratio else paired_ratio(cold_ns, warm_ns)
    clues = replace(measured.clues, cold_ns=tuple(sample.cpu_ns for sample in cold))
    evidence = Evidence(
        foreign_load=measured.foreign_load,
        cold_writes=measured.wrote or any(sample.growth for sample in _of(Arm.COLD, measured.first)),
        same_output=measured.same_output,
        elsewhere=clues.reason,
        no_ratio=no_ratio,
    )
    verdict, reason = judge(own, ratio, evidence)
    case = replace(
        case,
        verdict=verdict,
        reason=reason,
        cold=Spread.of(cold_ns),
        warm=Spread.of(warm_ns),
        ratio=ratio,
        cached_part=compare_cached(cold, warm) if ratio else None,
        phases=_phases(cold, warm),
        arms=tuple(peers.results(measured.against, measured.first, taken, cold)),
        growth=_typical(cold),
    )
    return replace(
        case,
        break_even=_break_even(case, measured),
        caveats=tuple(_caveats(case, measured)),
        notes=(*_first_run(case, measured), *_slow(case), *measured.notes),
    )


def _break_even(case: BenchCase, measured: Measured) -> BreakEven | None:
    """None where it is not known that anything is saved."""
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
    yield from peers.failures(measured.against, (*measured.first, *measured.samples))


def _first_run(case: BenchCase, measured: Measured) -> Iterator[str]:
    for sample in _of(Arm.COLD, measured.first):
        if case.cold is not None and sample.total_ns > _FIRST_RUN * case.cold.median_ns:
            times = sample.total_ns / max(case.cold.median_ns, 1)
            yield (
                f"the first start took {times:.1f} times the median of the others "
                f"({format_duration(sample.total_ns)}); it is not counted, as it may read from disk what "
                "later ones find in memory"
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
    return [sample for sample in samples if sample.arm is arm]


def _totals(samples: Sequence[Sample]) -> list[int]:
    return [sample.total_ns for sample in samples]


def _has(phase: str, sample: Sample) -> bool:
    return any(name == phase for name, _ in sample.phases)


def _typical(cold: Sequence[Sample]) -> tuple[Growth, ...]:
    """What the cold start that wrote the middle number of entries wrote."""
    entries = {sum(one.entries for one in sample.growth): sample.growth for sample in cold}
    return entries[median_low(sum(one.entries for one in sample.growth) for sample in cold)]


def _phases(cold: Sequence[Sample], warm: Sequence[Sample]) -> tuple[Row, ...]:
    rows = ((name, _median_of(name, cold), _median_of(name, warm)) for name in PHASES)
    return tuple(row for row in rows if row[1] is not None or row[2] is not None)


def _median_of(name: str, samples: Sequence[Sample]) -> int | None:
    durations = [duration for sample in samples for phase, duration in sample.phases if phase == name]
    return round(median(durations)) if durations else None
