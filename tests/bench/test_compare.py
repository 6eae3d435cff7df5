"""Ratios and their interval, the rules of a verdict one by one and in order, and the result of a gate."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.bench import Arm, BenchCase, BenchVerdict, Ratio, Sample
from gpucache.answers.entries import Growth
from gpucache.bench.compare import LOADED, NARROW, Measured, below, judge, paired_ratio
from tests.answers.cases import compared

_DURATIONS = st.lists(st.tuples(st.integers(1, 10**12), st.integers(1, 10**12)), min_size=1, max_size=8)


E8 = [round(10**6 * math.exp(step)) for step in range(8)]
END = math.exp(0.936)


@pytest.mark.parametrize(
    ("over", "under", "low", "middle", "high"),
    [
        pytest.param([100, 1000, 100_000], [50, 500, 50_000], 2, 2, 2, id="noise that a pair shares cancels"),
        pytest.param([10, 20, 90], [5, 100, 9], 0.2, 2, 10, id="the median is of the ratios"),
        pytest.param([30], [10], 3, 3, 3, id="one pair has no width"),
        pytest.param([20, 30, 40, 50, 60], [10] * 5, 2, 4, 6, id="the interval of five spans them"),
        pytest.param([20] * 20 + [9000], [10] * 21, 2, 2, 2, id="one of many that is far off is left out"),
        pytest.param(E8, [10**6] * 8, END, math.exp(3.5), math.exp(7) / END, id="between two pairs"),
        pytest.param([20, 10], [10, 20], 0.5, 1, 2, id="twice and half as fast are equally far"),
        pytest.param([0, 8], [0, 0], 1, 8**0.5, 8, id="a clock that stood still counts a nanosecond"),
    ],
)
def test_a_ratio_is_of_pairs(
    over: list[int], under: list[int], low: float, middle: float, high: float
) -> None:
    """Each duration is divided by its own partner; the interval is read from the sorted ratios."""
    ratio = paired_ratio(over, under)
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((low, middle, high), rel=1e-3)


@pytest.mark.parametrize(("pairs", "most"), [(5, 0.038), (6, 0.031), (7, 0.033), (8, 0.033), (15, 0.031)])
def test_noise_is_seldom_taken_for_an_effect(pairs: int, most: float) -> None:
    """Of 4,000 runs of mere noise about as many are wholly above 1 as an interval of 95 % allows."""
    draw = random.Random(pairs)
    above = 0
    for _ in range(4000):
        starts = [[round(10**9 * draw.lognormvariate(0, 0.1)) for _ in range(pairs)] for _ in range(2)]
        above += paired_ratio(*starts).low > 1
    assert above / 4000 < most


@given(_DURATIONS)
def test_the_same_samples_give_the_same_interval(pairs: list[tuple[int, int]]) -> None:
    """The figures are reproducible, and the interval contains its median."""
    over, under = zip(*pairs, strict=True)
    ratio = paired_ratio(over, under)
    assert ratio == paired_ratio(over, under)
    assert ratio.low <= ratio.median * 1.000001
    assert ratio.median <= ratio.high * 1.000001


def test_pairs_are_whole() -> None:
    """A duration without a partner is the caller's error."""
    with pytest.raises(ValueError, match="argument 2"):
        paired_ratio([1, 2], [1])


WROTE = (Growth("pocl", 3, 100),)
COLD = Sample(Arm.COLD, growth=WROTE)
WARM = Sample(Arm.WARM, hit=True)
FAST = Ratio(5, 4, 6)
PAIRS = [COLD, WARM] * 5


MISSED = Sample(Arm.WARM, missed="corrupt: the payload is damaged")
BOTH = Sample(Arm.WARM, growth=(Growth("pocl", 1, 1), Growth("cuda", 1, 1)))
PRINTED = [Sample(Arm.COLD, growth=WROTE, output="a"), Sample(Arm.WARM, output="b")] * 5
FEW = "too few to distinguish noise from effect; give --runs 5 or more"
NOISE = "the noise is larger than the effect: the ratio is between 0.80 and 1.90"
NOT_COLD = "the cold starts were not cold: they wrote nothing into their empty caches, so another was used"
BUSY = "other processes used 40 % of the machine; run it on a quiet one"
MORE = "a difference of {} % or more would have shown"
LATE = {"foreign_load": 1, "no_ratio": "it builds late"}
WIDE, AROUND, SLOWER = Ratio(1.2, 0.8, 1.9), Ratio(1, 0.95, 0.95 * NARROW - 0.001), Ratio(0.8, 0.7, 0.9)


