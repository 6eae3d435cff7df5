"""Outcomes of bench, of the cost of checks inside kernels, and of warming by a command; and these in words.

Plots have their words and figures from here.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, log
from typing import Annotated, NamedTuple

from gpucache.answers.console import Block, Column, Grid, plain
from gpucache.answers.entries import Growth
from gpucache.json_keys import Duration, OrNull, json_keys
from gpucache.units import format_count, format_duration, format_size, printable

FEWEST_FOR_OUTLIERS = 8
"""Outliers are counted only among at least this many durations."""
FEWEST_PAIRS = 5
"""With four pairs, noise puts all on one side in one run of sixteen; with five, in one of thirty-two."""


CACHED = ("key", "lookup", "compile", "load", "kernels", "first launch")
"""The phases of a start that a cache can change, in their order."""
PHASES = ("process start", "context", *CACHED)
"""All phases of a program's start, in their order. A command is timed as a whole."""
WHOLE = "whole start"
"""The only part of a start whose phases are not known."""


class Arm(StrEnum):
    """The caches that a start finds filled.

    A peer's own cache, warm and nothing else, is an arm as well, by the name of the peer.
    """

    COLD = "cold"
    """Every cache is empty."""
    WARM = "warm"
    """The benchmark's own caches contain everything."""
    AS_IS = "as-is"
    """The content of the user's own caches."""
    DRIVER = "driver"
    """Only the driver's cache is warm."""


class BenchVerdict(StrEnum):
    """The result of a comparison."""

    FASTER = "faster"
    """Warm starts are faster: the whole interval of the ratio is above 1."""
    NO_DIFFERENCE = "no-difference"
    """Warm starts are not faster; the smallest difference that so many pairs would show follows."""
    UNDECIDED = "undecided"
    """There are too few pairs to tell."""
    DEGRADED = "degraded"
    """The figures are unreliable; the reason follows."""
    NO_CACHE = "no-cache"
    """There is nothing to compare: the command wrote into no cache that can be moved."""
    FAILED = "failed"
    """A start failed; the reason follows."""


@json_keys("arm total_ns phases hit missed growth output error")
@dataclass(frozen=True, slots=True)
class Sample:
    """One start, in a fresh process."""

    arm: Annotated[str, "The caches that it finds filled: cold, warm, as-is, driver, or a peer of --against."]
    phases: Annotated[tuple[tuple[str, Duration], ...], "How long each part took, in milliseconds."] = ()
    hit: Annotated[bool, "Whether our own cache answered."] = False
    missed: Annotated[OrNull, "Why our own cache missed, if it was queried."] = ""
    error: Annotated[OrNull, "Why it failed."] = ""
    growth: Annotated[tuple[Growth, ...], "The entries that it wrote, by cache."] = ()
    output: Annotated[OrNull, "SHA-256 of its output, with --same-output."] = ""
    cpu_ns: Annotated[int, "CPU time of a command, without the system's; 0 where that was not taken."] = 0

    @property
    def total_ns(self) -> int:
        """How long it took."""
        return sum(duration for _, duration in self.phases)

    @property
    def cached_ns(self) -> int | None:
        """The sum of the phases that a cache can change; None if no such phase was timed."""
        durations = [duration for name, duration in self.phases if name in CACHED]
        return sum(durations) if durations else None


