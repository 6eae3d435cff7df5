"""Samples folded into a case: medians, ratio, break-even, and what is said beside them."""

from collections.abc import Sequence

import pytest

from gpucache.answers.bench import Arm, BenchCase, BenchVerdict, BreakEven, Sample, Spread
from gpucache.answers.growth import Growth
from gpucache.bench.compare import NO_LAUNCH, NOT_LOADED, Evidence, Measured, fold
from gpucache.engine.hidden_caches import Clues

COLD, WARM, PEER = Arm.COLD, Arm.WARM, "pyopencl"
EMPTY = BenchCase("p", "t", BenchVerdict.FAILED)
MS = 1_000_000


def _sample(arm: str, *written: Growth, **phases: int) -> Sample:
    named = tuple((name.replace("_", " "), ns) for name, ns in phases.items())
    return Sample(arm, named, hit=arm is WARM, growth=written)


FIRST = (_sample(COLD, compile=200, kernels=1), _sample(WARM, load=50, kernels=1))
_PAIRS = (
    _sample(COLD, process_start=10, compile=90, kernels=10, first_launch=90),
    _sample(WARM, process_start=10, key=5, lookup=5, load=10, kernels=10, first_launch=10),
    _sample(WARM, process_start=10, key=5, lookup=15, load=10, kernels=10, first_launch=50),
    _sample(COLD, process_start=10, compile=290, kernels=10, first_launch=90),
    _sample(COLD, process_start=10, compile=190, kernels=10, first_launch=90),
    _sample(WARM, process_start=10, key=5, lookup=5, load=10, kernels=10, first_launch=60),
)


def _fold(samples: Sequence[Sample] = _PAIRS, **more: object) -> BenchCase:
    return fold(EMPTY, Measured(**{"first": FIRST, "samples": tuple(samples), **more}))  # type: ignore[arg-type]


def _starts(cold_ns: int, warm_ns: int, pairs: int = 5) -> list[Sample]:
    pair = [_sample(COLD, compile=cold_ns, kernels=0), _sample(WARM, load=warm_ns, kernels=0)]
    return pair * pairs


def test_cold_and_warm_have_their_spread() -> None:
    """Each side is the median and the extremes of its whole starts; the samples stay in their order."""
    case = _fold(late=True)
    assert (case.program, case.target, case.verdict) == ("p", "t", BenchVerdict.UNDECIDED)
    assert case.cold == Spread(300, 200, 400, 3)
    assert case.warm == Spread(100, 50, 100, 3)
    assert case.samples == _PAIRS


def test_the_ratio_is_of_pairs_in_whatever_order_they_were_taken() -> None:
    """The first cold start is divided by the first warm one, and so on."""
    ratio = _fold().ratio
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((4, 3, 4))


def test_phases_are_medians_in_the_order_of_a_start() -> None:
    """Each phase that occurred has both medians, and none on the side where it does not occur."""
    assert _fold(late=True).phases == (
        ("process start", 10, 10),
        ("key", None, 5),
        ("lookup", None, 5),
        ("compile", 190, None),
        ("load", None, 10),
        ("kernels", 10, 10),
        ("first launch", 90, 50),
    )


def test_what_a_cache_can_change_has_a_ratio_of_its_own() -> None:
    """Process and context are left out of both sides of a pair, and what remains is divided."""
    part = _fold().cached_part
    assert part is not None
    assert (part.cold, part.warm) == (Spread(290, 190, 390, 3), Spread(90, 40, 90, 3))
    assert part.ratio.median == pytest.approx(390 / 90)


def test_a_late_compiler_without_launch_has_no_ratio() -> None:
    """Where compiling goes on at the first launch and none was made, a ratio would mislead."""
    case = _fold(_starts(90, 9), late=True, warming_ns=5, foreign_load=1.0)
    assert (case.verdict, case.reason, case.ratio) == (BenchVerdict.DEGRADED, NO_LAUNCH, None)
    assert (case.cold, case.break_even, case.cached_part) == (Spread(90, 90, 90, 5), None, None)
    assert _fold(_starts(90, 9), late=False).ratio is not None


def test_a_warm_start_that_missed_degrades_it() -> None:
    """A miss among the counted warm starts is the verdict, however fast they were, and nothing fails."""
    missed = Sample(WARM, (("compile", 1),), missed="corrupt: the payload does not match")
    case = _fold([*_starts(900, 9), _sample(COLD, compile=900), missed])
    assert (case.verdict, case.reason) == (
        BenchVerdict.DEGRADED,
        "the warm starts missed: corrupt: the payload does not match",
    )
    assert case.ratio is not None