def _failing(arm: Arm) -> list[Sample]:
    return [*PAIRS, Sample(arm, error="it crashed"), Sample(arm, error="later")]


@pytest.mark.parametrize(
    ("samples", "ratio", "evidence", "verdict", "reason"),
    [
        (PAIRS, FAST, {}, "faster", ""),
        (PAIRS, AROUND, {}, "no-difference", MORE.format(19)),
        (PAIRS, Ratio(0.95, 0.9, 1), {}, "no-difference", MORE.format(12)),
        *((PAIRS[:2], one, {}, "undecided", f"1 pair of starts is {FEW}") for one in (FAST, WIDE)),
        (PAIRS[:8], SLOWER, {}, "undecided", f"4 pairs of starts are {FEW}"),
        (PAIRS, WIDE, {}, "degraded", f"{NOISE}; 5 pairs are few, give more --runs"),
        (PAIRS * 2, WIDE, {}, "degraded", NOISE),
        (PAIRS, SLOWER, {}, "degraded", "the warm starts are slower than the cold ones"),
        *(
            (_failing(arm), None, {"foreign_load": 1}, "failed", f"a {arm} start failed: it crashed")
            for arm in (Arm.COLD, Arm.WARM)
        ),
        # A known error is reported even for one pair.
        *(
            (samples, FAST, {}, "degraded", "the warm starts missed: corrupt: the payload is damaged")
            for samples in ([*PAIRS, MISSED], [COLD, MISSED])
        ),
        ([COLD, BOTH, BOTH], FAST, {}, "degraded",
         "the warm starts missed: they wrote into cuda, pocl"),
        ([*PAIRS, Sample(Arm.COLD)], FAST, {}, "degraded", NOT_COLD),
        ([Sample(Arm.COLD), WARM] * 5, FAST, {"wrote": False}, "faster", ""),
        (PRINTED, FAST, {}, "faster", ""),
        (PRINTED, FAST, {"same_output": True}, "failed", "the output differs from start to start"),
        (PAIRS, FAST, {"foreign_load": LOADED}, "faster", ""),
        (PAIRS, FAST, {"foreign_load": 0.4}, "degraded", BUSY),
        (PAIRS, None, LATE, "degraded", "it builds late"),
        ([COLD, MISSED], None, LATE, "degraded", "the warm starts missed: corrupt: the payload is damaged"),
        (PAIRS, None, {}, "degraded", "there is no ratio"),
    ],
)  # fmt: skip
def test_the_first_rule_that_holds_is_the_verdict(
    samples: Sequence[Sample], ratio: Ratio | None, evidence: dict[str, Any], verdict: str, reason: str
) -> None:
    """A failed start, a miss, a cold start that was not, no ratio, load, too few pairs, noise."""
    measured = Measured(**{"samples": tuple(samples), "wrote": True, **evidence})
    assert judge(measured, ratio) == (verdict, reason)


def _case(verdict: BenchVerdict, ratio: Ratio | None, **more: str) -> BenchCase:
    starts = compared(ratio) if ratio else ()
    return replace(BenchCase("p", "t", verdict, starts=starts), **more)  # type: ignore[arg-type]


def test_a_gate_goes_by_the_low_end() -> None:
    """A median above the limit is not enough if the interval reaches below it."""
    assert list(below([_case(BenchVerdict.FASTER, Ratio(6, 5, 7))], 5)) == []
    assert list(below([_case(BenchVerdict.FASTER, Ratio(6, 4.5, 7))], 5)) == [
        "p on t is 4.50 times as fast at the low end of the interval, below 5"
    ]


@pytest.mark.parametrize("verdict", [one for one in BenchVerdict if one is not BenchVerdict.FASTER])
def test_a_gate_lets_nothing_through_that_is_not_faster(verdict: BenchVerdict) -> None:
    """A large but unreliable ratio does not pass, and each case is named with its variant."""
    cases = [_case(verdict, Ratio(90, 80, 99), variant="T=int"), _case(verdict, None, target="")]
    words = verdict.replace("-", " ")
    assert list(below(cases, 5)) == [
        f"p (T=int) on t is {words}, not 5 times as fast",
        f"p is {words}, not 5 times as fast",
    ]
