"""Outcomes of warm."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpucache.answers.lookup import Verdict
from gpucache.errors import ExitCode


class WarmResult(StrEnum):
    """What became of one item."""

    HIT = "hit"
    BUILT = "built"
    FAILED = "failed"
    MISSING = "missing"
    SKIPPED = "skipped"
    POISONED = "poisoned"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class WarmOutcome:
    """One program for one target."""

    program: str
    target: str
    result: WarmResult
    variant: str = ""
    key: str | None = None
    compile_ns: int | None = None
    size_bytes: int | None = None
    """What its entry takes on disk, in allocated blocks."""
    reason: str = ""
    log: str = ""
    """The compiler's own words under the program's own file name."""
    verdict: Verdict | None = None
    lacks_kernels: bool = False
    """Whether nothing in the artifact can be launched, as with a template of which no instance is named."""


@dataclass(frozen=True, slots=True)
class WarmSummary:
    """How many items came out how."""

    counts: dict[WarmResult, int]
    compile_ns: int
    size_bytes: int

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
    compile_ns = size_bytes = 0
    for outcome in outcomes:
        counts[outcome.result] += 1
        compile_ns += outcome.compile_ns or 0 if outcome.result is WarmResult.BUILT else 0
        size_bytes += outcome.size_bytes or 0
    return WarmSummary({result: counts[result] for result in WarmResult}, compile_ns, size_bytes)
