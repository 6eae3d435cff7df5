"""Sides of one question, measured in turns in one run, so that a busy machine is busy for all of them.

A side is a function that does its work once and returns a ``Sample``. Every round runs each side once, and
each round begins with a different one. The results are medians of the rounds, quartiles as their spread, and
the median of the ratios of one round: of ours, the first side, to each other.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

CHECKOUT = Path(__file__).parents[2]
_LAUNCHER = """
import json, os, sys, time
report, command = int(sys.argv[1]), sys.argv[2:]
os.set_inheritable(report, False)
began = time.perf_counter_ns()
_, status, used = os.wait4(os.posix_spawnp(command[0], command, os.environ), 0)
took = time.perf_counter_ns() - began
os.write(report, json.dumps([took, status, used.ru_utime + used.ru_stime, used.ru_maxrss]).encode())
"""
"""A child's peak begins with that of the process that starts it, so a small one does."""
_PEAK_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True)
class Effort:
    """The extent of a benchmark; ``small`` only shows that it runs."""

    rounds: int
    small: bool = False
    entries: Sequence[int] = (1_000,)
    stores: Sequence[str] = ()
    """Which stores to ask; all without any."""
    at_once: int = 16
    """How many starts at once."""

    def calls(self, count: int) -> int:
        """The number of calls of a function that takes microseconds."""
        return 1 if self.small else count


@dataclass(frozen=True, slots=True)
class Sample:
    """The cost of one turn of a side. CPU time includes the processes that it waited for."""

    wall_ns: int
    cpu_ns: int
    peak_bytes: int = 0
    """Of resident memory; 0 where it was not its own process."""


Side = Callable[[], Sample]


@dataclass(frozen=True, slots=True)
class Measured:
    """All samples of one side, in the order of the rounds."""

    name: str
    samples: tuple[Sample, ...]

    def ms(self, what: str) -> list[float]:
        """``wall`` or ``cpu`` of every round in milliseconds."""
        return [getattr(sample, f"{what}_ns") / 1e6 for sample in self.samples]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One question with the samples of every side, ours first; ``absent`` maps missing peers to reasons."""

    title: str
    sides: tuple[Measured, ...]
    absent: Mapping[str, str] = field(default_factory=dict)

    def ratios(self, side: Measured, what: str) -> list[float]:
        """Ours divided by a side, round by round."""
        pairs = zip(self.sides[0].ms(what), side.ms(what), strict=True)
        return [ours / theirs for ours, theirs in pairs if theirs]

    def document(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "absent": dict(self.absent),
            "sides": [self._row(side) for side in self.sides],
        }

    def _row(self, side: Measured) -> dict[str, Any]:
        row: dict[str, Any] = {"name": side.name, "peak_bytes": max(one.peak_bytes for one in side.samples)}
        for what in ("wall", "cpu"):
            row[f"{what}_ms"] = spread(side.ms(what)) | {"all": side.ms(what)}
            if side is not self.sides[0] and (ratios := self.ratios(side, what)):
                row[f"ours_to_it_{what}"] = spread(ratios)
        return row


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles, and the least of all."""
    low, median, high = (
        statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    )
    return {"median": median, "low": low, "high": high, "least": min(values)}


