"""What bench starts and how often, whatever kind of start it is.

A kind of start (``sources``, ``commands``) says what its case is called, fills the caches of its warm
starts, and makes one start of an arm at a time; ``run`` takes them in turn. Must not know what is started.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpucache.bench.cases import PAIR, Measured
from gpucache.outcomes.bench import FEWEST_PAIRS, Arm, BenchCase, Sample

Say = Callable[[str], None]
"""Told what is done now, for people who wait."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How many pairs of starts are taken for each case."""

    runs: int | None = None
    """Pairs; with a budget the least number of them."""
    budget_s: float | None = None

    @property
    def least(self) -> int:
        """The pairs that are taken in any case."""
        return FEWEST_PAIRS if self.runs is None else self.runs

    def is_enough(self, pairs: int, rounds: int, elapsed_s: float) -> bool:
        """Whether to stop after some pairs; all rounds, with those that are not counted, took so long."""
        if pairs < self.least:
            return False
        return self.budget_s is None or elapsed_s * (rounds + 1) / rounds > self.budget_s


@dataclass(frozen=True, slots=True)
class Begun:
    """A program or command that is ready to be started."""

    start: Callable[[str, int], Sample]
    """Makes a start of an arm in the round of a number, and says what it wrote into which cache."""
    known: Measured
    """What is known before the first start; with the arms beside the pair."""
    uncounted: int = 0
    """The first rounds that only fill caches."""

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms of a round, the measured pair first."""
        return (*PAIR, *self.known.against)


@dataclass(frozen=True, slots=True)
class Planned:
    """One case before anything is measured."""

    case: BenchCase
    begin: Callable[[Path, Say], Begun | str] | None = None
    """Makes it ready below an empty folder, or says why it failed; None where nothing is to be tried."""


@contextmanager
def start_folder(place: Path, arm: str, number: int) -> Iterator[Path]:
    """Where a start's caches lie: cold starts get a folder each, which goes, the others share their arm's."""
    if arm != Arm.COLD:
        yield place / arm
        return
    folder = place / f"{arm}-{number}"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
