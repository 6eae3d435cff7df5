"""The lines that ``run`` writes about its builds."""

from gpucache.answers import run_lines
from gpucache.answers.run import Ended, Intercepted, RunResult, summarise_run


def test_a_long_reason_keeps_its_remedy() -> None:
    """It is last, behind paths of any length."""
    reason = f"the cache root /{'long/' * 100} cannot be trusted; name your own with GPUCACHE_DIR"
    told = run_lines.reasons([Intercepted("k", "t", RunResult.LEFT, reason=reason)], whole=False)
    assert [*told] == [f"not kept: {reason}"]


def test_the_time_of_builds_is_theirs_alone() -> None:
    """A build that was not served is not among the builds, and without others it is all there is to tell."""
    passed = Intercepted("k", "t", RunResult.PASSED, build_ns=3_200_000_000)
    hit = Intercepted("k", "t", RunResult.HIT, build_ns=2_000_000, saved_ns=90_000_000)
    told = [run_lines.summary_line(summarise_run("a", Ended(0), some)) for some in ([passed], [passed, hit])]
    assert told == ["1 build not served", "1 build: 1 hit, 0 misses; 2.0 ms instead of 90 ms; 1 not served"]
