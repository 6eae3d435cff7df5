"""Outcomes as tables and sentences for people."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from gpucache.answers.entries import Location
from gpucache.answers.evict import EvictOutcome, EvictSummary, Foreseen, Removal
from gpucache.answers.export import Exported
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked, Finding, VerifySummary
from gpucache.answers.warm import WarmOutcome, WarmResult, WarmSummary
from gpucache.keys import Difference
from gpucache.model import Device
from gpucache.render.grid import SIZE, Block, Column, Grid, one_line, plain
from gpucache.units import format_count, format_duration, format_list, format_size, printable

_KEY = re.compile(r"[0-9a-f]{12,}(-\d+)?")
LOG_LINES = 20
ROWS_SHOWN = 200
TARGETS_SHOWN = 2
NAMED = 3
"""How many items that share a reason are named."""
_ALIKE = (Verdict.NEVER_BUILT, Verdict.EVICTED)
"""Verdicts that say all that matters, because the rest of their reasons is only a name or an instant."""
_STYLES = {
    WarmResult.HIT: "green",
    WarmResult.BUILT: "cyan",
    WarmResult.FAILED: "bold red",
    WarmResult.MISSING: "yellow",
    WarmResult.SKIPPED: "dim",
    WarmResult.POISONED: "red",
    WarmResult.INTERRUPTED: "yellow",
}


def devices(rows: Sequence[Device], *, whole: bool = False) -> Iterator[Block]:
    """Every target that can be named, then what is missing and why, in sentences; toolchains if ``whole``."""
    here = [row for row in rows if row.target is not None and row.present]
    named = [row for row in rows if row.target is not None and not row.present]
    grid = Grid((Column("target"), Column("device", spare=1), Column("driver", spare=2)))
    for row in here:
        name = row.name if row.available else f"{row.name} (not available)"
        grid.add(str(row.target), name, row.driver_version)
    if here:
        yield grid
    for row in here if whole else ():
        yield plain(f"\n{row.target}", "bold")
        for label, value in row.toolchain.fields if row.toolchain else ():
            yield plain(f"  {label}: {value}")
    if named:
        real = [str(row.target) for row in named if "compute_" not in str(row.target)]
        yield plain(f"\n{named[0].detail}; each of these can be a --target:")
        yield plain(f"  {' '.join(real)}")
        if len(real) < len(named):
            yield plain("and cuda:compute_N with the same numbers, for PTX.")
    for row in rows:
        if not row.available:
            yield plain(f"\n{row.target or row.name}: {row.detail}", "yellow")


def warm(
    outcomes: Sequence[WarmOutcome], summary: WarmSummary, *, apart: str = "variant", whole: bool = False
) -> Iterator[Block]:
    """A row for each item, the compiler's words for each failure (all only if ``whole``), and the sum.

    ``apart`` heads the column of what tells builds of one program apart.
    """
    grid = Grid(
        (
            Column("program"),
            Column(apart, prose=True, spare=1),
            Column("target", shared=True),
            Column("result", whole=True),
            Column("compile", numeric=True, spare=2),
            Column(SIZE, numeric=True, spare=3),
        ),
        every=whole,
    )
    for outcome in outcomes:
        took = "" if outcome.compile_ns is None else format_duration(outcome.compile_ns)
        grid.add(
            outcome.program,
            outcome.variant,
            outcome.target,
            plain(outcome.result.value, _STYLES[outcome.result]),
            f"saves {took}" if took and outcome.result is WarmResult.HIT else took,
            "" if outcome.size_bytes is None else format_size(outcome.size_bytes),
        )
    yield grid
    yield from _warm_reasons(outcomes, whole=whole)
    yield plain(f"\n{warm_sentence(summary)}", "bold")


def warm_sentence(summary: WarmSummary) -> str:
    """The counts that are not zero, in words."""
    parts = [f"{count} {result.value}" for result, count in summary.counts.items() if count]
    total = f"; {format_duration(summary.compile_ns)} of compiling" if summary.compile_ns else ""
    return f"{', '.join(parts) or 'nothing to do'}; {format_size(summary.size_bytes)} in all{total}"


def _beginning(log: str, *, whole: bool) -> str:
    """The first lines of a compiler's log, which name the first errors; the rest follows from them."""
    lines = log.splitlines()
    if whole or len(lines) <= LOG_LINES:
        return log
    more = format_count(len(lines) - LOG_LINES, "more line")
    return "\n".join([*lines[:LOG_LINES], f"... and {more}; -v shows them"])


