"""The results of warm: the outcome of each program for each target, here or on other machines.

Machines with the same result are one row for people, and so are programs; the JSON has each build once, with
the machines that ask for it. Must not know how a result is found.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated, NamedTuple

from gpucache.answers.console import (
    NAMED,
    PIPE_WIDTH,
    ROWS_SHOWN,
    SIZE,
    Block,
    Column,
    Grid,
    Pieces,
    few,
    more_rows,
    named,
    one_line,
    plain,
)
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
    """The run was stopped before it was built."""


@json_keys(
    "result program target variant key compile_ns size_bytes verdict reason differences lacks_kernels remote "
    "log"
)
@dataclass(frozen=True, slots=True)
class WarmOutcome:
    """A program for a target, as warm left it."""

    program: str
    target: Annotated[OrNull, "The target; null where none could be chosen."]
    result: WarmResult
    variant: Annotated[
        str, "The difference from the program's other builds, such as T=float, or digits of its record."
    ] = ""
    key: Annotated[str | None, "The cache key; null where none could be made."] = None
    compile_ns: Annotated[int | None, "How long compiling took, now or when it was built."] = None
    size_bytes: Annotated[int | None, "Bytes of its entry, in allocated blocks."] = None
    reason: Annotated[str, "The same as a sentence, or why it failed."] = ""
    log: Annotated[str, "The compiler's log, with the program's own file name."] = ""
    verdict: Verdict | None = None
    differences: Annotated[tuple[Difference, ...], "With --check: how the nearest entry differs."] = ()
    lacks_kernels: Annotated[bool, "Whether nothing in the artifact can be launched."] = False
    remote: Annotated[bool, "Whether a hit came from GPUCACHE_REMOTE."] = False


@json_keys("counts.* compile_ns size_bytes remote")
@dataclass(frozen=True, slots=True)
class WarmSummary:
    """The number of items by result."""

    counts: Annotated[dict[WarmResult, int], "Items whose result is"]
    compile_ns: Annotated[int, "The time spent on compiling."]
    size_bytes: Annotated[int, "The total size of the entries."]
    remote: Annotated[int, "How many hits came from GPUCACHE_REMOTE."] = 0

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
    far = {WarmResult.HIT: f" ({summary.remote} from GPUCACHE_REMOTE)"} if summary.remote else {}
    counts = summary.counts.items()
    parts = [f"{count} {result.value}{far.get(result, '')}" for result, count in counts if count]
    total = f"; {format_duration(summary.compile_ns)} of compiling" if summary.compile_ns else ""
    size = f"; {format_size(summary.size_bytes)} in all" if summary.size_bytes else ""
    return f"{', '.join(parts) or 'nothing to do'}{size}{total}"


def _beginning(log: str, *, whole: bool) -> str:
    """The first lines of a compiler's log, which name the first errors; the rest follows from them."""
    lines = log.splitlines()
    if whole or len(lines) <= LOG_LINES:
        return log
    more = format_count(len(lines) - LOG_LINES, "more line")
    return "\n".join([*lines[:LOG_LINES], f"... and {more}; -v shows them"])


def _reasons(outcomes: Sequence[WarmOutcome], *, whole: bool) -> Iterator[Block]:
    """A sentence for each reason, which names a few of its items, or all if ``whole``."""
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
            yield one_line(f"{len(same)} {result.value}: {why}: {programs}; details: -v", STYLES[result])
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


@json_keys("outcome.* machines")
@dataclass(frozen=True, slots=True)
class FleetOutcome:
    """A build that machines ask for; machines whose keys are equal share one."""

    outcome: WarmOutcome
    machines: Annotated[
        tuple[str, ...], "Profiles of machines that ask for it; empty if the recording is damaged."
    ]
    cause: Annotated[str, "Why it would miss, in the same words for every program that this happens to."] = ""


@json_keys("profile builds.*")
@dataclass(frozen=True, slots=True)
class FleetMachine:
    """A machine, and how many of its builds came out how."""

    profile: Annotated[str, "Its profile."]
    builds: Annotated[dict[WarmResult, int], "Builds that it asks for whose result is"]


