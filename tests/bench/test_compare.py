"""Ratios and their interval, the rules of a verdict one by one and in order, and what a gate says."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.bench import Arm, BenchCase, BenchVerdict, Ratio, Sample
from gpucache.answers.growth import Growth
from gpucache.bench.compare import LOADED, NARROW, Evidence, below, judge, paired_ratio

_DURATIONS = st.lists(st.tuples(st.integers(1, 10**12), st.integers(1, 10**12)), min_size=1, max_size=8)


def test_noise_that_both_of_a_pair_share_cancels() -> None:
    """Pairs that differ a thousandfold but each by the same ratio give that ratio and no interval."""
    ratio = paired_ratio([100, 1000, 100_000], [50, 500, 50_000])
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((2, 2, 2))


def test_the_median_is_of_the_ratios_and_not_a_ratio_of_medians() -> None:
    """Each duration is divided by its own partner first."""
    assert paired_ratio([10, 20, 90], [10, 10, 10]).median == pytest.approx(2)
    assert paired_ratio([10, 20, 90], [5, 100, 9]).median == pytest.approx(2)


def test_one_pair_has_no_width() -> None:
    """A single pair is its own interval."""
    ratio = paired_ratio([30], [10])
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((3, 3, 3))


def test_of_five_pairs_the_interval_reaches_to_the_extremes() -> None:
    """Few pairs are believed little: the interval of five spans all of them."""
    ratio = paired_ratio([20, 30, 40, 50, 60], [10] * 5)
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((2, 4, 6))


def test_many_pairs_leave_one_far_one_out_of_the_interval() -> None:
    """One pair among many that lies far off moves neither the median nor the ends."""
    ratio = paired_ratio([20] * 20 + [9000], [10] * 21)
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((2, 2, 2))


def test_the_interval_lies_between_the_pairs_next_to_it() -> None:
    """Of eight pairs the lowest is too sure and the second not sure enough; the end lies between them."""
    over = [round(10**6 * math.exp(step)) for step in range(8)]
    ratio = paired_ratio(over, [10**6] * 8)
    assert math.log(ratio.low) == pytest.approx(0.936, abs=0.001)
    assert math.log(ratio.high) == pytest.approx(7 - 0.936, abs=0.001)


@pytest.mark.parametrize(("pairs", "most"), [(5, 0.038), (6, 0.031), (7, 0.033), (8, 0.033), (15, 0.031)])
def test_noise_is_seldom_taken_for_an_effect(pairs: int, most: float) -> None:
    """Of 4,000 runs of mere noise about as many lie wholly above 1 as an interval of 95 % allows."""
    draw = random.Random(pairs)
    above = 0
    for _ in range(4000):
        starts = [[round(10**9 * draw.lognormvariate(0, 0.1)) for _ in range(pairs)] for _ in range(2)]
        above += paired_ratio(*starts).low > 1
    assert above / 4000 < most


@given(_DURATIONS)
def test_the_same_samples_give_the_same_interval(pairs: list[tuple[int, int]]) -> None:
    """Figures can be computed again; the interval holds its median."""
    over, under = zip(*pairs, strict=True)
    ratio = paired_ratio(over, under)
    assert ratio == paired_ratio(over, under)
    assert ratio.low <= ratio.median * 1.000001
    assert ratio.median <= ratio.high * 1.000001


def test_twice_as_fast_and_half_as_fast_are_equally_far() -> None:
    """Of pairs at 2 and at 1/2 the middle is 1."""
    assert paired_ratio([20, 10], [10, 20]).median == pytest.approx(1)


def test_a_clock_that_stood_still_divides_by_nothing() -> None:
    """A duration of zero counts as a nanosecond."""
    assert paired_ratio([0, 8], [0, 0]).high == pytest.approx(8)


def test_pairs_are_whole() -> None:
    """A duration without a partner is an error of the caller's."""
    with pytest.raises(ValueError, match="argument 2"):
        paired_ratio([1, 2], [1])


WROTE = (Growth("pocl", 3, 100),)
COLD = Sample(Arm.COLD, growth=WROTE)
WARM = Sample(Arm.WARM, hit=True)
FAST = Ratio(5, 4, 6)
PAIRS = [COLD, WARM] * 5


def _judge(
    samples: Sequence[Sample] = PAIRS, ratio: Ratio | None = FAST, evidence: Evidence | None = None
) -> tuple[str, str]:
    verdict, reason = judge(samples, ratio, evidence or Evidence())
    return verdict.value, reason


def test_an_interval_above_one_is_faster() -> None:
    """Where nothing speaks against it and even the low end lies above 1, warm is faster, without a reason."""
    assert _judge() == ("faster", "")


def test_a_narrow_interval_around_one_is_no_difference() -> None:
    """An interval that holds 1 and is narrow says that there is nothing to see, and what would have shown."""
    narrow = Ratio(1, 0.95, 0.95 * NARROW - 0.001)
    assert _judge(ratio=narrow) == ("no-difference", "one of 19 % or more would have shown")
    assert _judge(ratio=Ratio(0.95, 0.9, 1)) == ("no-difference", "one of 12 % or more would have shown")


@pytest.mark.parametrize(("pairs", "words"), [(1, "1 pair of starts is"), (4, "4 pairs of starts are")])
def test_few_pairs_decide_nothing(pairs: int, words: str) -> None:
    """Of four pairs of mere noise one run in sixteen has all of them on one side."""
    for ratio in (FAST, Ratio(1, 1, 1), Ratio(0.5, 0.5, 0.5), Ratio(1, 0.2, 5)):
        assert _judge(PAIRS[: 2 * pairs], ratio) == (
            "undecided",
            f"{words} too few to tell noise from effect; take 5 or more",
        )


