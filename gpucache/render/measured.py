"""A case of bench as JSON values, with every raw sample."""

from typing import Any

from gpucache.outcomes import ArmResult, BenchCase, BreakEven, Ratio, Sample, Spread
from gpucache.render.settling import growth
from gpucache.units import to_ms


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