@json_keys("command builds machines serves")
@dataclass(frozen=True, slots=True)
class FleetCommand:
    """A command that makes missing builds on one machine."""

    words: tuple[str, ...]
    builds: Annotated[int, "How many missing builds it makes."]
    machines: Annotated[tuple[str, ...], "Profiles of machines whose compilers make them; run it on one."]
    serves: Annotated[int, "How many machines ask for any of them."]

    @property
    def command(self) -> str:
        """The command for a shell."""
        return shlex.join(self.words)


@json_keys("warm.counts.* remote=warm.remote builds without_sources machines commands send")
@dataclass(frozen=True, slots=True)
class FleetSummary:
    """The machines, and the smallest set of builds that would serve all of them."""

    warm: WarmSummary
    machines: Annotated[tuple[FleetMachine, ...], "Every machine."]
    commands: Annotated[tuple[FleetCommand, ...], "The commands that make the missing builds."]
    send: Annotated[str | None, "The command that then sends them to the store of GPUCACHE_REMOTE."] = None

    @property
    def builds(self) -> int:
        """How many different builds are missing; one may serve several machines."""
        return self.warm.counts[WarmResult.MISSING]

    @property
    def without_sources(self) -> int:
        """How many of them no command makes, as their recording contains no sources."""
        return self.builds - sum(one.builds for one in self.commands)

    @property
    def exit_code(self) -> ExitCode:
        """As that of warm; 3 also if something could not be looked up."""
        code = self.warm.exit_code
        return ExitCode.FINDINGS if code is ExitCode.DONE and self.warm.counts[WarmResult.SKIPPED] else code


def summarise_fleet(
    outcomes: Sequence[FleetOutcome],
    profiles: Iterable[str],
    commands: tuple[FleetCommand, ...] = (),
    send: str | None = None,
) -> FleetSummary:
    counts = Counter((machine, one.outcome.result) for one in outcomes for machine in one.machines)
    machines = (FleetMachine(one, {result: counts[one, result] for result in WarmResult}) for one in profiles)
    return FleetSummary(summarise_warm(one.outcome for one in outcomes), tuple(machines), commands, send)


class _Row(NamedTuple):
    machines: str
    targets: str
    programs: str
    result: WarmResult
    cause: str


def fleet(outcomes: Sequence[FleetOutcome], summary: FleetSummary, *, whole: bool = False) -> Iterator[Block]:
    """A row for the machines and the programs with the same results, the commands, and the sum.

    With ``whole`` there is a row for each build of each machine.
    """
    short = _short(summary)
    rows = list(_rows(outcomes, short, whole=whole))
    columns = (
        Column("machines", lambda row: f"{row.machines}: {row.targets}", shared=True),
        Column("programs", lambda row: row.programs, prose=True),
        Column("result", lambda row: plain(row.result.value, STYLES[row.result]), whole=True),
        Column("reason", lambda row: row.cause, prose=True),
    )
    if rows:
        yield Grid(columns, rows if whole else rows[:ROWS_SHOWN], every=whole)
        yield from () if whole else more_rows(len(rows), "row")
    unread = [_unread(one.outcome) for one in outcomes if not one.machines]
    idle = [one.profile for one in summary.machines if not any(one.builds.values())]
    if idle:
        unread.append(f"{_machines(idle, short)}: no device for any recorded program")
    if unread:
        yield plain("")
        yield from (one_line(sentence, "yellow") for sentence in few(unread, whole=whole))
    yield from _commands(summary, short, whole=whole)
    hit = WarmResult.HIT
    lacking = sum(
        any(one.builds[result] for result in WarmResult if result != hit) for one in summary.machines
    )
    machines = format_count(len(summary.machines), "machine")
    told = f"{lacking} of {machines} would miss" if lacking else f"{machines}: all would hit"
    builds = f"; {format_count(summary.builds, 'build')} would fix that" if summary.builds else ""
    yield plain(f"\n{told}{builds}", "bold")


def misses(outcomes: Sequence[FleetOutcome], summary: FleetSummary) -> Iterator[str]:
    """A sentence for each group of machines and programs that would not hit."""
    yield from (_unread(one.outcome) for one in outcomes if not one.machines)
    for row in _rows(outcomes, _short(summary)):
        if row.result is not WarmResult.HIT:
            yield f"{row.programs} on {row.machines}: {row.result}: {row.cause}"


