"""A case of bench as JSON values, with every raw sample."""

from typing import Any

from gpucache.outcomes import Arm, ArmResult, BenchCase, BenchVerdict, BreakEven, Ratio, Sample, Spread
from gpucache.render.schema import PROGRAM, VARIANT, Key, Record, one_of
from gpucache.render.settling import growth
from gpucache.units import to_ms

_SPREAD = (
    Key("median_ms", "number", "The median start."),
    Key("low_ms", "number", "The fastest."),
    Key("high_ms", "number", "The slowest."),
    Key("runs", "number", "How many starts there were."),
    Key("outliers", "number", "How many of them lie far from the others."),
)
RECORDS = (
    Record(
        "case",
        "A program on a target, or a command, cold against warm.",
        (
            PROGRAM,
            Key("target", "text", "The target; empty for a command."),
            VARIANT,
            Key("verdict", "text", one_of(BenchVerdict) + "."),
            Key("reason", "text", "Why it is not faster; empty where it is."),
            Key("cold", "spread or null", "Starts with nothing cached."),
            Key("warm", "spread or null", "Starts with everything cached."),
            Key("ratio", "ratio or null", "Cold divided by warm."),
            Key("phases", "list of phase", "The parts of a start, in order."),
            Key("arms", "list of arm", "The other starts that were timed."),
            Key("break_even", "break-even or null", "After how many starts warming has paid."),
            Key("notes", "list of text", "What else is worth knowing, a sentence each."),
            Key("growth", "list of growth", "What a cold start writes into which cache."),
            Key("interrupted", "true or false", "Whether it was stopped before all was measured."),
            Key("redirects", "table of text", "The variables that put caches elsewhere."),
            Key("samples", "list of sample", "Every start, in the order they were taken."),
        ),
    ),
    Record("spread", "How long some starts took, in milliseconds.", _SPREAD),
    Record(
        "ratio",
        "One kind of starts divided by another, pair by pair.",
        (
            Key("median", "number", "The median of the pairs."),
            Key("low", "number", "The low end of its 95 % interval."),
            Key("high", "number", "The high end."),
        ),
    ),
    Record(
        "checked kernel",
        "A kernel of the suite on one target, without checks and with them.",
        (
            Key("target", "text", "The target."),
            Key("kernel", "text", "The kernel; empty where the target failed."),
            Key("kind", "text", "What is typical of it."),
            Key("runs", "number", "Samples of each mode."),
            Key("none_ms", "number or null", "The median without checks."),
            Key("sync", "ratio or null", "The mode sync divided by none."),
            Key("async", "ratio or null", "The mode async divided by none."),
            Key("error", "text", "Why the target was not timed; empty where it was."),
        ),
    ),
    Record(
        "checked mean",
        "How many times as long kernels take with checks.",
        (
            Key("target", "text", "The target."),
            Key("sync", "number", "In the mode sync."),
            Key("async", "number", "In the mode async."),
        ),
    ),
    Record(
        "phase",
        "A part of a start.",
        (
            Key("phase", "text", "Its name, such as compile."),
            Key("cold_ms", "number or null", "Its median in cold starts."),
            Key("warm_ms", "number or null", "Its median in warm starts."),
        ),
    ),
    Record(
        "arm",
        "Starts beside the cold and the warm ones.",
        (
            Key("arm", "text", f"What they find cached, and by whom: {one_of(Arm)}."),
            *_SPREAD,
            Key("ratio", "ratio", "Cold starts divided by these."),
            Key("reason", "text", "Why they are not what they seem to be; empty where they are."),
        ),
    ),
    Record(
        "break-even",
        "What warming costs and saves.",
        (
            Key("warming_ms", "number", "What warming cost."),
            Key("saving_ms", "number", "What each warm start saves."),
            Key("starts", "number", "After how many starts it has paid."),
        ),
    ),
    Record(
        "sample",
        "One start.",
        (
            Key("arm", "text", f"What it finds cached, and by whom: {one_of(Arm)}."),
            Key("total_ms", "number", "How long it took."),
            Key("phases", "table of number", "How long each part took, in milliseconds."),
            Key("hit", "true or false", "Whether our own cache answered."),
            Key("missed", "text or null", "Why our own cache did not answer, where it was asked."),
            Key("growth", "list of growth", "What it wrote into which cache."),
            Key("output", "text or null", "SHA-256 of what it printed, with --same-output."),
            Key("error", "text or null", "Why it failed."),
        ),
    ),
)
"""The records of bench, in the terms of the schema."""


def bench_case(case: BenchCase) -> dict[str, Any]:
    """A case of bench with its raw samples, in the order they were taken."""
    return {
        "program": case.program,
        "target": case.target,
        "variant": case.variant,
        "verdict": case.verdict.value,
        "reason": case.reason,
        "cold": _spread(case.cold),
        "warm": _spread(case.warm),
        "ratio": _ratio(case.ratio),
        "phases": [
            {"phase": name, "cold_ms": _ms(cold), "warm_ms": _ms(warm)} for name, cold, warm in case.phases
        ],
        "arms": [_arm(one) for one in case.arms],
        "break_even": _break_even(case.break_even),
        "notes": list(case.notes),
        "growth": [growth(one) for one in case.growth],
        "interrupted": case.interrupted,
        "redirects": dict(case.redirects),
        "samples": [_sample(one) for one in case.samples],
    }


def _sample(one: Sample) -> dict[str, Any]:
    return {
        "arm": one.arm.value,
        "total_ms": to_ms(one.total_ns),
        "phases": {name: to_ms(duration) for name, duration in one.phases},
        "hit": one.hit,
        "missed": one.missed or None,
        "growth": [growth(gained) for gained in one.growth],
        "output": one.output or None,
        "error": one.error or None,
    }


def _arm(one: ArmResult) -> dict[str, Any]:
    spread = {"arm": one.arm.value, **_figures(one.spread)}
    return {**spread, "ratio": _ratio(one.ratio), "reason": one.reason}


def _break_even(one: BreakEven | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "warming_ms": to_ms(one.warming_ns),
        "saving_ms": to_ms(one.saving_ns),
        "starts": one.starts,
    }


def _spread(spread: Spread | None) -> dict[str, Any] | None:
    return None if spread is None else _figures(spread)


def _figures(spread: Spread) -> dict[str, Any]:
    return {
        "median_ms": to_ms(spread.median_ns),
        "low_ms": to_ms(spread.low_ns),
        "high_ms": to_ms(spread.high_ns),
        "runs": spread.runs,
        "outliers": spread.outliers,
    }


def _ratio(ratio: Ratio | None) -> dict[str, float] | None:
    if ratio is None:
        return None
    return {"median": round(ratio.median, 3), "low": round(ratio.low, 3), "high": round(ratio.high, 3)}


def _ms(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else to_ms(duration_ns)
