"""The results of warm: the outcome of each program for each target."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpucache.answers.grid import NAMED, SIZE, Block, Column, Grid, named, one_line, plain
from gpucache.answers.lookup import Verdict
from gpucache.errors import ExitCode
from gpucache.json_keys import OrNull, json_keys
from gpucache.keys import Difference
from gpucache.units import format_count, format_duration, format_list, format_size, printable

LOG_LINES = 20


class WarmResult(StrEnum):
    """The outcome of one item."""

    HIT = "hit"
    """It was found."""
    BUILT = "built"
    """It was compiled and kept."""
    FAILED = "failed"
    """It could not be compiled or kept; the reason follows."""
    MISSING = "missing"
    """With --check: it was not found; the reason follows."""
    SKIPPED = "skipped"
    """No compiler of this machine compiles it, or no key can be made for it."""
    POISONED = "poisoned"
    """Its compiler crashed or hung twice before; --retry tries it again."""
    INTERRUPTED = "interrupted"
    """The run was stopped before it."""


@json_keys(
    "result program target variant key compile_ns size_bytes verdict reason differences lacks_kernels remote "
    "log"
)
@dataclass(frozen=True, slots=True)
class WarmOutcome:
    """A program for a target, as warm left it."""

    program: str
    """The program's name."""
    target: OrNull
    """The target; null where none could be chosen."""
    result: WarmResult
    """The outcome."""
    variant: str = ""
    """The difference from other builds of the program, such as T=float; with warm --misses the noted key,
    with warm --recording the first digits of its record."""
    key: str | None = None
    """The cache key; null where none could be made."""
    compile_ns: int | None = None
    """How long compiling took, now or when it was built."""
    size_bytes: int | None = None
    """Bytes of its entry, in allocated blocks."""
    reason: str = ""
    """The same as a sentence, or why it failed."""
    log: str = ""
    """The compiler's log, with the program's own file name."""
    verdict: Verdict | None = None
    """Why it was not found."""
    differences: tuple[Difference, ...] = ()
    """The key fields that differ from the nearest entry, with --check."""
    lacks_kernels: bool = False
    """Whether nothing in the artifact can be launched."""
    remote: bool = False
    """Whether a hit came from GPUCACHE_REMOTE."""


@json_keys("counts.* compile_ns size_bytes remote")
@dataclass(frozen=True, slots=True)
class WarmSummary:
    """The number of items by result."""

    counts: dict[WarmResult, int]
    """Items whose result is"""
    compile_ns: int
    """The time spent on compiling."""
    size_bytes: int
    """The total size of the entries."""
    remote: int = 0
    """How many hits came from GPUCACHE_REMOTE."""

    @property
    def exit_code(self) -> ExitCode:
        """3 with any failure or miss, 130 when interrupted, 4 when every item was skipped."""
        counts = self.counts
        if counts[WarmResult.INTERRUPTED]:
            return ExitCode.INTERRUPTED
        if any(counts[bad] for bad in (WarmResult.FAILED, WarmResult.MISSING, WarmResult.POISONED)):
            return ExitCode.FINDINGS
        if counts[WarmResult.SKIPPED] and counts[WarmResult.SKIPPED] == sum(counts.values()):
            return ExitCode.NOTHING_ATTEMPTED
        return ExitCode.DONE


def summarise_warm(outcomes: Iterable[WarmOutcome]) -> WarmSummary:
    """The summary of a run of warm."""
    counts: Counter[WarmResult] = Counter()
    compile_ns = size_bytes = remote = 0
    for outcome in outcomes:
        counts[outcome.result] += 1
        compile_ns += outcome.compile_ns or 0 if outcome.result is WarmResult.BUILT else 0
        size_bytes += outcome.size_bytes or 0
        remote += outcome.remote
    return WarmSummary({result: counts[result] for result in WarmResult}, compile_ns, size_bytes, remote)


