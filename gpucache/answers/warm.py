"""Outcomes of warm."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpucache.answers.lookup import Verdict
from gpucache.answers.told import OrNull, told
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


@told("result program target variant key compile_ns size_bytes verdict reason lacks_kernels log")
@dataclass(frozen=True, slots=True)
class WarmOutcome:
    """A program for a target, as warm left it."""

    program: str
    """The program's name."""
    target: OrNull
    """The target; null where none could be chosen."""
    result: WarmResult
    """What became of it."""
    variant: str = ""
    """What tells it from other builds of the program, such as T=float; with warm --misses the noted key, with
    warm --recording the first digits of what was recorded."""
    key: str | None = None
    """The cache key; null where none could be made."""
    compile_ns: int | None = None
    """How long compiling took, now or when it was built."""
    size_bytes: int | None = None
    """Bytes of its entry, in allocated blocks."""
    reason: str = ""
    """The same as a sentence, or why it failed."""
    log: str = ""
    """What the compiler said, under the program's own file name."""
    verdict: Verdict | None = None
    """Why it was not found."""
    lacks_kernels: bool = False
    """Whether nothing in the artifact can be launched."""


@told("counts.* compile_ns size_bytes")
@dataclass(frozen=True, slots=True)
class WarmSummary:
    """How many items came out how."""

    counts: dict[WarmResult, int]
    """Items whose result is"""
    compile_ns: int
    """What was spent on compiling."""
    size_bytes: int
    """What the entries take together."""

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