def test_whether_cold_starts_write_is_learnt_from_the_first() -> None:
    """Cold starts that wrote nothing are doubted only where the first one wrote something."""
    wrote = (_sample(COLD, Growth("pocl", 1, 9), compile=9), _sample(WARM, load=9))
    samples = _starts(90, 9)
    assert _fold(samples).verdict is BenchVerdict.FASTER
    case = _fold(samples, first=wrote)
    assert (case.verdict, case.reason.partition(":")[0]) == (
        BenchVerdict.DEGRADED,
        "the cold starts were not cold",
    )


def test_what_the_first_warm_start_writes_is_no_miss() -> None:
    """It fills the driver's cache, which is what it is for."""
    first = (_sample(COLD, compile=9), _sample(WARM, Growth("pocl", 1, 9), load=9))
    assert _fold(_starts(90, 9), first=first).verdict is BenchVerdict.FASTER


@pytest.mark.parametrize("arm", [COLD, WARM])
def test_a_failed_start_fails_the_case(arm: str) -> None:
    """The first failed start is the case's reason, and nothing is measured; the samples stay."""
    samples = (*_PAIRS, Sample(arm, (("context", 1),), error="the driver crashed"), Sample(COLD, error="b"))
    case = _fold(samples)
    assert (case.verdict, case.reason) == (
        BenchVerdict.FAILED,
        f"a {arm} start failed: the driver crashed",
    )
    assert (case.cold, case.warm, case.ratio) == (None, None, None)
    assert case.samples == samples


def test_a_first_start_that_fails_fails_the_case() -> None:
    """Where not even the uncounted starts succeed there is nothing to count."""
    case = _fold((), first=(Sample(COLD, error="no device"),))
    assert (case.verdict, case.reason) == (BenchVerdict.FAILED, "a cold start failed: no device")


def test_warming_pays_after_so_many_starts() -> None:
    """The starts are counted up: after two a warming of 200 that saves 90 each has not yet paid."""
    assert _fold(_starts(100, 10), warming_ns=200).break_even == BreakEven(200, 90, 3)
    assert _fold(_starts(100, 10), warming_ns=180).break_even == BreakEven(180, 90, 2)


def test_where_nothing_is_saved_nothing_pays() -> None:
    """There is no break-even where a warm start takes as long or longer, or building was not timed."""
    assert _fold(_starts(100, 100), warming_ns=200).break_even is None
    assert _fold(_starts(100, 110), warming_ns=200).break_even is None
    assert _fold(_starts(100, 10)).break_even is None


def _notes(samples: Sequence[Sample], **more: object) -> str:
    return "\n".join(_fold(samples, **more).notes)


def test_a_first_start_far_slower_than_the_others_is_named() -> None:
    """One and a half times the median is still usual; beyond that it is told with both figures."""
    usual = (_sample(COLD, compile=150 * MS), FIRST[1])
    slow = (_sample(COLD, compile=230 * MS), FIRST[1])
    assert "first start" not in _notes(_starts(100 * MS, 10 * MS), first=usual)
    assert "the first start took 2.3 times the median of the others (230 ms)" in _notes(
        _starts(100 * MS, 10 * MS), first=slow
    )


@pytest.mark.parametrize(("pairs", "decided"), [(1, False), (4, False), (5, True)])
def test_few_pairs_decide_nothing(pairs: int, decided: bool) -> None:
    """With fewer pairs than five there is no verdict, and nothing is said to pay."""
    case = _fold(_starts(100, 10, pairs), warming_ns=200)
    assert case.verdict is (BenchVerdict.FASTER if decided else BenchVerdict.UNDECIDED)
    assert (case.break_even is not None) is decided


def test_what_was_not_loaded_is_told() -> None:
    """Where no device of the target is here the case is measured, and says what it leaves out."""
    samples = [_sample(COLD, compile=100), _sample(WARM, lookup=5)] * 5
    assert NOT_LOADED in _fold(samples).caveats
    assert NOT_LOADED not in _fold().caveats


def test_a_warm_start_that_is_still_slow_names_the_phase_that_holds_the_time() -> None:
    """More than half of a cold start is slow, and so is more than a second; the longest phase is named."""
    half = [_sample(COLD, compile=100 * MS), _sample(WARM, context=20 * MS, load=40 * MS)] * 5
    long = [_sample(COLD, compile=9000 * MS), _sample(WARM, process_start=700 * MS, load=600 * MS)] * 5
    assert "a warm start still takes 60 ms; most of it is load (40 ms)" in _notes(half)
    assert "a warm start still takes 1.30 s; most of it is process start (700 ms)" in _notes(long)
    assert "still takes" not in _notes(_starts(100 * MS, 50 * MS))