ALIKE = (Verdict.NEVER_BUILT, Verdict.EVICTED)
"""Verdicts that say all that matters, because the rest of their reasons is only a name or an instant."""
STYLES = {
    WarmResult.HIT: "green",
    WarmResult.BUILT: "cyan",
    WarmResult.FAILED: "bold red",
    WarmResult.MISSING: "yellow",
    WarmResult.SKIPPED: "dim",
    WarmResult.POISONED: "red",
    WarmResult.INTERRUPTED: "yellow",
}


def warm(
    outcomes: Sequence[WarmOutcome], summary: WarmSummary, *, apart: str = "variant", whole: bool = False
) -> Iterator[Block]:
    """A row for each item, the compiler's log for each failure (all only if ``whole``), and the sum.

    ``apart`` heads the column of the values that distinguish builds of one program.
    """
    columns = (
        Column("program", lambda one: one.program),
        Column(apart, lambda one: one.variant, prose=True, spare=1),
        Column("target", lambda one: one.target, shared=True),
        Column("result", lambda one: plain(one.result.value, STYLES[one.result]), whole=True),
        Column("compile", _took, numeric=True, spare=2),
        Column(SIZE, _size, numeric=True, spare=3),
    )
    yield Grid(columns, outcomes, every=whole)
    yield from _reasons(outcomes, whole=whole)
    yield plain(f"\n{warm_sentence(summary)}", "bold")


def _took(one: WarmOutcome) -> str:
    took = "" if one.compile_ns is None else format_duration(one.compile_ns)
    return f"saves {took}" if took and one.result is WarmResult.HIT else took


def _size(one: WarmOutcome) -> str:
    return "" if one.size_bytes is None else format_size(one.size_bytes)


def warm_sentence(summary: WarmSummary) -> str:
    """The counts that are not zero, in words."""
    far = {WarmResult.HIT: f" ({summary.remote} from GPUCACHE_REMOTE)"} if summary.remote else {}
    counts = summary.counts.items()
    parts = [f"{count} {result.value}{far.get(result, '')}" for result, count in counts if count]
    total = f"; {format_duration(summary.compile_ns)} of compiling" if summary.compile_ns else ""
    return f"{', '.join(parts) or 'nothing to do'}; {format_size(summary.size_bytes)} in all{total}"


def _beginning(log: str, *, whole: bool) -> str:
    """The first lines of a compiler's log, which name the first errors; the rest follows from them."""
    lines = log.splitlines()
    if whole or len(lines) <= LOG_LINES:
        return log
    more = format_count(len(lines) - LOG_LINES, "more line")
    return "\n".join([*lines[:LOG_LINES], f"... and {more}; -v shows them"])


def _reasons(outcomes: Sequence[WarmOutcome], *, whole: bool) -> Iterator[Block]:
    """One sentence for all items with the same reason; it names only a few of them unless ``whole``."""
    groups: dict[tuple[WarmResult, str, str], list[WarmOutcome]] = {}
    for outcome in outcomes:
        if outcome.reason and outcome.result is not WarmResult.BUILT:
            log = outcome.log if outcome.result is WarmResult.FAILED else ""
            alike = outcome.verdict if outcome.verdict in ALIKE else outcome.reason
            groups.setdefault((outcome.result, str(alike), log), []).append(outcome)
    if groups:
        yield plain("")
    for (result, why, log), same in groups.items():
        for one in same if whole else same[: len(same) == 1]:
            yield one_line(f"{_item(one)}: {result.value}: {one.reason}", STYLES[result])
        if len(same) > 1 and not whole:
            programs = format_list(list(dict.fromkeys(one.program for one in same)), NAMED)
            yield one_line(f"{len(same)} {result.value}: {why}: {programs}; -v shows each", STYLES[result])
        if log:
            yield plain(_beginning(log, whole=whole))
    empty = [_item(one) for one in outcomes if one.lacks_kernels]
    if empty:
        items = format_list(empty, len(empty) if whole else NAMED)
        yield plain(
            f"\n{items}: no kernels; if they are templates, name their instances with --name-expression",
            "yellow",
        )


def _item(one: WarmOutcome) -> str:
    return printable(named(one.program, one.target, one.variant), None)
