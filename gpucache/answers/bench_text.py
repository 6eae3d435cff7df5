"""Bench and warming by a command, for people: tables, sentences, and bars of block characters.

Owns the layout on a terminal. What a case says in words, and what its bars consist of, is in ``bench_words``.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

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
    SettleRun,
    SettleSummary,
    Spread,
)
from gpucache.answers.bench_words import (
    Bar,
    Look,
    bare,
    bars,
    case_phases,
    caveats,
    growth_words,
    interval_words,
    looks,
    name_of,
    part_words,
    ratio_words,
    remarks,
    times,
    verdict_name,
    verdict_words,
)
from gpucache.answers.grid import Column, Grid, plain
from gpucache.answers.growth import Growth
from gpucache.units import format_duration, printable

_CACHED_PART = (
    "cached part: key, lookup or compile, load, kernels and first launch; what remains of a start, the "
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


def bench(cases: Sequence[BenchCase], *, whole: bool = False) -> Iterator[RenderableType]:
    """A row for each case, and what speaks against its figures; if ``whole``, everything about each."""
    yield _overview(cases)
    if any(case.cached_part for case in cases):
        yield plain(f"\n{_CACHED_PART}", "dim")
    if whole:
        for case in cases:
            yield from _case(case)
    else:
        yield from _short(cases)


def _overview(cases: Sequence[BenchCase]) -> Grid:
    """A row for each case, and below it one for each arm beside the cold and the warm one."""
    grid = Grid(
        (
            Column("program", prose=True),
            Column("variant"),
            Column("target", shared=True),
            Column("cold", numeric=True, spare=1),
            Column("warm", numeric=True, spare=1),
            Column("ratio", numeric=True),
            Column("surely within", numeric=True, spare=3),
            Column("cached part", numeric=True, spare=2),
            Column("its ratio", numeric=True),
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
    """The ratio of starts with its interval, then what becomes of the part that a cache can change."""
    yield times(ratio.median, ratio) if ratio else "-"
    yield interval_words(ratio) if ratio and of and of.runs >= FEWEST_PAIRS else ""
    yield part_words(part) if part else ""
    yield times(part.ratio.median, part.ratio) if part else ""


def _short(cases: Sequence[BenchCase]) -> Iterator[RenderableType]:
    """What the table cannot say: why a case is not faster, and what else speaks against its figures."""
    said: dict[tuple[str, str], list[BenchCase]] = {}
    for case in cases:
        if case.reason:
            why = f"{verdict_name(case.verdict)}: {bare(case.reason)}"
            said.setdefault((why, _STYLES[BenchVerdict(case.verdict)]), []).append(case)
    for case in cases:
        for caveat in caveats(case):
            said.setdefault((caveat, ""), []).append(case)
    yield from (Text(),) if said else ()
    for (sentence, style), among in said.items():
        named = "" if len(among) == len(cases) else f"{', '.join(map(name_of, among))}: "
        yield plain(f"{named}{sentence}", style)
    if any(case.cold for case in cases):
        yield plain("\n-v shows the phases, the spread and more of each", "dim")


def _case(case: BenchCase) -> Iterator[RenderableType]:
    yield plain(f"\n{printable(name_of(case), None)}", "bold")
    yield plain(verdict_words(case), _STYLES[BenchVerdict(case.verdict)])
    drawn = bars(case)
    if drawn:
        yield Text()
        if len(case.phases) > 1:
            yield Group(_phases(case), Text())
        yield Group(_starts(drawn), Text(), _Bars(drawn, looks(case_phases([case]))), Text())
    yield from (plain(remark) for remark in remarks(case))
    if case.redirects:
        yield plain("kept apart from your own caches by, for a folder DIR of each start's own:", "dim")
        yield from (plain(f"  {name}={value}", "dim") for name, value in case.redirects)


def _phases(case: BenchCase) -> RenderableType:
    grid = Grid((Column("phase", whole=True), Column("cold", numeric=True), Column("warm", numeric=True)))
    for name, cold, warm in case.phases:
        grid.add(name, _duration(cold), _duration(warm))
    if case.cold and case.warm:
        totals = (format_duration(spread.median_ns) for spread in (case.cold, case.warm))
        grid.add(*(plain(text, "bold") for text in ("total", *totals)))
    return grid


def _starts(drawn: Sequence[Bar]) -> RenderableType:
    figures = ("median", "lowest", "highest", "starts", "as fast as cold")
    grid = Grid((Column("start", whole=True), *(Column(name, numeric=True) for name in figures)))
    for bar in drawn:
        spread = bar.spread
        durations = (spread.median_ns, spread.low_ns, spread.high_ns)
        alone = "1x" if bar.arm == Arm.COLD else "-"
        ratio = alone if bar.ratio is None else ratio_words(bar.ratio)
        grid.add(bar.arm, *map(format_duration, durations), str(spread.runs), ratio)
    return grid


@dataclass(frozen=True, slots=True)
class _Bars:
    """A line for each arm, all drawn to one scale, and below them what the characters stand for."""

    drawn: tuple[Bar, ...]
    shown_as: Mapping[str, Look]

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        labels = max(len(bar.arm) for bar in self.drawn) + 2
        ends = max(len(format_duration(bar.spread.median_ns)) for bar in self.drawn) + 1
        cells = max(min(options.max_width, WIDEST) - labels - ends, 8)
        longest = max(max(bar.spread.median_ns for bar in self.drawn), 1)
        seen: set[str] = set()
        for bar in self.drawn:
            line = Text(f"{bar.arm:<{labels}}", no_wrap=True, overflow="crop")
            shares = _shares([part for _, part in bar.parts], bar.spread.median_ns / longest * cells)
            for (phase, _part), share in zip(bar.parts, shares, strict=True):
                if share:
                    seen.add(phase)
                    line.append(self._mark(phase, options) * share, self.shown_as[phase].colour)
            line.append(f" {format_duration(bar.spread.median_ns)}")
            yield line
        yield from self._legend(seen, options)

    def _mark(self, phase: str, options: ConsoleOptions) -> str:
        return self.shown_as[phase].letter if options.ascii_only else self.shown_as[phase].block

    def _legend(self, seen: set[str], options: ConsoleOptions) -> Iterator[RenderableType]:
        if len(self.shown_as) < 2:
            return
        line = Text()
        for phase in (phase for phase in self.shown_as if phase in seen):
            if line and len(line) + len(phase) + 4 > options.max_width:
                yield line
                line = Text()
            line.append("  " if line else "")
            line.append(self._mark(phase, options), self.shown_as[phase].colour)
            line.append(f" {phase}")
        yield line
        unseen = [phase for phase in self.shown_as if phase not in seen]
        if unseen:
            yield plain(f"too short to be drawn: {', '.join(unseen)}", "dim")


def _shares(parts: Sequence[float], cells: float) -> list[int]:
    """Whole cells for each part, shared out by the largest remainders; together they get at least one."""
    total, whole = sum(parts), max(round(cells), 1)
    exact = [part / total * whole if total else 0 for part in parts]
    shares = [int(share) for share in exact]
    behind = sorted(range(len(parts)), key=lambda index: shares[index] - exact[index])
    for index in behind[: whole - sum(shares)]:
        shares[index] += 1
    return shares


def settle(runs: Iterable[SettleRun], summary: SettleSummary) -> Iterator[RenderableType]:
    """Each run of a command with what it added, then how it ended."""
    yield from map(settle_run, runs)
    yield from settle_end(summary)


def settle_run(run: SettleRun) -> RenderableType:
    """What one run added to which cache, and how long it took."""
    took = format_duration(run.duration_ns)
    if run.error:
        return plain(f"run {run.number}: failed after {took}", "red")
    return plain(f"run {run.number}: {growth_words(run.growth)}; {took}")


def settle_end(summary: SettleSummary) -> Iterator[RenderableType]:
    """Whether the runs came to rest, what is worth knowing, and what makes a program use it."""
    style = "bold red" if summary.failed else "bold" if summary.settled else "bold yellow"
    yield plain(f"\n{settle_sentence(summary)}", style)
    yield from (plain(missed, "bold yellow") for missed in summary.missed)
    yield from (plain(note, "yellow") for note in summary.notes)
    if summary.environment:
        yield plain("\nPrograms find what was warmed with:")
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


def _duration(duration_ns: int | None) -> str:
    return "-" if duration_ns is None else format_duration(duration_ns)


def checks(cases: Sequence[CheckedCase], means: Sequence[CheckedMeans]) -> Iterator[RenderableType]:
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
        yield Text()
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