@dataclass(frozen=True, slots=True)
class Spread:
    """How long some starts took, in milliseconds."""

    median_ns: Annotated[int, "The median start."]
    low_ns: Annotated[int, "The fastest."]
    high_ns: Annotated[int, "The slowest."]
    runs: Annotated[int, "How many starts there were."]
    outliers: Annotated[int, "The number of outliers among them."] = 0

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

    With fewer than five pairs the interval is from the lowest to the highest ratio.
    """

    median: Annotated[float, "The median of the pairs."]
    low: Annotated[float, "The low end of its 95 % interval."]
    high: Annotated[float, "The high end."]


@dataclass(frozen=True, slots=True)
class CachedPart:
    """The phases of starts that a cache can change: all but starting the process and making a context."""

    cold: Annotated[Spread, "With nothing cached."]
    warm: Annotated[Spread, "With everything cached, or as the arm finds it."]
    ratio: Annotated[Ratio, "Cold divided by warm."]


@json_keys("arm spread.* ratio cached_part reason")
@dataclass(frozen=True, slots=True)
class ArmResult:
    """The starts of one arm."""

    arm: Annotated[str, "The caches that they find filled: as-is, driver, or a peer of --against."]
    spread: Spread
    ratio: Annotated[
        Ratio | None, "Cold starts divided by these; null for cold ones and for equal caches."
    ] = None
    reason: Annotated[str, "Why the figures are unreliable; empty if they are not."] = ""
    cached_part: Annotated[CachedPart | None, "That of the phases that a cache can change."] = None
    phases: tuple[tuple[str, int], ...] = ()
    """The median of each phase, in the order of a start; a command has no phases."""
    totals_ns: Annotated[tuple[int, ...], "Every start, outliers included."] = ()

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """The phases, scaled so that they add up to the median start; at least one part."""
        whole = sum(duration for _, duration in self.phases)
        if len(self.phases) < 2 or not whole:
            return ((WHOLE, self.spread.median_ns),)
        return tuple((name, round(ns * self.spread.median_ns / whole)) for name, ns in self.phases)


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The cost of warming, and the time that it saves."""

    warming_ns: Annotated[int, "The cost of warming."]
    saving_ns: Annotated[int, "The time that each warm start saves."]
    starts: Annotated[int, "After how many starts it has paid."]


class Phase(NamedTuple):
    """A part of a start."""

    phase: Annotated[str, "Its name, such as compile."]
    cold_ns: Annotated[int | None, "Its median in cold starts."]
    warm_ns: Annotated[int | None, "Its median in warm starts."]