def compare(
    title: str, sides: Mapping[str, Side], rounds: int, absent: Mapping[str, str] | None = None
) -> Comparison:
    """Ask all sides in turns, once each beforehand so that none pays for a first time."""
    names = list(sides)
    for side in sides.values():
        side()
    taken: dict[str, list[Sample]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            taken[name].append(sides[name]())
    return Comparison(title, tuple(Measured(name, tuple(taken[name])) for name in names), absent or {})


def calls(action: Callable[[], object], count: int) -> Side:
    """The quickest of ``count`` calls in this process: interruptions of a call are not counted."""

    def side() -> Sample:
        least = sys.maxsize
        for _ in range(count):
            began = time.perf_counter_ns()
            action()
            took = time.perf_counter_ns() - began
            if took < least:
                least = took
        return Sample(least, least)

    return side


def each(actions: Sequence[Callable[[], object]]) -> Side:
    """The median of calling each of many actions once in this process: no call repeats the one before."""

    def side() -> Sample:
        taken = []
        for action in actions:
            began = time.perf_counter_ns()
            action()
            taken.append(time.perf_counter_ns() - began)
        median = round(statistics.median(taken))
        return Sample(median, median)

    return side


def process(
    command: Sequence[str | Path], *, before: Callable[[], object] | None = None, **environment: str
) -> Side:
    """A whole process; its output is read and discarded. ``before`` is not counted.

    Python keeps the bytecode of its modules, as it does in an installed package.
    """
    kept = {**os.environ, **environment}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)

    def side() -> Sample:
        if before is not None:
            before()
        reading, writing = os.pipe()
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(writing), *map(str, command)]
        with subprocess.Popen(
            launcher, cwd=CHECKOUT, env=kept, stdout=subprocess.PIPE, pass_fds=[writing]
        ) as child:
            os.close(writing)
            assert child.stdout is not None
            while child.stdout.read(1 << 20):
                pass
        with os.fdopen(reading) as report:
            took, status, cpu_s, peak = json.loads(report.read())
        if code := os.waitstatus_to_exitcode(status):
            raise RuntimeError(f"{' '.join(map(str, command))} ended with {code}")
        return Sample(took, round(cpu_s * 1e9), peak * _PEAK_UNIT)

    return side


def show(found: Comparison, to: TextIO) -> None:
    print(found.title, file=to)
    width = max(map(len, [*found.absent, *(side.name for side in found.sides)]), default=0)
    apart = any(one.cpu_ns != one.wall_ns for side in found.sides for one in side.samples)
    for side in found.sides:
        row = f"  {side.name:{width}}  {_cell(side.ms('wall'))}"
        if apart:
            peak = max(one.peak_bytes for one in side.samples)
            row += f"   cpu {_cell(side.ms('cpu'))}" + (f"   peak {peak / 1e6:.0f} MB" if peak else "")
        if side is not found.sides[0]:
            row += f"   ours is {_times(found.ratios(side, 'wall'))} of it"
            row += f", in CPU time {_times(found.ratios(side, 'cpu'))}" if apart else ""
        print(row, file=to)
    for name, why in found.absent.items():
        print(f"  {name:{width}}  not here: {why}", file=to)
    print(file=to, flush=True)


def show_growth(found: Sequence[Comparison], entries: Sequence[int], to: TextIO) -> None:
    """The cost of each verb for each entry as a cache grows: microseconds of CPU time, and peak memory.

    The comparisons are of one size after the other, each with the same verbs in the same order.
    """
    each = len(found) // len(entries)
    print("Growth: CPU time for each entry, and the peak of memory", file=to)
    for number in range(each):
        sides = [found[number + each * size].sides[0] for size in range(len(entries))]
        cells = []
        for side, count in zip(sides, entries, strict=True):
            peak = max(one.peak_bytes for one in side.samples) / 1e6
            cells.append(f"{count}: {1000 * spread(side.ms('cpu'))['median'] / count:.0f} us, {peak:.0f} MB")
        print(f"  {sides[0].name:26}  {'   '.join(cells)}", file=to)
    print(file=to, flush=True)


def _cell(values: Sequence[float]) -> str:
    told = spread(values)
    unit, factor = ("us", 1000.0) if told["median"] < 1 else ("ms", 1.0)
    median, low, high = (told[name] * factor for name in ("median", "low", "high"))
    return f"{median:7.1f} {unit} ({low:.1f} to {high:.1f})"


def _times(ratios: Sequence[float]) -> str:
    if not ratios:
        return "no measurable part"
    told = spread(ratios)
    return f"{told['median']:.2f}x ({told['low']:.2f} to {told['high']:.2f})"
