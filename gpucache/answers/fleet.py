"""The results of warm --check for other machines: who would miss what, and the builds that would serve all.

Machines with the same results are one row for people, and so are programs; the JSON has each build once, with
the machines that ask for it. Must not know how a result is found.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from gpucache.answers.grid import (
    NAMED,
    PIPE_WIDTH,
    ROWS_SHOWN,
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
from gpucache.answers.warm import STYLES, WarmOutcome, WarmResult, WarmSummary
from gpucache.errors import ExitCode
from gpucache.json_keys import json_keys
from gpucache.units import format_count, format_list


@json_keys("outcome.* machines")
@dataclass(frozen=True, slots=True)
class FleetOutcome:
    """A build that machines ask for: one for all whose keys agree."""

    outcome: WarmOutcome
    machines: tuple[str, ...]
    """The profiles of the machines that ask for it; empty for a part of a recording that cannot be read."""
    cause: str = ""
    """Why it would miss, in the same words for every program that this happens to."""


@json_keys("profile builds.*")
@dataclass(frozen=True, slots=True)
class FleetMachine:
    """A machine, and how many of its builds came out how."""

    profile: str
    """Its profile."""
    builds: dict[WarmResult, int]
    """Builds that it asks for whose result is"""


@json_keys("command builds machines serves")
@dataclass(frozen=True, slots=True)
class FleetCommand:
    """A command that makes missing builds on one machine."""

    words: tuple[str, ...]
    builds: int
    """How many missing builds it makes."""
    machines: tuple[str, ...]
    """The profiles of the machines whose compilers make them: on any one of these it is run once."""
    serves: int
    """How many machines ask for any of them."""

    @property
    def command(self) -> str:
        """The command for a shell."""
        return shlex.join(self.words)


@json_keys("warm.counts.* remote=warm.remote builds without_sources machines commands send")
@dataclass(frozen=True, slots=True)
class FleetSummary:
    """The machines, and the smallest set of builds that would serve all of them."""

    warm: WarmSummary
    builds: int
    """How many different builds are missing; one may serve several machines."""
    without_sources: int
    """How many of them no command makes, as their recording contains no sources."""
    machines: tuple[FleetMachine, ...]
    """Every machine."""
    commands: tuple[FleetCommand, ...]
    """The commands that make the missing builds."""
    send: str | None = None
    """The command that then sends them to the store of GPUCACHE_REMOTE."""

    @property
    def exit_code(self) -> ExitCode:
        """As that of warm; 3 also if something could not be looked up."""
        code = self.warm.exit_code
        return ExitCode.FINDINGS if code is ExitCode.DONE and self.warm.counts[WarmResult.SKIPPED] else code


def summarise_machines(outcomes: Iterable[FleetOutcome], profiles: Iterable[str]) -> tuple[FleetMachine, ...]:
    """How many builds of each machine came out how."""
    counts: dict[str, Counter[WarmResult]] = {profile: Counter() for profile in profiles}
    same: Counter[tuple[tuple[str, ...], WarmResult]] = Counter()
    for one in outcomes:
        same[one.machines, one.outcome.result] += 1
    for (machines, result), number in same.items():
        for machine in machines:
            counts[machine][result] += number
    return tuple(
        FleetMachine(profile, {result: count[result] for result in WarmResult})
        for profile, count in counts.items()
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """Machines and builds with the same result."""

    machines: Sequence[str]
    targets: str
    """A few of all that the machines ask for."""
    outcomes: Sequence[FleetOutcome]
    """Those of all the machines, whose targets may differ."""
    builds: int
    """How many each of the machines asks for."""

    @property
    def result(self) -> WarmResult:
        return self.outcomes[0].outcome.result

    @property
    def cause(self) -> str:
        return self.outcomes[0].cause

    def programs(self) -> str:
        """A few programs, and how many builds there are."""
        names = list(dict.fromkeys(one.outcome.program for one in self.outcomes))
        if self.builds == 1:
            return named(names[0], "", self.outcomes[0].outcome.variant)
        told = format_list(names, NAMED)
        if self.builds <= NAMED:
            return told
        return f"{format_count(self.builds, 'program' if self.builds == len(names) else 'build')}: {told}"


class _Names:
    """What people call machines: their profiles without directory and suffix if these names differ."""

    def __init__(self, profiles: Sequence[str]) -> None:
        stems = {profile: PurePath(profile).stem for profile in profiles}
        self._short = stems if len({*stems.values()}) == len(stems) else {}

    def of(self, machines: Sequence[str]) -> str:
        """A few machines, and how many there are."""
        told = format_list([self._short.get(one, one) for one in machines], NAMED)
        return told if len(machines) <= NAMED else f"{len(machines)} machines: {told}"


def fleet(outcomes: Sequence[FleetOutcome], summary: FleetSummary, *, whole: bool = False) -> Iterator[Block]:
    """A row for the machines and the programs with the same results, the commands, and the sum.

    With ``whole`` there is a row for each build of each machine.
    """
    names = _Names([machine.profile for machine in summary.machines])
    rows = list(_each(outcomes, summary) if whole else _grouped(outcomes, summary))
    columns = (
        Column("machines", lambda row: f"{names.of(row.machines)}: {row.targets}", shared=True),
        Column("programs", _Row.programs, prose=True),
        Column("result", lambda row: plain(row.result.value, STYLES[row.result]), whole=True),
        Column("reason", lambda row: row.cause, prose=True),
    )
    if rows:
        yield Grid(columns, rows if whole else rows[:ROWS_SHOWN], every=whole)
        yield from () if whole else more_rows(len(rows), "row")
    unread = [one.outcome.reason for one in outcomes if not one.machines]
    idle = [one.profile for one in summary.machines if not any(one.builds.values())]
    if idle:
        unread.append(f"{names.of(idle)}: no device for any recorded program")
    if unread:
        yield plain("")
        yield from (one_line(sentence, "yellow") for sentence in few(unread, whole=whole))
    yield from _commands(summary, names)
    yield plain(f"\n{_sum(summary)}", "bold")


def misses(outcomes: Sequence[FleetOutcome], summary: FleetSummary) -> Iterator[str]:
    """A sentence for each group of machines and programs that would not hit."""
    names = _Names([machine.profile for machine in summary.machines])
    yield from (one.outcome.reason for one in outcomes if not one.machines)
    for row in _grouped(outcomes, summary):
        if row.result is not WarmResult.HIT:
            yield f"{row.programs()} on {names.of(row.machines)}: {row.result}: {row.cause}"


def _sum(summary: FleetSummary) -> str:
    """How many machines would hit everything, and how many builds are missing."""
    machines, hit = summary.machines, WarmResult.HIT
    lacking = sum(any(count for result, count in one.builds.items() if result != hit) for one in machines)
    told = "all would hit" if not lacking else f"{lacking} would not hit everything"
    builds = f"; {format_count(summary.builds, 'build')} would serve all" if summary.builds else ""
    return f"{format_count(len(machines), 'machine')}: {told}{builds}"


def _each(outcomes: Sequence[FleetOutcome], summary: FleetSummary) -> Iterator[_Row]:
    for machine, told in _by_machine(outcomes, summary).items():
        for one in (one for some in told.values() for one in some):
            yield _Row([machine], _targets([one]), [one], 1)


def _grouped(outcomes: Sequence[FleetOutcome], summary: FleetSummary) -> Iterator[_Row]:
    """Machines with the same result for each program, and of these the programs with the same; hits last."""
    answers = _by_machine(outcomes, summary)
    alike: dict[tuple[bool, object], list[str]] = {}
    for machine, told in answers.items():
        programs = {what: Counter(one.outcome.program for one in some) for what, some in told.items()}
        same = frozenset((what, frozenset(counts.items())) for what, counts in programs.items())
        alike.setdefault((all(result is WarmResult.HIT for result, _ in told), same), []).append(machine)
    for _, machines in sorted(alike.items(), key=lambda one: one[0][0]):
        told = {
            what: list({id(one): one for machine in machines for one in answers[machine][what]}.values())
            for what in answers[machines[0]]
        }
        targets = _targets(one for some in told.values() for one in some)
        for what, some in told.items():
            yield _Row(machines, targets, some, len(answers[machines[0]][what]))


def _by_machine(
    outcomes: Iterable[FleetOutcome], summary: FleetSummary
) -> dict[str, dict[tuple[WarmResult, str], list[FleetOutcome]]]:
    """The builds of each machine that asks for any, by result and cause."""
    found: dict[str, dict[tuple[WarmResult, str], list[FleetOutcome]]]
    found = {machine.profile: {} for machine in summary.machines}
    for one in outcomes:
        for machine in one.machines:
            found[machine].setdefault((one.outcome.result, one.cause), []).append(one)
    return {machine: told for machine, told in found.items() if told}


def _targets(outcomes: Iterable[FleetOutcome]) -> str:
    return format_list(list(dict.fromkeys(one.outcome.target for one in outcomes)), NAMED)


def _commands(summary: FleetSummary, names: _Names) -> Iterator[Block]:
    """The commands, each with the machines on one of which it is run."""
    for one in summary.commands:
        builds, serves = format_count(one.builds, "build"), format_count(one.serves, "machine")
        some = f"one of {len(one.machines)} machines, such as " if one.machines[1:] else ""
        yield plain(f"\nOn {some}{names.of(one.machines[:1])}, {builds} for {serves}:")
        yield Shell(one.words)
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
        """As many options with their values on a line as fit."""
        groups: list[list[str]] = []
        for word in self.words:
            if word.startswith("--") or not groups:
                groups.append([])
            groups[-1].append(word)
        line = " "
        for part in map(shlex.join, groups):
            if line.strip() and len(line) + len(part) + 3 > width < PIPE_WIDTH:
                yield [f"{line} \\"]
                line = "   "
            line += f" {part}"
        yield [line]