def _warm_reasons(outcomes: Sequence[WarmOutcome], *, whole: bool) -> Iterator[Block]:
    """One sentence for all items with the same reason, which are named up to a few unless ``whole``."""
    groups: dict[tuple[WarmResult, str, str], list[WarmOutcome]] = {}
    for outcome in outcomes:
        if outcome.reason and outcome.result is not WarmResult.BUILT:
            log = outcome.log if outcome.result is WarmResult.FAILED else ""
            alike = outcome.verdict if outcome.verdict in _ALIKE else outcome.reason
            groups.setdefault((outcome.result, str(alike), log), []).append(outcome)
    if groups:
        yield plain("")
    for (result, why, log), same in groups.items():
        for one in same if whole else same[: len(same) == 1]:
            yield one_line(f"{_item(one)}: {result.value}: {one.reason}", _STYLES[result])
        if len(same) > 1 and not whole:
            programs = list(dict.fromkeys(one.program for one in same))
            named = format_list(programs, NAMED)
            yield one_line(f"{len(same)} {result.value}: {why}: {named}; -v tells of each", _STYLES[result])
        if log:
            yield plain(_beginning(log, whole=whole))
    empty = [_item(one) for one in outcomes if one.lacks_kernels]
    if empty:
        named = format_list(empty, len(empty) if whole else NAMED)
        yield plain(
            f"\nno kernel came out of {named}; name the instances of a template with --name-expression",
            "yellow",
        )


def _item(one: WarmOutcome) -> str:
    variant = f" [{one.variant}]" if one.variant else ""
    where = f" for {one.target}" if one.target else ""
    return printable(f"{one.program}{variant}{where}", None)


def comparison(found: Sequence[tuple[str, Difference]], left: str, right: str) -> Iterator[Block]:
    """The fields that two machines do not share, each of them once and with the targets that have it."""
    if not found:
        yield plain("Nothing tells them apart: both machines can share a cache.", "green")
        return
    targets: dict[Difference, list[str]] = {}
    for target, item in found:
        targets.setdefault(item, []).append(target)
    for item, own in targets.items():
        yield plain(f"{item.label}: {format_list(own, TARGETS_SHOWN)}", "bold")
        for name, value in ((left, item.left), (right, item.right)):
            yield plain(f"  {name}: {'none' if value is None else value or '(empty)'}")


def verify(outcomes: Sequence[Checked], summary: VerifySummary, *, whole: bool = False) -> Iterator[Block]:
    """A row for each finding, then what could not be told, then the sum; first sound entries if ``whole``."""
    for outcome in outcomes if whole else ():
        if outcome.counts and not outcome.findings and not outcome.unchecked:
            yield plain(f"{_brief(outcome.entry)}: sound", "green")
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    if findings:
        caches = len({finding.cache for finding in findings}) > 1
        grid = Grid(
            (
                Column("cache", whole=True, shared=True),
                Column("entry", whole=True),
                Column("finding", whole=True),
                Column("program", prose=True),
                Column("what", prose=True),
            )
        )
        for finding in findings[:ROWS_SHOWN]:
            detail = f"{finding.detail} ({_mended(finding)})" if finding.repaired else finding.detail
            style = "red" if finding.kind.wrong else "yellow"
            grid.add(
                finding.cache if caches else "",
                _brief(finding.entry),
                plain(finding.kind.value, style),
                finding.program,
                detail,
            )
        yield grid
        yield from _more(len(findings), "finding")
    notes = [f"{_brief(outcome.entry)}: {note}" for outcome in outcomes for note in outcome.notes]
    yield from (plain(note, "dim") for note in notes[:ROWS_SHOWN])
    yield from _more(len(notes), "note")
    yield from _unchecked(outcomes)
    repaired = f", {summary.repaired} repaired" if summary.repaired else ""
    unchecked = f", {len(summary.unchecked)} not checked" if summary.unchecked else ""
    said = whole or any(one.findings or one.notes or one.unchecked for one in outcomes)
    gap = "\n" if said else ""
    yield plain(
        f"{gap}{summary.checked} checked, {_sound(summary)}, "
        f"{format_count(summary.findings, 'finding')}{repaired}{unchecked}{_unread(summary.unread)}",
        "bold",
    )


def _sound(summary: VerifySummary) -> str:
    """How many entries have no fault, and of how many of these no checksum says so."""
    if not summary.without_checksum:
        return f"{summary.sound} sound"
    return f"no fault found in {summary.sound} ({summary.without_checksum} of them without a checksum)"


def _unread(sentences: Sequence[str]) -> str:
    """How much of the caches the sums leave out."""
    return f", {format_count(len(sentences), 'place')} not read" if sentences else ""


def _mended(finding: Finding) -> str:
    """What a repair did: our own store keeps what is wrong, for whoever wants to look into it."""
    if finding.cache != "gpucache":
        return "repaired"
    return "moved to quarantine" if finding.kind.wrong else "removed"


def _unchecked(outcomes: Iterable[Checked]) -> Iterator[Block]:
    """What could not be checked, once for all that share the reason."""
    why: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.unchecked:
            why.setdefault(outcome.unchecked, []).append(_brief(outcome.entry))
    for reason, named in why.items():
        yield plain(f"{format_list(named, NAMED)}: not checked: {reason}", "yellow")


