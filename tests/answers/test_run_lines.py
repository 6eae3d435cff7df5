"""The lines that ``run`` writes about its builds."""

from gpucache.answers import run_lines
from gpucache.answers.run import Intercepted, RunResult


def test_a_long_reason_keeps_its_remedy() -> None:
    """It is last, behind paths of any length."""
    reason = f"the cache root /{'long/' * 100} cannot be trusted; name your own with GPUCACHE_DIR"
    told = run_lines.reasons([Intercepted("k", "t", RunResult.LEFT, reason=reason)], whole=False)
    assert [*told] == [f"not kept: {reason}"]
