"""Outcomes of run: the builds that a command requested, and the outcome of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

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

    program: Annotated[str, "The name of its first kernel; empty for a call that builds no source."]
    target: Annotated[OrNull, "Its target, several joined by commas; null if that is not known."]
    result: RunResult
    key: Annotated[
        str | None, "The cache key, of several devices the first miss's; null if there is none."
    ] = None
    build_ns: Annotated[int, "How long the command waited for it."] = 0
    saved_ns: Annotated[int, "Of a hit, how long compiling took when it was built."] = 0
    all_kernels: Annotated[bool, "Of a hit, whether all its kernels had been compiled ahead."] = False
    verdict: "Verdict | None" = None
    reason: Annotated[str, "The same as a sentence, or why it was not kept or served."] = ""
    begun_ns: int = 0
    """When the command asked for it, by a clock that all builds of one run share."""


@json_keys("exit_code=code signal alone loaded unanswered=refused")
@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: Annotated[int, "How it ended; 128 and the number of a signal that ended it."]
    signal: Annotated[int, "The signal that ended it; 0 where none did."] = 0
    alone: Annotated[str, "Why it ran as without gpucache; empty where it did not."] = ""
    loaded: Annotated[bool, "Whether a library of gpucache was loaded into it."] = False
    refused: Annotated[tuple[str, ...], "Its processes that asked as another user, and got no reply."] = ()


@json_keys(
    "command ended.* builds hits misses kept noted failed passed refused build_ns saved_ns ahead_ns binaries "
    "wanted poisoned learned within missed"
)
@dataclass(frozen=True, slots=True)
class RunSummary:
    """The builds of a command, in numbers."""

    command: str
    ended: Ended
    builds: Annotated[int, "How many builds it asked for, without those that were passed."]
    hits: Annotated[int, "Builds that were served."]
    misses: Annotated[int, "Builds that missed."]
    kept: Annotated[int, "Builds whose result is kept."]
    noted: Annotated[int, "Builds whose result is noted."]
    failed: Annotated[int, "Builds whose result is failed."]
    passed: Annotated[int, "Builds whose result is passed."]
    refused: Annotated[int, "Builds whose result is refused."]
    build_ns: Annotated[int, "How long at least one was under way; those of parallel threads count once."]
    saved_ns: Annotated[int, "How long compiling the hits took when they were built."]
    ahead_ns: Annotated[int, "The part of saved_ms that is for all kernels of a program, used or not."]
    binaries: Annotated[int, "Programs it made from binaries, such as those of its own cache."] = 0
    wanted: Annotated[int, "Programs noted to be built later, or once more for other local sizes."] = 0
    poisoned: Annotated[int, "How many of these warm builds only with --retry."] = 0
    learned: Annotated[int, "How many of these were built after its end."] = 0
    within: Annotated[int, "Hits that gpucache's library served in the command's own processes."] = 0
    missed: Annotated[int, "Misses of that library; those of gpucache.opencl are builds as well."] = 0


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
    spans = ((one.begun_ns, one.build_ns) for one in outcomes if one.result is not RunResult.PASSED)
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
        build_ns=covered_ns(sorted((begun_ns, begun_ns + took_ns) for begun_ns, took_ns in spans)),
        saved_ns=sum(one.saved_ns for one in outcomes),
        ahead_ns=sum(one.saved_ns for one in outcomes if one.all_kernels),
        binaries=binaries,
        wanted=wanted,
        poisoned=sum(one.result is RunResult.NOTED and one.verdict == "poisoned" for one in outcomes),
        learned=learned,
        within=within,
        missed=missed,
    )