class Evictions:
    """What people are told of outcomes of evict; of a million of them a few are kept, all if ``whole``."""

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._shown: list[Removal] = []
        self._why: dict[str, list[str]] = {}

    def add(self, outcome: EvictOutcome) -> None:
        """Keep what is told of an outcome."""
        if outcome.kept is not None:
            self._why.setdefault(outcome.kept.reason, []).append(outcome.removal.entry.key[:12])
        elif self._whole or len(self._shown) < ROWS_SHOWN:
            self._shown.append(outcome.removal)

    def plan(self, foreseen: Foreseen) -> Iterator[Block]:
        """What would be removed, in that order, and why; all rows and columns if ``whole``."""
        if self._shown:
            yield self._rows()
            yield from _more(0 if self._whole else foreseen.would_remove, "entry", "entries")
        yield from self._kept("would not be removed", "would not be removed")
        stay_bytes = foreseen.kept_bytes - foreseen.would_free_bytes
        yield plain(
            f"\n{format_count(foreseen.would_remove, 'entry', 'entries')} would go, "
            f"freeing {format_size(foreseen.would_free_bytes)}; "
            f"{foreseen.kept - foreseen.would_remove} would stay ({format_size(stay_bytes)})"
            f"{_unread(foreseen.unread)}",
            "bold",
        )

    def done(self, summary: EvictSummary) -> Iterator[Block]:
        """What was removed, and what stayed and why; each entry that was removed only if ``whole``."""
        for removal in self._shown if self._whole else ():
            one = removal.entry
            where = f" for {one.target}" if one.target else ""
            yield one_line(f"{one.key[:12]} {one.program}{where} was removed: {removal.rule}")
        yield from self._kept("was not removed", "were not removed")
        removed = format_count(summary.removed, "entry", "entries")
        yield plain(
            f"{removed} removed, {format_size(summary.freed_bytes)} freed; "
            f"{summary.kept} stay ({format_size(summary.kept_bytes)}){_unread(summary.unread)}",
            "bold",
        )

    def _rows(self) -> Grid:
        caches = len({removal.entry.cache for removal in self._shown}) > 1
        grid = Grid(
            (
                Column("cache", whole=True, shared=True),
                Column("key", whole=True),
                Column("program"),
                Column("variant", prose=True, spare=1),
                Column("target", shared=True),
                Column(SIZE, numeric=True),
                Column("rule", shared=True),
            ),
            every=self._whole,
        )
        for removal in self._shown:
            one = removal.entry
            grid.add(
                one.cache if caches else "",
                one.key[:12],
                one.program,
                one.variant,
                one.target,
                format_size(one.size_bytes),
                removal.rule,
            )
        return grid

    def _kept(self, one: str, many: str) -> Iterator[Block]:
        """What stayed, once for all that share the reason; all of their keys if ``whole``."""
        for reason, keys in self._why.items():
            named = format_list(keys, len(keys) if self._whole else NAMED)
            yield plain(f"{named} {one if len(keys) == 1 else many}: {reason}", "yellow")


def evict_caches(found: Sequence[tuple[Location, Foreseen]]) -> Iterator[Block]:
    """What would go of each cache, where there are several, the most first."""
    if len(found) < 2:
        return
    grid = Grid(
        (
            Column("cache", whole=True),
            Column("would go", numeric=True),
            Column("freeing", numeric=True),
            Column("would stay", numeric=True),
            Column("place", place=True),
        )
    )
    for place, one in sorted(found, key=lambda pair: (-pair[1].would_free_bytes, pair[0].cache)):
        stay_bytes = one.kept_bytes - one.would_free_bytes
        name = f"{place.cache} ({place.role})" if place.role else place.cache
        grid.add(
            name,
            str(one.would_remove),
            format_size(one.would_free_bytes),
            f"{one.kept - one.would_remove} ({format_size(stay_bytes)})",
            place.root,
        )
    yield ""
    yield grid


def _brief(entry: str) -> str:
    """A key as people see it, or the last part of a path."""
    return entry[:12] if _KEY.fullmatch(entry) else PurePath(entry).name[-32:] or entry


def _more(number: int, one: str, many: str | None = None) -> Iterator[Block]:
    """A sentence about the rows that were left out of a table, as nobody reads one to its end."""
    if number > ROWS_SHOWN:
        left_out = format_count(number - ROWS_SHOWN, f"more {one}", f"more {many or one + 's'}")
        yield plain(f"and {left_out}; --json has all")


def exported(one: Exported) -> Iterator[Block]:
    """What was written, and from what."""
    entries = format_count(one.entries, "entry", "entries")
    yield plain(f"{one.file}: {entries} for {one.cache}, {format_size(one.size_bytes)}", "bold")
    if one.key:
        yield plain(f"  key: {one.key}")
    for file, count in one.sources:
        yield plain(f"  {file}: {count}")
    yield from (plain(note, "yellow") for note in one.notes)