@json_keys(
    "program target variant verdict reason cold warm ratio cached_part phases arms break_even "
    "notes=every_note growth interrupted redirects samples"
)
@dataclass(frozen=True, slots=True)
class BenchCase:
    """A program on a target, or a command, cold against warm."""

    program: Annotated[str, "The program's name, or the command."]
    target: Annotated[str, "The target; empty for a command."]
    verdict: Annotated[BenchVerdict, "The result of the comparison."]
    reason: Annotated[str, "Why it is not faster; empty where it is."] = ""
    variant: Annotated[str, "The difference from other builds of its program, such as T=float."] = ""
    starts: tuple[ArmResult, ...] = ()
    """The figures of each arm: cold, warm, then the others; empty if there are none."""
    break_even: Annotated[BreakEven | None, "After how many starts warming has paid."] = None
    caveats: tuple[str, ...] = ()
    """The limits of the figures, a sentence each: binaries that were not loaded, caches that were not
    redirected."""
    notes: tuple[str, ...] = ()
    growth: Annotated[tuple[Growth, ...], "The entries that a cold start writes, by cache."] = ()
    interrupted: Annotated[bool, "Whether it was stopped before all was measured."] = False
    redirects: Annotated[tuple[tuple[str, str], ...], "The variables that put caches elsewhere."] = ()
    samples: Annotated[tuple[Sample, ...], "Every start, in order."] = field(default=(), repr=False)

    @property
    def cold(self) -> Spread | None:
        """Starts with nothing cached."""
        return self.starts[0].spread if self.starts else None

    @property
    def warm(self) -> Spread | None:
        """Starts with everything cached."""
        return self.starts[1].spread if self.starts else None

    @property
    def ratio(self) -> Ratio | None:
        """Cold divided by warm."""
        return self.starts[1].ratio if self.starts else None

    @property
    def cached_part(self) -> CachedPart | None:
        """The same for the part of a start that a cache can change; null for a command."""
        return self.starts[1].cached_part if self.starts else None

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The parts of a start, in order."""
        cold, warm = (dict(one.phases) for one in self.starts[:2]) if self.starts else ({}, {})
        return tuple(
            Phase(name, cold.get(name), warm.get(name)) for name in PHASES if name in {**cold, **warm}
        )

    @property
    def arms(self) -> tuple[ArmResult, ...]:
        """The other starts that were timed."""
        return self.starts[2:]

    @property
    def every_note(self) -> tuple[str, ...]:
        """Notes, a sentence each."""
        return (*self.caveats, *self.notes)


@json_keys("cases counts.* fail_below below")
@dataclass(frozen=True, slots=True)
class BenchSummary:
    """The number of cases by verdict."""

    cases: Annotated[int, "How many there are."]
    counts: Annotated[dict[BenchVerdict, int], "Cases whose verdict is"]
    fail_below: Annotated[float | None, "The limit of --fail-below."] = None
    below: Annotated[tuple[str, ...], "The results below it, a sentence each."] = ()


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

    number: Annotated[int, "Which run, from 1."]
    duration_ns: Annotated[int, "How long it took."]
    growth: Annotated[tuple[Growth, ...], "The entries that it added, by cache."] = ()
    error: Annotated[OrNull, "Why it failed."] = ""
    cpu_ns: Annotated[int, "CPU time, without the system's."] = 0


@json_keys("runs settled failed added=growth restless environment missed notes")
@dataclass(frozen=True, slots=True)
class SettleSummary:
    """The entries that the runs of a command added, and whether the last run added none."""

    runs: Annotated[int, "How many runs there were."]
    settled: Annotated[bool, "Whether the last run added nothing."]
    failed: Annotated[OrNull, "Why a run failed."]
    growth: Annotated[tuple[Growth, ...], "All that was added to each cache."]
    restless: Annotated[tuple[Growth, ...], "The entries that the last run still added."] = ()
    environment: Annotated[tuple[tuple[str, str], ...], "The variables that --into needs."] = ()
    missed: Annotated[tuple[str, ...], "Caches that were not moved, or that nothing was warmed; exit 3."] = ()
    notes: Annotated[tuple[str, ...], "Notes, a sentence each."] = ()


PAPER_ASYNC = (1.04, 1.11)
PAPER_SYNC = (1.61, 1.66)
"""Geometric means over 41 benchmarks on two GPUs: Henriksen, Bounds Checking on GPU, 2021."""


@json_keys("target kernel kind runs none_ns sync async=asynchronous error")
@dataclass(frozen=True, slots=True)
class CheckedCase:
    """A kernel of the suite on one target, without checks and with them."""

    target: str
    kernel: Annotated[str, "The kernel; empty where the target failed."] = ""
    kind: Annotated[str, "Its typical feature."] = ""
    runs: Annotated[int, "Samples of each mode."] = 0
    none_ns: Annotated[int | None, "The median without checks."] = None
    sync: Annotated[Ratio | None, "The mode sync divided by none."] = None
    asynchronous: Annotated[Ratio | None, "The mode async divided by none."] = None
    error: Annotated[str, "Why the target was not timed; empty where it was."] = ""


@json_keys("target sync async=asynchronous")
@dataclass(frozen=True, slots=True)
class CheckedMeans:
    """By which factor kernels take longer with checks."""

    target: str
    sync: Annotated[float, "In the mode sync."]
    asynchronous: Annotated[float, "In the mode async."]


class CheckedSummary(NamedTuple):
    """The cost of checks, next to their cost in Henriksen's paper of 2021."""

    means: Annotated[tuple[CheckedMeans, ...], "The geometric mean over the kernels of each target."]
    paper_sync: Annotated[tuple[float, ...], "The means in Henriksen's paper of 2021, sync."] = PAPER_SYNC
    paper_async: Annotated[tuple[float, ...], "The same for async."] = PAPER_ASYNC


def summarise_checked(cases: Iterable[CheckedCase]) -> tuple[CheckedMeans, ...]:
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


_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def name_of(*cases: BenchCase) -> str:
    """The names of cases: programs with their target, or commands."""
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
    """The verdict with the ratio or the reason for it."""
    if case.verdict in (BenchVerdict.FAILED, BenchVerdict.DEGRADED, BenchVerdict.NO_CACHE):
        return f"{case.verdict}: {bare(case.reason)}"
    figures = (ratio_words(case.ratio) if case.ratio else "", bare(case.reason))
    return f"{verdict_name(case.verdict)}: {'; '.join(filter(None, figures))}"


def bare(text: str) -> str:
    """Text without terminal colours, which compilers leave in their output."""
    return _COLOURS.sub("", text)


def verdict_name(verdict: BenchVerdict) -> str:
    return verdict.replace("-", " ")