def test_few_pairs_hide_no_doubt() -> None:
    """What is known to be wrong is told of one pair, too."""
    missed = Sample(Arm.WARM, missed="corrupt: x")
    assert _judge([COLD, missed])[0] == "degraded"


def test_a_wide_interval_around_one_is_noise() -> None:
    """An interval that holds 1 and is wide says nothing at all."""
    verdict, reason = _judge(ratio=Ratio(1.2, 0.8, 1.9))
    assert verdict == "degraded"
    assert reason == (
        "the noise is larger than the effect: the ratio lies between 0.80 and 1.90; "
        "5 pairs are few, give more --runs"
    )
    assert "--runs" not in _judge(PAIRS * 2, Ratio(1.2, 0.8, 1.9))[1]


def test_slower_is_degraded() -> None:
    """An interval below 1 is named for what it is."""
    assert _judge(ratio=Ratio(0.8, 0.7, 0.9)) == ("degraded", "the warm starts are slower than the cold ones")


@pytest.mark.parametrize("arm", [Arm.COLD, Arm.WARM])
def test_a_start_that_failed_fails_it(arm: Arm) -> None:
    """The first failed start is the reason, whatever else is wrong."""
    broken = [*PAIRS, Sample(arm, error="the driver crashed"), Sample(arm, error="later")]
    assert _judge(broken, None, Evidence(foreign_load=1)) == (
        "failed",
        f"a {arm} start failed: the driver crashed",
    )


def test_a_warm_start_that_missed_is_told_with_its_verdict() -> None:
    """One miss among the warm starts is enough, and its explanation is the reason."""
    samples = [*PAIRS, Sample(Arm.WARM, missed="corrupt: the payload is damaged")]
    assert _judge(samples) == ("degraded", "the warm starts missed: corrupt: the payload is damaged")


def test_a_warm_start_that_wrote_missed() -> None:
    """What wrote into a driver's cache had not found it there; every such cache is named once."""
    wrote = [Sample(Arm.WARM, growth=(Growth("pocl", 1, 1), Growth("cuda", 1, 1)))] * 2
    assert _judge([COLD, *wrote])[1] == "the warm starts missed: they wrote into cuda, pocl"


def test_a_cold_start_that_wrote_nothing_was_not_cold() -> None:
    """Where cold starts are known to write and one did not, something answered it."""
    verdict, reason = _judge([*PAIRS, Sample(Arm.COLD)])
    assert (verdict, reason.partition(":")[0]) == ("degraded", "the cold starts were not cold")


def test_where_nothing_writes_a_cold_start_need_not() -> None:
    """A driver without a cache leaves nothing, and that is no doubt."""
    assert _judge([Sample(Arm.COLD), WARM] * 5, evidence=Evidence(cold_writes=False)) == ("faster", "")


def test_output_counts_only_where_it_must_be_the_same() -> None:
    """Programs may print what they like, unless the user says otherwise."""
    samples = [Sample(Arm.COLD, growth=WROTE, output="a"), Sample(Arm.WARM, output="b")] * 5
    assert _judge(samples) == ("faster", "")
    assert _judge(samples, evidence=Evidence(same_output=True)) == (
        "failed",
        "the output differs from start to start",
    )


def test_a_loaded_machine_is_not_believed() -> None:
    """Up to a quarter of the cores may be used by others; more is told in per cent."""
    assert _judge(evidence=Evidence(foreign_load=LOADED)) == ("faster", "")
    verdict, reason = _judge(evidence=Evidence(foreign_load=0.4))
    assert (verdict, "40 %" in reason) == ("degraded", True)


def test_without_a_ratio_the_reason_why_stands() -> None:
    """Why there is no ratio outweighs a loaded machine, and not a miss."""
    evidence = Evidence(foreign_load=1, no_ratio="it builds late")
    assert _judge(ratio=None, evidence=evidence) == ("degraded", "it builds late")
    assert _judge([COLD, Sample(Arm.WARM, missed="evicted: x")], None, evidence)[1].endswith("evicted: x")
    assert _judge(ratio=None) == ("degraded", "there is no ratio")


def _case(verdict: BenchVerdict, ratio: Ratio | None, **more: str) -> BenchCase:
    return BenchCase(**{"program": "p", "target": "t", "verdict": verdict, "ratio": ratio, **more})  # type: ignore[arg-type]


def test_a_gate_goes_by_the_low_end() -> None:
    """A median above the mark is not enough where the interval reaches below."""
    assert list(below([_case(BenchVerdict.FASTER, Ratio(6, 5, 7))], 5)) == []
    assert list(below([_case(BenchVerdict.FASTER, Ratio(6, 4.5, 7))], 5)) == [
        "p on t is 4.50 times as fast at the low end of the interval, below 5"
    ]


@pytest.mark.parametrize("verdict", [one for one in BenchVerdict if one is not BenchVerdict.FASTER])
def test_a_gate_lets_nothing_through_that_is_not_faster(verdict: BenchVerdict) -> None:
    """A large ratio that is not believed does not pass, and each case is named with its variant."""
    cases = [_case(verdict, Ratio(90, 80, 99), variant="T=int"), _case(verdict, None, target="")]
    words = verdict.replace("-", " ")
    assert list(below(cases, 5)) == [
        f"p (T=int) on t is {words}, not 5 times as fast",
        f"p is {words}, not 5 times as fast",
    ]
