"""What a bench case says in words, and what its bars are made of. Pure.

Owns what the terminal, SVG and Markdown must say alike: the verdict, a ratio with its interval, the
phases of every arm and how each phase looks. Must not know where it is drawn.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from gpucache.answers.bench import Arm, BenchCase, BenchVerdict, CachedPart, Ratio, Sample, Spread
from gpucache.answers.growth import Growth
from gpucache.units import format_count, format_duration, format_size

WHOLE = "whole start"
"""The only part of a bar whose phases are not known."""

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class Look:
    """How a phase is drawn: a colour, a block character, a letter where there are no blocks, and a hatch."""

    colour: str
    block: str
    letter: str
    hatch: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """One arm: the medians of its phases, and all its starts."""

    arm: str
    spread: Spread
    parts: tuple[tuple[str, int], ...]
    """Phase and median in ns."""
    ratio: Ratio | None
    """How many times it is as fast as a cold start; None for the cold arm itself."""
    totals_ns: tuple[int, ...]
    """Every start, outliers included."""

    @property
    def scale(self) -> float:
        """The factor by which parts are drawn longer, because medians do not quite add up to the whole."""
        length = sum(duration for _, duration in self.parts)
        return self.spread.median_ns / length if length else 1.0


# Okabe and Ito's colours, which stay apart in every kind of colour blindness; the long phases are darker.
LOOKS = {
    "process start": Look("#C4C4C4", "░", "."),
    "context": Look("#56B4E9", "▒", "o", "///"),
    "key": Look("#F0E442", "▘", "k"),
    "lookup": Look("#CC79A7", "▚", "l", "xxx"),
    "compile": Look("#D55E00", "█", "#", "..."),
    "load": Look("#009E73", "▓", "=", "\\\\\\\\"),
    "kernels": Look("#E69F00", "▞", "+", "|||"),
    "first launch": Look("#0072B2", "▄", "*"),
    WHOLE: Look("#5B7C99", "▇", "x"),
}
# Tol's muted colours, for phases that have no look of their own.
_SPARE = (
    Look("#332288", "▀", "%"),
    Look("#999933", "▐", "@"),
    Look("#882255", "▙", "&"),
    Look("#44AA99", "▖", "~"),
)


def looks(phases: Iterable[str]) -> dict[str, Look]:
    """How each phase is drawn, in the order given."""
    found: dict[str, Look] = {}
    spare = 0
    for phase in phases:
        if phase not in found:
            found[phase] = LOOKS.get(phase) or _SPARE[spare % len(_SPARE)]
            spare += phase not in LOOKS
    return found


def bars(case: BenchCase) -> tuple[Bar, ...]:
    """The bars of the cold, the warm and the other arms, in this order; none where nothing was timed."""
    if case.cold is None or case.warm is None:
        return ()
    medians = {
        Arm.COLD: [(name, cold) for name, cold, _ in case.phases if cold is not None],
        Arm.WARM: [(name, warm) for name, _, warm in case.phases if warm is not None],
    }
    found = [
        _bar(case, Arm.COLD, case.cold, None, medians[Arm.COLD]),
        _bar(case, Arm.WARM, case.warm, case.ratio, medians[Arm.WARM]),
    ]
    for one in case.arms:
        phases = _medians([sample for sample in case.samples if sample.arm == one.arm])
        found.append(_bar(case, one.arm, one.spread, one.ratio, phases))
    return tuple(found)


def _bar(
    case: BenchCase, arm: str, spread: Spread, ratio: Ratio | None, phases: Sequence[tuple[str, int]]
) -> Bar:
    totals = tuple(sample.total_ns for sample in case.samples if sample.arm == arm and not sample.error)
    timed = sum(duration for _, duration in phases)
    parts = tuple(phases) if len(phases) > 1 and timed else ((WHOLE, spread.median_ns),)
    return Bar(arm, spread, parts, ratio, totals)


def _medians(samples: Sequence[Sample]) -> list[tuple[str, int]]:
    named = phase_order([name for name, _ in sample.phases] for sample in samples)
    durations = {
        name: [ns for sample in samples for phase, ns in sample.phases if phase == name] for name in named
    }
    return [(name, round(median(found))) for name, found in durations.items()]


def phase_order(lists: Iterable[Iterable[str]]) -> list[str]:
    """Every phase once. A phase that only a later list has stands behind the phase that it follows there."""
    order: list[str] = []
    for phases in lists:
        place = 0
        for phase in phases:
            if phase in order:
                place = order.index(phase) + 1
            else:
                order.insert(place, phase)
                place += 1
    return order


def case_phases(cases: Iterable[BenchCase]) -> list[str]:
    """Every phase that the bars of these cases have, in the order of a start."""
    drawn = [(case, bars(case)) for case in cases]
    listed = [[name for name, _, _ in case.phases] for case, parts in drawn if len(case.phases) > 1 and parts]
    used = [[name for name, _ in bar.parts] for _, parts in drawn for bar in parts]
    order = phase_order([*listed, *used])
    found = [name for name in order if name != WHOLE and any(name in names for names in used)]
    return [*found, WHOLE] if WHOLE in order else found


def name_of(case: BenchCase) -> str:
    """The case in words: its program and target, or its command."""
    name = f"{case.program} [{case.variant}]" if case.variant else case.program
    return f"{name} on {case.target}" if case.target else name


def ratio_words(ratio: Ratio) -> str:
    """A ratio with its interval, such as ``16.0x (13.2x to 17.9x)``."""
    return f"{times(ratio.median, ratio)} ({interval_words(ratio)})"


def interval_words(ratio: Ratio) -> str:
    """The interval of a ratio, such as ``13.2x to 17.9x``."""
    return f"{times(ratio.low, ratio)} to {times(ratio.high, ratio)}"


def times(value: float, ratio: Ratio) -> str:
    """A number of a ratio in as many digits as suit the whole ratio."""
    digits = 2 if ratio.low < 2 else 1 if ratio.low < 100 else 0
    return f"{value:.{digits}f}x"


def part_words(part: CachedPart) -> str:
    """What a cache makes of the part that it can change, such as ``436 ms -> 10 ms``."""
    return f"{format_duration(part.cold.median_ns)} -> {format_duration(part.warm.median_ns)}"


def verdict_words(case: BenchCase) -> str:
    """The verdict, and the ratio or the reason that it rests on."""
    if case.verdict in (BenchVerdict.FAILED, BenchVerdict.DEGRADED):
        return f"{case.verdict}: {bare(case.reason)}"
    figures = (ratio_words(case.ratio) if case.ratio else "", bare(case.reason))
    return f"{verdict_name(case.verdict)}: {'; '.join(filter(None, figures))}"


def bare(text: str) -> str:
    """Text without a terminal's colours, which compilers leave in what they print."""
    return _COLOURS.sub("", text)


