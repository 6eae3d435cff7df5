"""Samples folded into a case: medians, paired ratios, and when there is none."""

import pytest

from gpucache.engine.bench import NO_LAUNCH, fold
from gpucache.outcomes import Ratio, Sample, Spread, Temperature

COLD, WARM = Temperature.COLD, Temperature.WARM


def _sample(temperature: Temperature, **phases: int) -> Sample:
    return Sample(temperature, tuple((name.replace("_", " "), ns) for name, ns in phases.items()))


_PAIRS = [
    _sample(COLD, context=10, compile=90, kernels=10, first_launch=90),
    _sample(WARM, context=10, key=5, lookup=5, load=10, kernels=10, first_launch=10),
    _sample(COLD, context=10, compile=290, kernels=10, first_launch=90),
    _sample(WARM, context=10, key=5, lookup=15, load=10, kernels=10, first_launch=50),
    _sample(COLD, context=10, compile=190, kernels=10, first_launch=90),
    _sample(WARM, context=10, key=5, lookup=5, load=10, kernels=10, first_launch=60),
]


def test_cold_and_warm_have_their_spread() -> None:
    """Each side is the median and the extremes of its whole starts."""
    case = fold("p", "t", _PAIRS, late=True)
    assert (case.program, case.target, case.verdict, case.reason) == ("p", "t", "measured", "")
    assert case.cold == Spread(300, 200, 400, 3)
    assert case.warm == Spread(100, 50, 100, 3)
    assert case.samples == tuple(_PAIRS)


def test_the_ratio_is_paired() -> None:
    """Each cold start is divided by the warm one beside it, and the median is of those ratios."""
    assert fold("p", "t", _PAIRS, late=False).ratio == Ratio(4.0, 3.0, 4.0)


def test_phases_are_medians_in_the_order_of_a_start() -> None:
    """Each phase that occurred has both medians, and none on the side where it does not occur."""
    assert fold("p", "t", _PAIRS, late=True).phases == (
        ("context", 10, 10),
        ("key", None, 5),
        ("lookup", None, 5),
        ("compile", 190, None),
        ("load", None, 10),
        ("kernels", 10, 10),
        ("first launch", 90, 50),
    )


def test_a_late_compiler_without_launch_has_no_ratio() -> None:
    """Where compiling goes on at the first launch and none was made, a ratio would mislead."""
    samples = [_sample(COLD, context=1, compile=9, kernels=1), _sample(WARM, context=1, load=1, kernels=1)]
    case = fold("p", "t", samples, late=True)
    assert (case.verdict, case.reason, case.ratio) == ("no-ratio", NO_LAUNCH, None)
    assert case.cold is not None
    assert case.warm is not None
    assert fold("p", "t", samples, late=False).ratio is not None


def test_what_was_not_loaded_is_said() -> None:
    """Where no device of the target is here the case is measured, and says what it leaves out."""
    samples = [_sample(COLD, context=1, compile=99), _sample(WARM, context=1, key=4, lookup=5)]
    case = fold("p", "t", samples, late=False)
    assert (case.verdict, case.ratio) == ("measured", Ratio(10.0, 10.0, 10.0))
    assert case.reason == "nothing was loaded, as no device of this target is here"


@pytest.mark.parametrize("temperature", Temperature)
def test_a_failed_start_fails_the_case(temperature: Temperature) -> None:
    """The first failed start is the case's reason, and nothing is measured; the samples stay."""
    broken = Sample(temperature, (("context", 1),), error="the driver crashed")
    samples = [*_PAIRS, broken, Sample(COLD, error="later")]
    case = fold("p", "t", samples, late=False)
    assert (case.verdict, case.reason) == ("failed", f"a {temperature} start failed: the driver crashed")
    assert (case.cold, case.warm, case.ratio) == (None, None, None)
    assert case.samples == tuple(samples)
