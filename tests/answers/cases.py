"""Bench cases as they come from real starts: a program, a command, a doubtful and a failed one."""

from collections.abc import Mapping
from typing import Any

from gpucache.answers.bench import (
    Arm,
    ArmResult,
    BenchCase,
    BenchVerdict,
    BreakEven,
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
_FACTORS = (1.0, 0.97, 1.04, 0.99, 1.02, 1.01, 0.96, 1.03, 1.8, 1.0)
Samples = tuple[Sample, ...]


def _starts(arm: str, phases: Mapping[str, float], **kinds: Any) -> Samples:
    """Ten starts, of which one is far slower than the others."""
    return tuple(
        Sample(arm, tuple((name, round(ms * factor * MS)) for name, ms in phases.items()), **kinds)
        for factor in _FACTORS
    )


def _arm(cold: Samples, samples: Samples, ratio: Ratio | None = None, reason: str = "") -> ArmResult:
    phases = tuple((name, ns) for name, ns in samples[0].phases if name != "run")
    totals = tuple(sample.total_ns for sample in samples)
    part = compare_cached(cold, samples) if samples is not cold else None
    return ArmResult(samples[0].arm, Spread.of(totals), ratio, reason, part, phases, totals)


def _timed(
    program: str, target: str, cold: Samples, warm: Samples, ratio: Ratio, *arms: ArmResult, **known: Any
) -> BenchCase:
    starts = (_arm(cold, cold), _arm(cold, warm, ratio), *arms)
    known = {"verdict": BenchVerdict.FASTER, "samples": (*cold, *warm), **known}
    return BenchCase(program, target, starts=starts, **known)


_SOME = Spread(9, 8, 10, 5)


def compared(ratio: Ratio, cold: Spread = _SOME, warm: Spread = _SOME) -> tuple[ArmResult, ArmResult]:
    """The figures of a case that has no others."""
    return ArmResult(Arm.COLD, cold), ArmResult(Arm.WARM, warm, ratio)


_cold, _warm = _starts(Arm.COLD, _COLD), _starts(Arm.WARM, _WARM, hit=True)
_as_is, _peer = _starts(Arm.AS_IS, _WARM), _starts("pyopencl", _PEER)
PROGRAM = _timed(
    "fft.cl", "opencl:pocl/cpu", _cold, _warm, Ratio(21.9, 18.25, 23.0),
    _arm(_cold, _as_is, Ratio(21.8, 18.1, 22.8)),
    _arm(_cold, _peer, Ratio(2.87, 2.6, 3.02), "its binary lacks the launches"),
    samples=(*_cold, *_warm, *_as_is, *_peer),
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
)
"""A program whose figures are unreliable."""
_reason = "a cold start failed: <built-in>:3:1: error: unknown type 'flaot' & \x1b[31mmore\x1b[0m\n1 error"
FAILED = BenchCase(
    "a|b`c.cu", "cuda:sm_90", BenchVerdict.FAILED, _reason, samples=(Sample(Arm.COLD, error=_reason),)
)
"""A program that could not be started."""
CASES = [PROGRAM, COMMAND, DEGRADED, FAILED]
