"""Outcomes of run: what a command had compiled, and what became of each build."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from gpucache.units import covered_ns

if TYPE_CHECKING:  # a command waits for what its run imports
    from gpucache.answers.lookup import Verdict


class RunResult(StrEnum):
    """What became of one build of a command."""

    HIT = "hit"
    KEPT = "kept"
    NOTED = "noted"
    LEFT = "left"
    FAILED = "failed"
    PASSED = "passed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Intercepted:
    """One build that a command asked for."""

    program: str
    target: str
    """What it was for; several targets are joined by commas, and it is empty where nobody knows."""
    result: RunResult
    key: str | None = None
    """Of a build for several devices that of the first that was not there."""
    build_ns: int = 0
    """How long the command waited for it."""
    saved_ns: int = 0
    """Of a hit how long its compile took when it was built."""
    all_kernels: bool = False
    """Of a hit whether that compiled all of its kernels, as is done ahead for compilers that build late."""
    verdict: "Verdict | None" = None
    """Why it missed."""
    reason: str = ""
    begun_ns: int = 0
    """When the command asked for it, by a clock that all builds of one run share."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    """Its exit code; of one that a signal ended 128 and the signal's number."""
    signal: int = 0
    """The signal that ended it; 0 if none did."""
    alone: str = ""
    """Why it ran as without us, its builds unseen; empty where they were heard."""
    loaded: bool = False
    """Whether a library of ours was loaded by any of its processes."""
    refused: tuple[str, ...] = ()
    """Its processes that asked as another user, and were not answered."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a command had compiled, in numbers."""

    command: str
    ended: Ended
    builds: int
    """All but those that were passed."""
    hits: int
    misses: int
    kept: int
    noted: int
    failed: int
    passed: int
    refused: int
    """Those that failed because GPUCACHE_REQUIRE demands a hit."""
    build_ns: int
    """For how long at least one build was under way: those of parallel threads and processes count once."""
    saved_ns: int
    ahead_ns: int
    """What of ``saved_ns`` went into compiling all kernels ahead; the command alone compiles what it uses."""
    binaries: int = 0
    """How many programs it made from binaries of its own."""
    wanted: int = 0
    """How many programs were noted to be built later, or once more for other local sizes."""
    learned: int = 0
    """How many of these were built after the command's end."""


def summarise_run(
    command: str,
    ended: Ended,
    outcomes: Sequence[Intercepted],
    wanted: int = 0,
    learned: int = 0,
    binaries: int = 0,
) -> RunSummary:
    """The summary of a run of a command."""
    count = {result: sum(one.result is result for one in outcomes) for result in RunResult}
    builds = len(outcomes) - count[RunResult.PASSED]
    return RunSummary(
        command=command,
        ended=ended,
        builds=builds,
        hits=count[RunResult.HIT],
        misses=builds - count[RunResult.HIT],
        kept=count[RunResult.KEPT],
        noted=count[RunResult.NOTED],
        failed=count[RunResult.FAILED],
        passed=count[RunResult.PASSED],
        refused=count[RunResult.REFUSED],
        build_ns=covered_ns(sorted((one.begun_ns, one.begun_ns + one.build_ns) for one in outcomes)),
        saved_ns=sum(one.saved_ns for one in outcomes),
        ahead_ns=sum(one.saved_ns for one in outcomes if one.all_kernels),
        binaries=binaries,
        wanted=wanted,
        learned=learned,
    )
