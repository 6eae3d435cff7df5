"""Runs of a command that warms caches, as JSON values."""

from typing import Any

from gpucache.outcomes import Growth, SettleRun, SettleSummary
from gpucache.units import to_ms


def settle_run(run: SettleRun) -> dict[str, Any]:
    """One run, with what it added to which cache."""
    return {
        "run": run.number,
        "duration_ms": to_ms(run.duration_ns),
        "added": [growth(one) for one in run.growth],
        "error": run.error or None,
    }


def settle_summary(summary: SettleSummary) -> dict[str, Any]:
    """Whether the runs came to rest, and all that was added."""
    return {
        "runs": summary.runs,
        "settled": summary.settled,
        "failed": summary.failed or None,
        "added": [growth(one) for one in summary.growth],
        "restless": [growth(one) for one in summary.restless],
        "environment": dict(summary.environment),
        "missed": list(summary.missed),
        "notes": list(summary.notes),
    }


def growth(one: Growth) -> dict[str, Any]:
    """What a cache gained."""
    return {
        "cache": one.cache,
        "entries": one.entries,
        "size_bytes": one.size_bytes,
        "names": list(one.names),
    }
