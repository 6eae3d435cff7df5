"""Paired ratios and their interval: what they are made of, and that they can be repeated."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.bench.compare import paired_ratio

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