def verdict_name(verdict: BenchVerdict) -> str:
    """The verdict as people write it."""
    return verdict.replace("-", " ")


def remarks(case: BenchCase) -> Iterator[str]:
    """What is worth saying beside the figures, a sentence each."""
    changed = cached_words(case)
    if changed:
        yield changed
    pays = break_even_words(case)
    if pays:
        yield pays
    if case.growth:
        yield f"a cold start writes {growth_words(case.growth)}"
    yield from caveats(case)
    far = [bar for bar in bars(case) if bar.spread.outliers]
    if far:
        yield _outlier_words(far)
    yield from case.notes


def caveats(case: BenchCase) -> Iterator[str]:
    """What the figures leave out or may hide, a sentence each."""
    yield from (f"{one.arm}: {one.reason}" for one in case.arms if one.reason)
    yield from case.caveats


def _outlier_words(found: Sequence[Bar]) -> str:
    """How many starts lie far from the others; they count like all the others."""
    parts = [f"{bar.spread.outliers} of {bar.spread.runs} {bar.arm} starts" for bar in found]
    verb = "lies" if len(found) == 1 and found[0].spread.outliers == 1 else "lie"
    return f"{_list(parts)} {verb} far from the others"


def cached_words(case: BenchCase) -> str:
    """What a cache makes of the part of a start that it can change; empty text where that is not known."""
    part = case.cached_part
    if part is None:
        return ""
    figures = f"{part_words(part)}, {ratio_words(part.ratio)}"
    return f"what a cache can change of a start (all but the process and the context): {figures}"


def break_even_words(case: BenchCase) -> str:
    """After how many starts warming has paid; empty text where no start is known to save anything."""
    one, ratio = case.break_even, case.ratio
    if one is None or not one.starts or ratio is None or ratio.low <= 1:
        return ""
    cost, saving = format_duration(one.warming_ns), format_duration(one.saving_ns)
    return (
        f"warming cost {cost}; each start saves {saving}: it pays after {format_count(one.starts, 'start')}"
    )


def growth_words(growth: Iterable[Growth]) -> str:
    """What caches gained, such as ``12 entries (1.2 MiB) into pocl and 3 entries (40 KiB) into sycl``."""
    parts = [
        f"{format_count(one.entries, 'entry', 'entries')} ({format_size(one.size_bytes)}) into {one.cache}"
        for one in growth
    ]
    return _list(parts) or "nothing new"


def _list(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
