"""Bench cases as they come from real starts: a program, a command, a doubtful and a failed one."""

from collections.abc import Mapping, Sequence

import pytest

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
from gpucache.answers.growth import Growth
from gpucache.bench.compare import compare_cached

MS = 1_000_000
_COLD = {"process start": 24, "context": 9, "compile": 1890, "kernels": 2, "first launch": 875}
_WARM = {"process start": 24, "context": 9, "key": 6, "lookup": 1.1, "load": 52, "kernels": 1.9}
_WARM["first launch"] = 34
_PEER = {"process start": 24, "context": 9, "lookup": 2, "load": 60, "kernels": 2, "first launch": 880}
_FACTORS = (1.0, 0.97, 1.04, 0.99, 1.02, 1.01, 0.96, 1.03, 1.8, 1.0)


def starts(arm: str, phases: Mapping[str, float], **kinds: object) -> tuple[Sample, ...]:
    """Ten starts, of which one is far slower than the others."""
    return tuple(
        Sample(arm, tuple((name, round(ms * factor * MS)) for name, ms in phases.items()), **kinds)  # type: ignore[arg-type]
        for factor in _FACTORS
    )


def _spread(samples: Sequence[Sample]) -> Spread:
    return Spread.of([sample.total_ns for sample in samples])


@pytest.fixture
def program() -> BenchCase:
    """A program on PoCL, with a peer and the user's own caches beside it."""
    cold, warm = starts(Arm.COLD, _COLD), starts(Arm.WARM, _WARM, hit=True)
    as_is, peer = starts(Arm.AS_IS, _WARM), starts("pyopencl", _PEER)
    names = ("process start", "context", "key", "lookup", "compile", "load", "kernels", "first launch")
    return BenchCase(
        "fft.cl",
        "opencl:pocl/cpu",
        BenchVerdict.FASTER,
        cold=_spread(cold),
        warm=_spread(warm),
        ratio=Ratio(21.9, 18.25, 23.0),
        phases=tuple(Phase(name, _ns(_COLD.get(name)), _ns(_WARM.get(name))) for name in names),
        arms=(
            ArmResult(Arm.AS_IS, _spread(as_is), Ratio(21.8, 18.1, 22.8)),
            ArmResult("pyopencl", _spread(peer), Ratio(2.87, 2.6, 3.02), "its binary lacks the launches"),
        ),
        cached_part=compare_cached(cold, warm),
        break_even=BreakEven(5200 * MS, 2670 * MS, 2),
        notes=("the first start of all took 3.91 s and is left out: it filled the machine's file cache",),
        samples=cold + warm + as_is + peer,
    )


def _ns(ms: float | None) -> int | None:
    return None if ms is None else round(ms * MS)


@pytest.fixture
def command() -> BenchCase:
    """A command, whose starts have no phases, and which fills two caches."""
    wrote = (Growth("pocl", 12, 1_258_291, ("KA/f", "LB/g")), Growth("sycl", 1, 40_960, ("x.bin",)))
    cold = starts(Arm.COLD, {"run": 4210}, growth=wrote)
    warm = starts(Arm.WARM, {"run": 1130}, hit=True)
    return BenchCase(
        "python -m solver --grid 512",
        "",
        BenchVerdict.FASTER,
        cold=_spread(cold),
        warm=_spread(warm),
        ratio=Ratio(3.73, 3.5, 3.9),
        notes=("it was fully warm after run 2, as run 3 wrote nothing new",),
        growth=wrote,
        redirects=(("POCL_CACHE_DIR", "DIR/pocl"), ("SYCL_CACHE_DIR", "DIR/sycl")),
        samples=cold + warm,
    )


@pytest.fixture
def degraded() -> BenchCase:
    """A program whose figures are not to be believed."""
    cold, warm = (
        starts(arm, {"context": 5, "first launch": ms}) for arm, ms in ((Arm.COLD, 30), (Arm.WARM, 28))
    )
    return BenchCase(
        "kernels/linear-algebra/blocked-matrix-multiplication-with-a-long-name.cl",
        "opencl:nvidia-cuda/nvidia-geforce-rtx-4090-laptop-gpu",
        BenchVerdict.DEGRADED,
        "the noise is larger than the effect: the ratio is between 0.74 and 1.62",
        cold=_spread(cold),
        warm=_spread(warm),
        ratio=Ratio(1.06, 0.74, 1.62),
        phases=(Phase("context", 5 * MS, 5 * MS), Phase("first launch", 30 * MS, 28 * MS)),
        samples=cold + warm,
    )


@pytest.fixture
def failed() -> BenchCase:
    """A program that could not be started."""
    reason = "a cold start failed: <built-in>:3:1: error: unknown type 'flaot' & \x1b[31mmore\x1b[0m\n1 error"
    sample = Sample(Arm.COLD, error=reason)
    return BenchCase("a|b`c.cu", "cuda:sm_90", BenchVerdict.FAILED, reason, samples=(sample,))


@pytest.fixture
def cases(program: BenchCase, command: BenchCase, degraded: BenchCase, failed: BenchCase) -> list[BenchCase]:
    """One of each."""
    return [program, command, degraded, failed]
