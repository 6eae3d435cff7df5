"""What a command had compiled, in one line, and why builds were not kept.

Owns the words. They go to stderr, as standard output is the command's.
"""

from collections.abc import Iterator, Sequence

from gpucache.outcomes import Intercepted, RunResult, RunSummary
from gpucache.units import format_count, format_duration

_REASONS = 3
"""The most reasons that are told unless everything is."""


def summary_line(summary: RunSummary) -> str:
    """Builds, hits, misses and the time in builds, in one line."""
    if not summary.builds and not summary.passed:
        return "no OpenCL or NVRTC build was asked for here"
    parts = [
        f"{format_count(summary.builds, 'build')}: {format_count(summary.hits, 'hit')}, "
        f"{format_count(summary.misses, 'miss', 'misses')}; {format_duration(summary.build_ns)} in builds"
    ]
    if summary.saved_ns:
        parts.append(f"the hits took {format_duration(summary.saved_ns)} to build")
    if summary.learned:
        parts.append(f"{summary.learned} of {summary.noted} built for the next run")
    elif summary.noted:
        parts.append(f"'gpucache warm --misses' builds {summary.noted} for the next run")
    if summary.failed:
        parts.append(f"{summary.failed} did not compile")
    if summary.passed:
        parts.append(f"{summary.passed} not served")
    return "; ".join(parts)


def reasons(outcomes: Sequence[Intercepted], *, whole: bool) -> Iterator[str]:
    """Why builds were not kept or not served, each reason once; with ``whole`` every build that missed."""
    if whole:
        for one in outcomes:
            if one.result is not RunResult.HIT:
                where = f" for {one.target}" if one.target else ""
                yield f"{one.program or 'a call'}{where}: {one.result}: {one.reason}"
        return
    untold = (one for one in outcomes if one.result in (RunResult.LEFT, RunResult.PASSED))
    told = tuple(dict.fromkeys(f"not {_done(one)}: {one.reason}" for one in untold))
    yield from told[:_REASONS]
    if len(told) > _REASONS:
        yield f"{len(told) - _REASONS} more reasons; -v tells them"


def _done(one: Intercepted) -> str:
    return "kept" if one.result is RunResult.LEFT else "served"
