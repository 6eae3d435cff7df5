"""Outcomes of run: the builds that a command requested, and the outcome of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from gpucache.json_keys import OrNull, json_keys
from gpucache.units import covered_ns

if TYPE_CHECKING:  # a command waits for the imports of its run
    from gpucache.answers.lookup import Verdict


class RunResult(StrEnum):
    """The outcome of one build of a command."""

    HIT = "hit"
    """It was served from the cache."""
    KEPT = "kept"
    """It missed, was compiled by the command, and was kept."""
    NOTED = "noted"
    """It missed; --learn or warm --misses builds it for the next run."""
    LEFT = "left"
    """It missed and was not kept; the reason follows."""
    FAILED = "failed"
    """It missed and did not compile, as without gpucache."""
    PASSED = "passed"
    """Its call or its device is not served; the reason follows."""
    REFUSED = "refused"
    """It missed and was made to fail, as GPUCACHE_REQUIRE is set."""


@json_keys("result program target key build_ns saved_ns all_kernels verdict reason")
@dataclass(frozen=True, slots=True)
class Intercepted:
    """A build that a command asked for."""

    program: str
    """The name of its first kernel; empty for a call that builds no source."""
    target: OrNull
    """Its target, several joined by commas; null if that is not known."""
    result: RunResult
    key: str | None = None
    """The cache key, for several devices the key of the first miss; null if there is none."""
    build_ns: int = 0
    """How long the command waited for it."""
    saved_ns: int = 0
    """Of a hit, how long compiling took when it was built."""
    all_kernels: bool = False
    """Of a hit, whether all of its kernels had been compiled, as for late compilers."""
    verdict: "Verdict | None" = None
    reason: str = ""
    """The same as a sentence, or why it was not kept or served."""
    begun_ns: int = 0
    """When the command asked for it, by a clock that all builds of one run share."""


@json_keys("exit_code=code signal alone loaded unanswered=refused")
@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    """How it ended; 128 and the number of a signal that ended it."""
    signal: int = 0
    """The signal that ended it; 0 where none did."""
    alone: str = ""
    """Why it ran as without gpucache; empty where it did not."""
    loaded: bool = False
    """Whether a library of gpucache was loaded into it."""
    refused: tuple[str, ...] = ()
    """Its processes that asked as another user, and got no reply."""


@json_keys(
    "command ended.* builds hits misses kept noted failed passed refused build_ns saved_ns ahead_ns binaries "
    "wanted learned within missed"
)
@dataclass(frozen=True, slots=True)
class RunSummary:
    """The builds of a command, in numbers."""

    command: str
    ended: Ended
    builds: int
    """How many builds it asked for, without those that were passed."""
    hits: int
    """Builds that were served."""
    misses: int
    """Builds that missed."""
    kept: int
    """Builds whose result is kept."""
    noted: int
    """Builds whose result is noted."""
    failed: int
    """Builds whose result is failed."""
    passed: int
    """Builds whose result is passed."""
    refused: int
    """Builds whose result is refused."""
    build_ns: int
    """How long at least one was under way; those of parallel threads count once."""
    saved_ns: int
    """How long compiling the hits took when they were built."""
    ahead_ns: int
    """The part of saved_ms that compiling all kernels took; a command alone compiles those that it uses."""
    binaries: int = 0
    """Programs it made from binaries, such as those of its own cache."""
    wanted: int = 0
    """Programs noted to be built later, or once more for other local sizes."""
    learned: int = 0
    """How many of these were built after its end."""
    within: int = 0
    """Further hits, which gpucache's library served in the command's own processes."""
    missed: int = 0
    """Misses of gpucache's library there; those of gpucache.opencl are builds as well."""


def summarise_run(
    command: str,
    ended: Ended,
    outcomes: Sequence[Intercepted],
    wanted: int = 0,
    learned: int = 0,
    binaries: int = 0,
    within: int = 0,
    missed: int = 0,
) -> RunSummary:
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
        within=within,
        missed=missed,
    )