def remarks(case: BenchCase) -> Iterator[str]:
    changed = cached_words(case)
    if changed:
        yield changed
    pays = break_even_words(case)
    if pays:
        yield pays
    if case.growth:
        yield f"a cold start writes {growth_words(case.growth)}"
    yield from caveats(case)
    far = [one for one in case.starts if one.spread.outliers]
    if far:
        yield _outlier_words(far)
    yield from case.notes


def caveats(case: BenchCase) -> Iterator[str]:
    """The omissions and doubts of the figures, a sentence each."""
    yield from (f"{one.arm}: {one.reason}" for one in case.arms if one.reason)
    yield from case.caveats


def _outlier_words(found: Sequence[ArmResult]) -> str:
    """How many starts are far from the others; outliers are counted in every figure."""
    parts = [f"{one.spread.outliers} of {one.spread.runs} {one.arm} starts" for one in found]
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
_OF_PAIRS = "ratio: the median of each pair's ratio, so it may differ from that of the two medians"
_STYLES = {
    BenchVerdict.FASTER: "green",
    BenchVerdict.NO_DIFFERENCE: "",
    BenchVerdict.UNDECIDED: "",
    BenchVerdict.DEGRADED: "yellow",
    BenchVerdict.NO_CACHE: "yellow",
    BenchVerdict.FAILED: "red",
}


def bench(cases: Sequence[BenchCase], *, whole: bool = False) -> Iterator[Block]:
    """A row for each case, and the caveats of its figures; if ``whole``, everything about each."""
    yield _overview(cases)
    if any(case.cached_part for case in cases):
        yield plain(f"\n{_CACHED_PART}", "dim")
    if any(map(_is_apart, cases)):
        yield plain(f"\n{_OF_PAIRS}", "dim")
    if whole:
        for case in cases:
            yield from _case(case)
    else:
        yield from _short(cases)


def _is_apart(case: BenchCase) -> bool:
    """Whether the ratio differs by a tenth from the quotient of the two medians printed next to it."""
    if case.ratio is None or case.cold is None or case.warm is None:
        return False
    return not 0.9 < case.ratio.median * case.warm.median_ns / max(case.cold.median_ns, 1) < 1.1


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
    """Sentences that differ only in a percentage as one sentence, with the lowest and the highest."""
    shares = sorted(
        (share for one in sentences for share in _SHARE.findall(one)), key=lambda one: int(one[:-2])
    )
    if len(set(sentences)) == 1:
        return sentences[0]
    return _SHARE.sub(f"{shares[0]} to {shares[-1]}", sentences[0])


def _case(case: BenchCase) -> Iterator[Block]:
    yield plain(f"\n{printable(name_of(case), None)}", "bold")
    yield plain(verdict_words(case), _STYLES[BenchVerdict(case.verdict)])
    if case.starts:
        yield ""
        if len(case.phases) > 1:
            yield from (_phases(case), "")
        yield from (_starts(case), "")
    yield from (plain(remark) for remark in remarks(case))
    if case.redirects:
        yield plain("kept apart from your own caches by, for a directory DIR of each start's own:", "dim")
        yield from (plain(f"  {name}={value}", "dim") for name, value in case.redirects)


def _phases(case: BenchCase) -> Block:
    grid = Grid((Column("phase", whole=True), Column("cold", numeric=True), Column("warm", numeric=True)))
    for name, *medians in case.phases:
        grid.add(name, *("-" if ns is None else format_duration(ns) for ns in medians))
    if case.cold and case.warm:
        totals = (format_duration(spread.median_ns) for spread in (case.cold, case.warm))
        grid.add(*(plain(text, "bold") for text in ("total", *totals)))
    return grid


def _starts(case: BenchCase) -> Block:
    named = ("median", "lowest", "highest", "starts", "speed-up by pairs")
    grid = Grid((Column("start", whole=True), *(Column(name, numeric=True) for name in named)))
    for one in case.starts:
        alone = "1x" if one.arm == Arm.COLD else "-"
        figures = map(format_duration, (one.spread.median_ns, one.spread.low_ns, one.spread.high_ns))
        ratio = alone if one.ratio is None else ratio_words(one.ratio)
        grid.add(one.arm, *figures, str(one.spread.runs), ratio)
    return grid


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
