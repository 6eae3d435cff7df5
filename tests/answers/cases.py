"""Bench cases as they come from real starts: a program, a command, a doubtful and a failed one."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpucache.answers.bench import (
    Arm,
    ArmResult,
    BenchCase,
    BenchVerdict,
    BreakEven,
    Phase,
    Ratio,
    Sample,
    Spread,
)
from gpucache.answers.entries import Growth
from gpucache.bench.compare import compare_cached

MS = 1_000_000
_COLD = {"process start": 24, "context": 9, "compile": 1890, "kernels": 2, "first launch": 875}
_WARM = {"process start": 24, "context": 9, "key": 6, "lookup": 1.1, "load": 52, "kernels": 1.9}
_WARM["first launch"] = 34
_PEER = {"process start": 24, "context": 9, "lookup": 2, "load": 60, "kernels": 2, "first launch": 880}
_PHASES = ("process start", "context", "key", "lookup", "compile", "load", "kernels", "first launch")
_FACTORS = (1.0, 0.97, 1.04, 0.99, 1.02, 1.01, 0.96, 1.03, 1.8, 1.0)
Samples = tuple[Sample, ...]


def _starts(arm: str, phases: Mapping[str, float], **kinds: Any) -> Samples:
    """Ten starts, of which one is far slower than the others."""
    return tuple(
        Sample(arm, tuple((name, round(ms * factor * MS)) for name, ms in phases.items()), **kinds)
        for factor in _FACTORS
    )


def _spread(samples: Sequence[Sample]) -> Spread:
    return Spread.of([sample.total_ns for sample in samples])


def _ns(ms: float | None) -> int | None:
    return None if ms is None else round(ms * MS)


def _timed(
    program: str, target: str, cold: Samples, warm: Samples, ratio: Ratio, *more: Sample, **known: Any
) -> BenchCase:
    spreads: dict[str, Any] = {"cold": _spread(cold), "warm": _spread(warm), "ratio": ratio}
    return BenchCase(
        program, target, **{"verdict": BenchVerdict.FASTER, **spreads, **known}, samples=(*cold, *warm, *more)
    )


_cold, _warm = _starts(Arm.COLD, _COLD), _starts(Arm.WARM, _WARM, hit=True)
_as_is, _peer = _starts(Arm.AS_IS, _WARM), _starts("pyopencl", _PEER)
PROGRAM = _timed(
    "fft.cl", "opencl:pocl/cpu", _cold, _warm, Ratio(21.9, 18.25, 23.0), *_as_is, *_peer,
    phases=tuple(Phase(name, _ns(_COLD.get(name)), _ns(_WARM.get(name))) for name in _PHASES),
    arms=(
        ArmResult(Arm.AS_IS, _spread(_as_is), Ratio(21.8, 18.1, 22.8)),
        ArmResult("pyopencl", _spread(_peer), Ratio(2.87, 2.6, 3.02), "its binary lacks the launches"),
    ),
    cached_part=compare_cached(_cold, _warm),
    break_even=BreakEven(5200 * MS, 2670 * MS, 2),
    notes=("the first start of all took 3.91 s and is left out: it filled the machine's file cache",),
)  # fmt: skip
"""A program on PoCL, with a peer and the user's own caches next to it."""
WROTE = (Growth("pocl", 12, 1_258_291, ("KA/f", "LB/g")), Growth("sycl", 1, 40_960, ("x.bin",)))
COMMAND = _timed(
    "python -m solver --grid 512", "", _starts(Arm.COLD, {"run": 4210}, growth=WROTE),
    _starts(Arm.WARM, {"run": 1130}, hit=True), Ratio(3.73, 3.5, 3.9),
    notes=("it was fully warm after run 2, as run 3 wrote nothing new",),
    growth=WROTE,
    redirects=(("POCL_CACHE_DIR", "DIR/pocl"), ("SYCL_CACHE_DIR", "DIR/sycl")),
)  # fmt: skip
"""A command, whose starts have no phases, and which fills two caches."""
DEGRADED = _timed(
    "kernels/linear-algebra/blocked-matrix-multiplication-with-a-long-name.cl",
    "opencl:nvidia-cuda/nvidia-geforce-rtx-4090-laptop-gpu",
    _starts(Arm.COLD, {"context": 5, "first launch": 30}),
    _starts(Arm.WARM, {"context": 5, "first launch": 28}),
    Ratio(1.06, 0.74, 1.62),
    verdict=BenchVerdict.DEGRADED,
    reason="the noise is larger than the effect: the ratio is between 0.74 and 1.62",
    phases=(Phase("context", 5 * MS, 5 * MS), Phase("first launch", 30 * MS, 28 * MS)),
)
"""A program whose figures are unreliable."""
_reason = "a cold start failed: <built-in>:3:1: error: unknown type 'flaot' & \x1b[31mmore\x1b[0m\n1 error"
FAILED = BenchCase(
    "a|b`c.cu", "cuda:sm_90", BenchVerdict.FAILED, _reason, samples=(Sample(Arm.COLD, error=_reason),)
)
"""A program that could not be started."""
CASES = [PROGRAM, COMMAND, DEGRADED, FAILED]
