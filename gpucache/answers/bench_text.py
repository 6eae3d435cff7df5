"""Bench and warming by a command in words: tables, sentences, and bars of block characters.

Owns the parts that the terminal, plots and Markdown share (the verdict, a ratio with its interval, the phases
of every arm and how each phase looks), and the layout on a terminal.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gpucache.answers.bench import (
    FEWEST_PAIRS,
    PAPER_ASYNC,
    PAPER_SYNC,
    Arm,
    BenchCase,
    BenchVerdict,
    CachedPart,
    CheckedCase,
    CheckedMeans,
    Ratio,
    Sample,
    SettleRun,
    SettleSummary,
    Spread,
)
from gpucache.answers.grid import Block, Cell, Column, Grid, Line, Pieces, plain
from gpucache.answers.growth import Growth
from gpucache.units import format_count, format_duration, format_size, printable

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
    def cells(self) -> tuple[str, ...]:
        """The arm, the median, fastest and slowest start, and how many there were, for a table."""
        durations = (self.spread.median_ns, self.spread.low_ns, self.spread.high_ns)
        return (self.arm, *map(format_duration, durations), str(self.spread.runs))

    @property
    def scale(self) -> float:
        """The factor by which parts are drawn longer, because medians do not quite add up to the whole."""
        length = sum(duration for _, duration in self.parts)
        return self.spread.median_ns / length if length else 1.0


# Okabe and Ito's colours, which are distinct in every kind of colour blindness; the long phases are darker.
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
# Tol's muted colours, for phases without a fixed style.
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
    """The bars of the cold, the warm and the other arms, in this order; none if nothing was timed."""
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
    """Every phase once. A phase that only a later list has comes after the phase that it follows there."""
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


def name_of(*cases: BenchCase) -> str:
    """Cases in words: their programs by target, or their commands."""
    targets: dict[str, list[str]] = {}
    for case in cases:
        name = f"{case.program} [{case.variant}]" if case.variant else case.program
        targets.setdefault(case.target, []).append(name)
    named = ((_list(names), target) for target, names in targets.items())
    return "; ".join(f"{names} on {target}" if target else names for names, target in named)


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
    """The effect of a cache on the part that it can change, such as ``436 ms -> 10 ms``."""
    return f"{format_duration(part.cold.median_ns)} -> {format_duration(part.warm.median_ns)}"


def verdict_words(case: BenchCase) -> str:
    """The verdict, and the ratio or the reason that supports it."""
    if case.verdict in (BenchVerdict.FAILED, BenchVerdict.DEGRADED):
        return f"{case.verdict}: {bare(case.reason)}"
    figures = (ratio_words(case.ratio) if case.ratio else "", bare(case.reason))
    return f"{verdict_name(case.verdict)}: {'; '.join(filter(None, figures))}"


def bare(text: str) -> str:
    """Text without terminal colours, which compilers leave in their output."""
    return _COLOURS.sub("", text)


def verdict_name(verdict: BenchVerdict) -> str:
    """The verdict as people write it."""
    return verdict.replace("-", " ")


def remarks(case: BenchCase) -> Iterator[str]:
    """Remarks on the figures, a sentence each."""
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
    """The omissions and doubts of the figures, a sentence each."""
    yield from (f"{one.arm}: {one.reason}" for one in case.arms if one.reason)
    yield from case.caveats


def _outlier_words(found: Sequence[Bar]) -> str:
    """How many starts are far from the others; they count like all the others."""
    parts = [f"{bar.spread.outliers} of {bar.spread.runs} {bar.arm} starts" for bar in found]
    verb = "is" if len(found) == 1 and found[0].spread.outliers == 1 else "are"
    return f"{_list(parts)} {verb} far from the others"


def cached_words(case: BenchCase) -> str:
    """The effect of a cache on the part of a start that it can change; empty text if it is not known."""
    part = case.cached_part
    if part is None:
        return ""
    figures = f"{part_words(part)}, {ratio_words(part.ratio)}"
    return f"cached part (all but the process and the context): {figures}"


def break_even_words(case: BenchCase) -> str:
    """The number of starts after which warming pays; empty text if no start is known to save anything."""
    one, ratio = case.break_even, case.ratio
    if one is None or not one.starts or ratio is None or ratio.low <= 1:
        return ""
    cost, saving = format_duration(one.warming_ns), format_duration(one.saving_ns)
    return (
        f"warming cost {cost}; each start saves {saving}: it pays after {format_count(one.starts, 'start')}"
    )


def growth_words(growth: Iterable[Growth]) -> str:
    """The growth of caches, such as ``12 entries (1.2 MiB) into pocl and 3 entries (40 KiB) into sycl``."""
    parts = [
        f"{format_count(one.entries, 'entry', 'entries')} ({format_size(one.size_bytes)}) into {one.cache}"
        for one in growth
    ]
    return _list(parts) or "nothing new"


def _list(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


_CACHED_PART = (
    "cached part: key, lookup or compile, load, kernels and first launch; the rest of a start, the "
    "process and the context, is the same with any cache"
)
WIDEST = 120
"""The most columns that a line of bars takes: longer bars are no easier to read."""
_STYLES = {
    BenchVerdict.FASTER: "green",
    BenchVerdict.NO_DIFFERENCE: "",
    BenchVerdict.UNDECIDED: "",
    BenchVerdict.DEGRADED: "yellow",
    BenchVerdict.FAILED: "red",
}


def bench(cases: Sequence[BenchCase], *, whole: bool = False) -> Iterator[Block]:
    """A row for each case, and the caveats of its figures; if ``whole``, everything about each."""
    yield _overview(cases)
    if any(case.cached_part for case in cases):
        yield plain(f"\n{_CACHED_PART}", "dim")
    if whole:
        for case in cases:
            yield from _case(case)
    else:
        yield from _short(cases)


def _overview(cases: Sequence[BenchCase]) -> Grid:
    """A row for each case, and below it one for each arm besides the cold and the warm one."""
    grid = Grid(
        (
            Column("program", prose=True),
            Column("variant"),
            Column("target", shared=True),
            Column("cold", numeric=True, spare=1),
            Column("warm", numeric=True, spare=1),
            Column("ratio", numeric=True),
            Column("95 % interval", numeric=True, spare=3),
            Column("cached part", numeric=True, spare=2),
            Column("part ratio", numeric=True),
            Column("verdict", whole=True),
        )
    )
    for case in cases:
        verdict = BenchVerdict(case.verdict)
        grid.add(
            case.program,
            case.variant,
            case.target,
            _median(case.cold),
            _median(case.warm),
            *_ratios(case.ratio, case.cached_part, case.cold),
            plain(verdict_name(verdict), _STYLES[verdict]),
        )
        for one in case.arms:
            figures = _ratios(one.ratio, one.cached_part, one.spread)
            grid.add(f"  {one.arm}", case.variant, case.target, "", _median(one.spread), *figures, "")
    return grid


def _median(spread: Spread | None) -> str:
    return "-" if spread is None else format_duration(spread.median_ns)


def _ratios(ratio: Ratio | None, part: CachedPart | None, of: Spread | None) -> Iterator[str]:
    """The ratio of starts with its interval, then the effect on the part that a cache can change."""
    yield times(ratio.median, ratio) if ratio else "-"
    yield interval_words(ratio) if ratio and of and of.runs >= FEWEST_PAIRS else ""
    yield part_words(part) if part else ""
    yield times(part.ratio.median, part.ratio) if part else ""


def _short(cases: Sequence[BenchCase]) -> Iterator[Block]:
    """The facts missing from the table: why a case is not faster, and its other caveats."""
    said: dict[tuple[str, str], list[tuple[BenchCase, str]]] = {}
    for case in cases:
        if case.reason:
            why = f"{verdict_name(case.verdict)}: {bare(case.reason)}"
            alike = (_SHARE.sub("%", why), _STYLES[BenchVerdict(case.verdict)])
            said.setdefault(alike, []).append((case, why))
    for case in cases:
        for caveat in caveats(case):
            said.setdefault((caveat, ""), []).append((case, caveat))
    yield from ("",) if said else ()
    for (_, style), among in said.items():
        named = "" if len(among) == len(cases) else f"{name_of(*(case for case, _ in among))}: "
        yield plain(f"{named}{_together([sentence for _, sentence in among])}", style)
    if any(case.cold for case in cases):
        yield plain("\n-v shows the phases, the spread and more of each", "dim")


_SHARE = re.compile(r"\b\d+ %")


def _together(sentences: Sequence[str]) -> str:
    """One sentence for those that differ only in a percentage, with the least and the most of it."""
    shares = sorted(
        (share for one in sentences for share in _SHARE.findall(one)), key=lambda one: int(one[:-2])
    )
    if len(set(sentences)) == 1:
        return sentences[0]
    return _SHARE.sub(f"{shares[0]} to {shares[-1]}", sentences[0])


def _case(case: BenchCase) -> Iterator[Block]:
    yield plain(f"\n{printable(name_of(case), None)}", "bold")
    yield plain(verdict_words(case), _STYLES[BenchVerdict(case.verdict)])
    drawn = bars(case)
    if drawn:
        yield ""
        if len(case.phases) > 1:
            yield from (_phases(case), "")
        yield from (_starts(drawn), "", _Bars(drawn, looks(case_phases([case]))), "")
    yield from (plain(remark) for remark in remarks(case))
    if case.redirects:
        yield plain("kept apart from your own caches by, for a directory DIR of each start's own:", "dim")
        yield from (plain(f"  {name}={value}", "dim") for name, value in case.redirects)


def _phases(case: BenchCase) -> Block:
    grid = Grid((Column("phase", whole=True), Column("cold", numeric=True), Column("warm", numeric=True)))
    for row in phase_cells(case):
        grid.add(*row)
    if case.cold and case.warm:
        totals = (format_duration(spread.median_ns) for spread in (case.cold, case.warm))
        grid.add(*(plain(text, "bold") for text in ("total", *totals)))
    return grid


def _starts(drawn: Sequence[Bar]) -> Block:
    figures = ("median", "lowest", "highest", "starts", "as fast as cold")
    grid = Grid((Column("start", whole=True), *(Column(name, numeric=True) for name in figures)))
    for bar in drawn:
        alone = "1x" if bar.arm == Arm.COLD else "-"
        grid.add(*bar.cells, alone if bar.ratio is None else ratio_words(bar.ratio))
    return grid


@dataclass(frozen=True, slots=True)
class _Bars:
    """A line for each arm, all drawn to one scale, and below them the meaning of the characters."""

    drawn: tuple[Bar, ...]
    shown_as: Mapping[str, Look]

    def lines(self, width: int) -> Iterator[Pieces]:
        """A bar on each line, then the legend."""
        labels = max(len(bar.arm) for bar in self.drawn) + 2
        ends = max(len(format_duration(bar.spread.median_ns)) for bar in self.drawn) + 1
        cells = max(min(width, WIDEST) - labels - ends, 8)
        longest = max(max(bar.spread.median_ns for bar in self.drawn), 1)
        seen: set[str] = set()
        for bar in self.drawn:
            shares = _shares([part for _, part in bar.parts], bar.spread.median_ns / longest * cells)
            marks = {phase: share for (phase, _), share in zip(bar.parts, shares, strict=True) if share}
            seen.update(marks)
            drawn = (self._mark(phase, share) for phase, share in marks.items())
            yield [f"{bar.arm:<{labels}}", *drawn, f" {format_duration(bar.spread.median_ns)}"]
        if len(self.shown_as) > 1:
            yield from self._legend(seen, width)

    def _mark(self, phase: str, cells: int = 1) -> Line:
        look = self.shown_as[phase]
        return Line(look.block * cells, look.colour, look.letter * cells)

    def _legend(self, seen: set[str], width: int) -> Iterator[Pieces]:
        line: list[Cell] = []
        taken = 0
        for phase in (phase for phase in self.shown_as if phase in seen):
            if line and taken + len(phase) + 4 > width:
                yield line
                line, taken = [], 0
            line += ["  " if line else "", self._mark(phase), f" {phase}"]
            taken += len(phase) + (4 if taken else 2)
        yield line
        unseen = [phase for phase in self.shown_as if phase not in seen]
        if unseen:
            yield from plain(f"too short to be drawn: {', '.join(unseen)}", "dim").lines(width)


def _shares(parts: Sequence[float], cells: float) -> list[int]:
    """Whole cells for each part, distributed by the largest remainders; together they get at least one."""
    total, whole = sum(parts), max(round(cells), 1)
    exact = [part / total * whole if total else 0 for part in parts]
    shares = [int(share) for share in exact]
    behind = sorted(range(len(parts)), key=lambda index: shares[index] - exact[index])
    for index in behind[: whole - sum(shares)]:
        shares[index] += 1
    return shares


def settle(runs: Iterable[SettleRun], summary: SettleSummary) -> Iterator[Block]:
    """Each run of a command with the entries it added, then how it ended."""
    yield from map(settle_run, runs)
    yield from settle_end(summary)


def settle_run(run: SettleRun) -> Block:
    """The growth of each cache in one run, and the duration of the run."""
    took = format_duration(run.duration_ns)
    if run.error:
        return plain(f"run {run.number}: failed after {took}", "red")
    return plain(f"run {run.number}: {growth_words(run.growth)}; {took}")


def settle_end(summary: SettleSummary) -> Iterator[Block]:
    """Whether the runs settled, further notes, and how to make a program use the cache."""
    style = "bold red" if summary.failed else "bold" if summary.settled else "bold yellow"
    yield plain(f"\n{settle_sentence(summary)}", style)
    yield from (plain(missed, "bold yellow") for missed in summary.missed)
    yield from (plain(note, "yellow") for note in summary.notes)
    if summary.environment:
        yield plain("\nPrograms find the warmed caches with:")
        for name, value in summary.environment:
            yield plain(f"export {name}={shlex.quote(value)}")


def settle_sentence(summary: SettleSummary) -> str:
    """How the runs of a command ended, in one sentence."""
    last = summary.runs
    if summary.failed:
        where = f" in run {last}" if last else ""
        return f"it failed{where}: {bare(summary.failed)}"
    if not summary.settled:
        named = "; ".join(filter(None, map(_names, summary.restless)))
        which = f": {named}" if named else ""
        return f"it never settled: run {last} still added {growth_words(summary.restless)}{which}"
    if not summary.growth:
        runs = "run 1" if last == 1 else f"{last} runs"
        return f"nothing new was written in {runs}{'' if summary.missed else ': it was warm already'}"
    added = f"{growth_words(summary.growth)} in all"
    return f"warm after run {last - 1}; nothing new was written in run {last}; {added}"


def _names(one: Growth) -> str:
    more = one.entries - len(one.names)
    rest = f" and {more} more" if one.names and more > 0 else ""
    return f"{', '.join(one.names)}{rest}"


def phase_cells(case: BenchCase) -> Iterator[tuple[str, ...]]:
    """Each phase with its medians, for a table."""
    for name, *medians in case.phases:
        yield (name, *("-" if ns is None else format_duration(ns) for ns in medians))


def checks(cases: Sequence[CheckedCase], means: Sequence[CheckedMeans]) -> Iterator[Block]:
    """The kernels of every target, the geometric mean of each target, and the means of the paper."""
    grid = Grid(
        (
            Column("target", shared=True),
            Column("kernel", whole=True),
            Column("kind", prose=True, spare=1),
            Column("without checks", numeric=True),
            Column("async", numeric=True),
            Column("sync", numeric=True),
        )
    )
    for case in cases:
        if not case.error:
            ratios = map(_checked_ratio, (case.asynchronous, case.sync))
            grid.add(case.target, case.kernel, case.kind, format_duration(case.none_ns or 0), *ratios)
    if means:
        yield grid
        yield ""
    yield from (plain(f"{case.target}: {case.error}", "red") for case in cases if case.error)
    for one in means:
        figures = f"async {one.asynchronous:.2f}x, sync {one.sync:.2f}x of the time without checks"
        yield plain(f"Geometric mean on {one.target}: {figures}.")
    if means:
        low, high = PAPER_ASYNC
        yield plain(
            f"Henriksen's Bounds Checking on GPU (2021), on two GPUs: async {low:.2f}x to {high:.2f}x, "
            f"sync {PAPER_SYNC[0]:.2f}x to {PAPER_SYNC[1]:.2f}x.",
            "dim",
        )


def _checked_ratio(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
