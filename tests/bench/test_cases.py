"""Samples folded into a case: medians, ratio, break-even, and caveats."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gpucache.answers.bench import Arm, BenchCase, BenchVerdict, BreakEven, Sample, Spread
from gpucache.answers.entries import Growth
from gpucache.bench.compare import NO_LAUNCH, NOT_LOADED, Measured, fold
from gpucache.engine.warm.command import Clues

COLD, WARM, PEER = Arm.COLD, Arm.WARM, "pyopencl"
EMPTY = BenchCase("p", "t", BenchVerdict.FAILED)
MS = 1_000_000


def _sample(arm: str, *written: Growth, **phases: int) -> Sample:
    named = tuple((name.replace("_", " "), ns) for name, ns in phases.items())
    # A sample comes from another process, so its arm is equal to that of the case but not identical.
    return Sample("".join([*arm]), named, hit=arm is WARM, growth=written)


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
    """Process start and context are left out of both sides of a pair, and the rest is divided."""
    part = _fold().cached_part
    assert part is not None
    assert (part.cold, part.warm) == (Spread(290, 190, 390, 3), Spread(90, 40, 90, 3))
    assert part.ratio.median == pytest.approx(390 / 90)


def _command(arm: str, duration_ns: int, *written: Growth, cpu_ns: int = 0) -> Sample:
    return Sample(arm, (("run", duration_ns),), growth=written, cpu_ns=cpu_ns)


_COMMANDS = [_command(COLD, 100, Growth("app", 1, 9), cpu_ns=MS), _command(WARM, 10)] * 5
_SILENT = [_command(COLD, 100), _command(WARM, 10)] * 5
_WROTE = (_sample(COLD, Growth("pocl", 1, 9), compile=9), _sample(WARM, load=9))
_FILLED = (_sample(COLD, compile=9), _sample(WARM, Growth("pocl", 1, 9), load=9))
_MISSED = Sample(WARM, (("compile", 1),), missed="corrupt: it is damaged")
_NOT_COLD = "the cold starts were not cold: they wrote nothing into their empty caches, so another was used"
_BUSY = "other processes used 90 % of the machine; run it on a quiet one"
_ELSEWHERE = "it also caches in /elsewhere, which no variable of gpucache moves"
_ALIKE = {"first": (), "no_ratio": "nothing is kept"}


def _failing(arm: str) -> list[Sample]:
    return [*_PAIRS, Sample(arm, (("context", 1),), error="the driver crashed"), Sample(COLD, error="b")]


@pytest.mark.parametrize(
    ("samples", "more", "verdict", "reason"),
    [
        (_starts(90, 9), {"late": True, "warming_ns": 5, "foreign_load": 1.0}, "degraded", NO_LAUNCH),
        (_starts(90, 9), {"late": False}, "faster", ""),
        (
            [*_starts(90, 9), FIRST[0], _MISSED],
            {},
            "degraded",
            "the warm starts missed: corrupt: it is damaged",
        ),
        (_starts(90, 9), {"first": _WROTE}, "degraded", _NOT_COLD),
        (_starts(90, 9), {"first": _FILLED}, "faster", ""),
        (_starts(90, 9), {"foreign_load": 0.9}, "degraded", _BUSY),
        *((_failing(arm), {}, "failed", f"a {arm} start failed: the driver crashed") for arm in (COLD, WARM)),
        ((), {"first": (Sample(COLD, error="no device"),)}, "failed", "a cold start failed: no device"),
        (_SILENT, {"first": ()}, "faster", ""),
        (_SILENT, {"first": (), "wrote": True}, "degraded", _NOT_COLD),
        (_COMMANDS, _ALIKE, "degraded", "nothing is kept"),
        (_COMMANDS, {**_ALIKE, "clues": Clues(places=("/elsewhere",))}, "degraded", _ELSEWHERE),
    ],
)
def test_all_evidence_reaches_the_verdict(
    samples: Sequence[Sample], more: Mapping[str, Any], verdict: str, reason: str
) -> None:
    """A late compiler, misses, warm caches, load and failures; samples stay, and figures if all succeeded."""
    case = _fold(samples, **more)
    assert (case.verdict, case.reason) == (verdict, reason)
    assert case.samples[: len(samples)] == tuple(samples)
    assert ((case.cold, case.warm) == (None, None)) is (verdict == "failed")
    alike = bool(more.get("late") or "no_ratio" in more)
    assert (case.ratio is None) is (verdict == "failed" or alike)
    assert not alike or (case.break_even, case.cached_part) == (None, None)


@pytest.mark.parametrize(
    ("warm_ns", "more", "pays"),
    [
        (10, {"warming_ns": 200}, BreakEven(200, 90, 3)),
        (10, {"warming_ns": 180}, BreakEven(180, 90, 2)),
        (100, {"warming_ns": 200}, None),
        (110, {"warming_ns": 200}, None),
        (10, {}, None),
    ],
)
def test_warming_pays_after_so_many_starts(
    warm_ns: int, more: dict[str, int], pays: BreakEven | None
) -> None:
    """The number of starts; never if a warm start takes as long or longer, or building was not timed."""
    assert _fold(_starts(100, warm_ns), **more).break_even == pays


_USUAL = (_sample(COLD, compile=150 * MS), FIRST[1])
_SLOW = (_sample(COLD, compile=230 * MS), FIRST[1])
_HALF = [_sample(COLD, compile=100 * MS), _sample(WARM, context=20 * MS, load=40 * MS)] * 5
_LONG = [_sample(COLD, compile=9000 * MS), _sample(WARM, process_start=700 * MS, load=600 * MS)] * 5


@pytest.mark.parametrize(
    ("samples", "first", "note"),
    [
        (_starts(100 * MS, 10 * MS), _USUAL, ""),
        (
            _starts(100 * MS, 10 * MS),
            _SLOW,
            "the first start took 2.3 times the median of the others (230 ms)",
        ),
        (_HALF, FIRST, "a warm start still takes 60 ms; most of it is load (40 ms)"),
        (_LONG, FIRST, "a warm start still takes 1.30 s; most of it is process start (700 ms)"),
        (_starts(100 * MS, 50 * MS), FIRST, ""),
    ],
)
def test_slow_starts_have_a_note(samples: list[Sample], first: tuple[Sample, Sample], note: str) -> None:
    """A first start beyond 1.5 of the median; a warm start beyond half of a cold one, or a second."""
    said = "\n".join(_fold(samples, first=first).notes)
    assert note in said if note else not ("first start" in said or "still takes" in said)


def test_what_was_not_loaded_is_told() -> None:
    """Without a device of the target the case is measured, and a caveat says what is left out."""
    samples = [_sample(COLD, compile=100), _sample(WARM, lookup=5)] * 5
    assert NOT_LOADED in _fold(samples).caveats
    assert NOT_LOADED not in _fold().caveats


@pytest.mark.parametrize(("pairs", "decided"), [(1, False), (4, False), (5, True)])
def test_few_pairs_decide_nothing(pairs: int, decided: bool) -> None:
    """Fewer than five pairs give no verdict and no break-even."""
    case = _fold(_starts(100, 10, pairs), warming_ns=200)
    assert case.verdict is (BenchVerdict.FASTER if decided else BenchVerdict.UNDECIDED)
    assert (case.break_even is not None) is decided


def test_what_a_cold_start_writes_is_that_of_the_middle_one() -> None:
    """Of starts that wrote one, two and three entries the second is shown."""
    written = [Growth("pocl", count, 10 * count) for count in (3, 1, 2)]
    cold = [_sample(COLD, one, compile=100) for one in written]
    warm = [_sample(WARM, load=10)] * 3
    assert _fold([*cold, *warm]).growth == (Growth("pocl", 2, 20),)


def test_a_peer_stands_beside_the_pair() -> None:
    """A peer has its own spread and its own ratio to the cold starts, and affects neither cold nor warm."""
    peer = [_sample(PEER, compile=20)] * 5
    first = (*FIRST, _sample(PEER, Growth("pyopencl", 1, 1), compile=50))
    case = _fold([*_starts(100, 10), *peer], against=(PEER,), first=first)
    (arm,) = case.arms
    assert (arm.arm, arm.spread, arm.reason) == (PEER, Spread(20, 20, 20, 5), "")
    assert arm.ratio is not None and arm.ratio.median == pytest.approx(5)
    assert arm.cached_part is not None and arm.cached_part.warm.median_ns == 20
    assert case.warm == Spread(10, 10, 10, 5)


def test_a_peer_that_fails_costs_its_own_arm_alone() -> None:
    """The case is measured without it, and a note has its message."""
    failed = Sample(PEER, error="it is not installed")
    for case in (
        _fold(first=(*FIRST, failed), against=(PEER,)),
        _fold([*_PAIRS, failed], against=(PEER,)),
    ):
        assert (case.cold is not None, case.arms) == (True, ())
        assert "pyopencl does not take part: it is not installed" in case.caveats


def test_a_command_has_no_phases() -> None:
    """It is timed as a whole, so nothing is reported of loading, of a part, or of the longest phase."""
    case = _fold(_COMMANDS, first=(), wrote=True, warming_ns=200)
    assert (case.verdict, case.phases, case.caveats, case.notes) == (BenchVerdict.FASTER, (), (), ())
    assert (case.break_even, case.cached_part) == (BreakEven(200, 90, 3), None)


def test_the_users_own_caches_are_no_peer() -> None:
    """Starts with the user's own caches are never doubted, but a failure of one fails the case."""
    own = _command(Arm.AS_IS, 50)
    (arm,) = _fold([*_COMMANDS, *[own] * 5], first=(), against=(Arm.AS_IS,)).arms
    assert (arm.arm, arm.spread.median_ns, arm.reason) == (Arm.AS_IS, 50, "")
    case = _fold([*_COMMANDS, Sample(Arm.AS_IS, error="no licence")], first=(), against=(Arm.AS_IS,))
    assert (case.verdict, case.reason) == (BenchVerdict.FAILED, "an as-is start failed: no licence")
