"""The share of the machine that other processes used during a measurement.

Owns the reading of /proc/stat and our own share of it: this process and the children it has waited for.
If a kernel reports nothing (macOS, Windows, a sandbox), the load of other processes counts as zero.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

STAT = Path("/proc/stat")
# In the line "cpu", user, nice, system, irq, softirq and steal are work; idle and iowait are not. The time of
# guests is already counted in user and nice.
_BUSY = (0, 1, 2, 5, 6, 7)


@dataclass(frozen=True, slots=True)
class Reading:
    """The work of the cores so far, at an instant."""

    at_s: float
    """A monotonic clock."""
    busy_s: float
    """Seconds of all cores together, used by any process."""
    own_s: float
    """Seconds used by this process and its ended children."""
    cores: int


def foreign_share(before: Reading | None, after: Reading | None) -> float:
    """The share of all cores that others used between two readings, from 0 to 1. Pure."""
    if before is None or after is None:
        return 0.0
    whole = after.cores * (after.at_s - before.at_s)
    if whole <= 0:
        return 0.0
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return min(max(others / whole, 0.0), 1.0)


def parse_stat(text: str, ticks_per_s: float) -> tuple[float, int] | None:
    """Busy seconds and number of all cores, from the text of /proc/stat; None if it lacks either."""
    lines = [line.split() for line in text.splitlines() if line.startswith("cpu")]
    cores = sum(1 for words in lines if words[0] != "cpu")
    total = next((words[1:] for words in lines if words[0] == "cpu"), [])
    try:
        busy = sum(int(total[index]) for index in _BUSY if index < len(total))
    except ValueError:
        return None
    return (busy / ticks_per_s, cores) if total and cores else None


def read(stat: Path = STAT) -> Reading | None:
    """The current reading; None if the kernel does not report it."""
    try:
        told = parse_stat(stat.read_text(encoding="ascii"), os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, AttributeError):  # no sysconf on Windows
        return None
    if told is None:
        return None
    own = os.times()
    used = own.user + own.system + own.children_user + own.children_system
    return Reading(time.monotonic(), told[0], used, told[1])


def measure_load() -> Callable[[], float]:
    """Begin to measure; the returned function ends it and returns the share that others used."""
    before = read()
    return lambda: foreign_share(before, read())