def _short(summary: FleetSummary) -> Mapping[str, str]:
    """The names of machines: their profiles without directory and suffix where that is unambiguous."""
    stems = {one.profile: PurePath(one.profile).stem for one in summary.machines}
    return stems if len({*stems.values()}) == len(stems) else {one: one for one in stems}


def _machines(profiles: Sequence[str], short: Mapping[str, str]) -> str:
    told = format_list([short[one] for one in profiles], NAMED)
    return told if len(profiles) <= NAMED else f"{len(profiles)} machines: {told}"


def _programs(some: Sequence[FleetOutcome]) -> str:
    names = list(dict.fromkeys(one.outcome.program for one in some))
    if len(some) == 1:
        return named(names[0], "", some[0].outcome.variant)
    kind = "program" if len(some) == len(names) else "build"
    count = f"{format_count(len(some), kind)}: " if len(some) > NAMED else ""
    return f"{count}{format_list(names, NAMED)}"


def _unread(outcome: WarmOutcome) -> str:
    place, why = outcome.program, outcome.reason
    return why if place in why else f"{place}: {why}"


def _rows(
    outcomes: Iterable[FleetOutcome], short: Mapping[str, str], *, whole: bool = False
) -> Iterator[_Row]:
    """Machines with the same result of the same programs, hits last; with ``whole`` each build of each."""
    told: dict[str, dict[tuple[WarmResult, str], list[FleetOutcome]]] = {machine: {} for machine in short}
    for one in outcomes:
        for machine in one.machines:
            told[machine].setdefault((one.outcome.result, one.cause), []).append(one)
    alike: dict[tuple[WarmResult, str, object], list[tuple[str, Sequence[FleetOutcome]]]] = {}
    for machine, results in told.items():
        for (result, cause), some in results.items():
            for part in [[one] for one in some] if whole else [some]:
                same = frozenset(Counter(one.outcome.program for one in part).items())
                alike.setdefault((result, cause, len(alike) if whole else same), []).append((machine, part))
    for (result, cause, _), pairs in sorted(
        alike.items(), key=lambda one: not whole and one[0][0] is WarmResult.HIT
    ):
        machines = _machines([machine for machine, _ in pairs], short)
        targets = dict.fromkeys(one.outcome.target for _, some in pairs for one in some)
        yield _Row(machines, format_list([*targets], NAMED), _programs(pairs[0][1]), result, cause)


def _commands(summary: FleetSummary, short: Mapping[str, str], *, whole: bool) -> Iterator[Block]:
    alike: dict[tuple[str, ...], list[FleetCommand]] = {}
    for one in summary.commands:
        alike.setdefault(one.words, []).append(one)
    for words, same in alike.items():
        names = [short[one.machines[0]] for one in same]
        on, serves = names[0], f" for {format_count(same[0].serves, 'machine')}"
        if len(same) > 1:
            more = "" if whole or len(names) <= NAMED else " (-v names them)"
            on, serves = f"each of {format_list(names, len(names) if whole else NAMED)}{more}", ""
        elif same[0].machines[1:]:
            on = f"one of {len(same[0].machines)} machines, such as {on}"
        yield plain(f"\nOn {on}, {format_count(sum(one.builds for one in same), 'build')}{serves}:")
        yield Shell(words)
    if summary.send is not None:
        yield plain("\nThen, to send them to the store:")
        yield Shell(tuple(shlex.split(summary.send)))
    if summary.without_sources:
        yield plain(
            f"\n{format_count(summary.without_sources, 'missing build')} cannot be made of a recording "
            "without sources; record again without --digests-only",
            "yellow",
        )


class Shell(NamedTuple):
    """A command that is copied to a shell: on a terminal a line that is too long is continued."""

    words: tuple[str, ...]

    def lines(self, width: int) -> Iterator[Pieces]:
        """A command line in lines of as many options as fit."""
        marked = (("\0" if word.startswith("--") else " ") + shlex.quote(word) for word in self.words)
        line = " "
        for part in "".join(marked).lstrip().split("\0"):
            if line.strip() and len(line) + len(part) + 3 > width < PIPE_WIDTH:
                yield [f"{line} \\"]
                line = "   "
            line += f" {part}"
        yield [line]
