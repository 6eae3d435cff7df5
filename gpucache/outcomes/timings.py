"""Outcomes of bench."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median


class Temperature(StrEnum):
    """Whether a start finds anything cached."""

    COLD = "cold"
    WARM = "warm"


@dataclass(frozen=True, slots=True)
class Sample:
    """One start in a fresh process: phases in order, in ns, or why it failed."""

    temperature: Temperature
    phases: tuple[tuple[str, int], ...] = ()
    hit: bool = False
    error: str = ""

    @property
    def total_ns(self) -> int:
        """The sum of all phases."""
        return sum(duration for _, duration in self.phases)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest of some durations in ns."""

    median_ns: int
    low_ns: int
    high_ns: int
    runs: int

    @classmethod
    def of(cls, durations_ns: Iterable[int]) -> "Spread":
        """The spread of at least one duration."""
        values = sorted(durations_ns)
        return cls(round(median(values)), values[0], values[-1], len(values))


@dataclass(frozen=True, slots=True)
class Ratio:
    """Cold divided by warm, pair by pair."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class BenchCase:
    """One program on one target, cold against warm."""

    program: str
    target: str
    verdict: str
    """``measured``, ``no-ratio`` or ``failed``."""
    reason: str = ""
    cold: Spread | None = None
    warm: Spread | None = None
    ratio: Ratio | None = None
    phases: tuple[tuple[str, int | None, int | None], ...] = ()
    """Phase, its cold median and its warm median in ns."""
    samples: tuple[Sample, ...] = field(default=(), repr=False)
