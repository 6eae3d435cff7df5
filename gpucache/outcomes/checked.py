"""What checks inside kernels cost: outcomes of ``bench --checks``, and their geometric means."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log

from gpucache.outcomes.timings import Ratio

PAPER_ASYNC = (1.04, 1.11)
PAPER_SYNC = (1.61, 1.66)
"""Geometric means over 41 benchmarks on two GPUs: Henriksen, Bounds Checking on GPU, 2021."""


@dataclass(frozen=True, slots=True)
class CheckedCase:
    """One kernel on one target, without checks and in both modes with them; or why it was not timed."""

    target: str
    kernel: str = ""
    kind: str = ""
    runs: int = 0
    none_ns: int = 0
    """Median of a sample without checks."""
    sync: Ratio | None = None
    """How many times as long it takes."""
    asynchronous: Ratio | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class CheckedMeans:
    """The geometric means over the kernels of one target."""

    target: str
    sync: float
    asynchronous: float


def summarise_checked(cases: Iterable[CheckedCase]) -> tuple[CheckedMeans, ...]:
    """The means of each target that was timed."""
    found: dict[str, list[tuple[Ratio, Ratio]]] = {}
    for case in cases:
        if case.sync is not None and case.asynchronous is not None:
            found.setdefault(case.target, []).append((case.sync, case.asynchronous))
    return tuple(
        CheckedMeans(target, _mean(sync for sync, _ in pairs), _mean(other for _, other in pairs))
        for target, pairs in found.items()
    )


def _mean(ratios: Iterable[Ratio]) -> float:
    logs = [log(ratio.median) for ratio in ratios]
    return exp(sum(logs) / len(logs))