def test_what_a_cold_start_writes_is_that_of_the_middle_one() -> None:
    """Of starts that wrote one, two and three entries the second is shown."""
    written = [Growth("pocl", count, 10 * count) for count in (3, 1, 2)]
    cold = [_sample(COLD, one, compile=100) for one in written]
    warm = [_sample(WARM, load=10)] * 3
    assert _fold([*cold, *warm]).growth == (Growth("pocl", 2, 20),)


def test_a_peer_stands_beside_the_pair() -> None:
    """A peer has its own spread and its own ratio to the cold starts, and moves neither cold nor warm."""
    peer = [_sample(PEER, compile=20)] * 5
    first = (*FIRST, _sample(PEER, Growth("pyopencl", 1, 1), compile=50))
    case = _fold([*_starts(100, 10), *peer], against=(PEER,), first=first)
    (arm,) = case.arms
    assert (arm.arm, arm.spread, arm.reason) == (PEER, Spread(20, 20, 20, 5), "")
    assert arm.ratio.median == pytest.approx(5)
    assert arm.cached_part is not None and arm.cached_part.warm.median_ns == 20
    assert case.warm == Spread(10, 10, 10, 5)


def test_a_peer_that_fails_costs_its_own_arm_alone() -> None:
    """The case is measured without it, and a note has its words."""
    failed = Sample(PEER, error="it is not installed")
    for case in (
        _fold(first=(*FIRST, failed), against=(PEER,)),
        _fold([*_PAIRS, failed], against=(PEER,)),
    ):
        assert (case.cold is not None, case.arms) == (True, ())
        assert "pyopencl does not take part: it is not installed" in case.caveats


def test_a_loaded_machine_reaches_the_verdict() -> None:
    """What others used meanwhile is part of the evidence."""
    assert _fold(_starts(100, 10), foreign_load=0.9).verdict is BenchVerdict.DEGRADED
    assert Evidence().foreign_load == 0


def _command(arm: str, duration_ns: int, *written: Growth, cpu_ns: int = 0) -> Sample:
    return Sample(arm, (("run", duration_ns),), growth=written, cpu_ns=cpu_ns)


_COMMANDS = [_command(COLD, 100, Growth("app", 1, 9), cpu_ns=MS), _command(WARM, 10)] * 5


def test_a_command_has_no_phases() -> None:
    """It is timed as a whole, so that nothing is said of loading, of a part, or of the longest phase."""
    case = _fold(_COMMANDS, first=(), wrote=True, warming_ns=200)
    assert (case.verdict, case.phases, case.caveats, case.notes) == (BenchVerdict.FASTER, (), (), ())
    assert (case.break_even, case.cached_part) == (BreakEven(200, 90, 3), None)


def test_cold_starts_are_doubted_where_warming_wrote() -> None:
    """A command whose first runs wrote into a cache writes at every cold start, or that was not cold."""
    silent = [_command(COLD, 100), _command(WARM, 10)] * 5
    assert _fold(silent, first=()).verdict is BenchVerdict.FASTER
    case = _fold(silent, first=(), wrote=True)
    assert case.reason.startswith("the cold starts were not cold")


def test_starts_that_are_the_same_have_no_ratio() -> None:
    """What was seen of a cache elsewhere is the better reason."""
    case = _fold(_COMMANDS, first=(), no_ratio="nothing is kept")
    assert (case.ratio, case.reason) == (None, "nothing is kept")
    seen = Clues(places=("/elsewhere",))
    case = _fold(_COMMANDS, first=(), no_ratio="nothing is kept", clues=seen)
    assert (case.verdict, case.reason) == (
        BenchVerdict.DEGRADED,
        "it also caches in /elsewhere, which no variable of gpucache moves",
    )


def test_the_users_own_caches_are_no_peer() -> None:
    """Starts among them are never doubted, but where one fails the case does."""
    own = _command(Arm.AS_IS, 50)
    (arm,) = _fold([*_COMMANDS, *[own] * 5], first=(), against=(Arm.AS_IS,)).arms
    assert (arm.arm, arm.spread.median_ns, arm.reason) == (Arm.AS_IS, 50, "")
    case = _fold([*_COMMANDS, Sample(Arm.AS_IS, error="no licence")], first=(), against=(Arm.AS_IS,))
    assert (case.verdict, case.reason) == (BenchVerdict.FAILED, "an as-is start failed: no licence")
