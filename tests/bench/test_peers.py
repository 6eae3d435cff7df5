"""Which peers take part, what they make every start load, and when they are not as they claim."""

from collections.abc import Sequence

import pytest

from gpucache.answers.bench import Arm, ArmResult, BenchCase, BenchVerdict, Sample
from gpucache.answers.entries import Growth
from gpucache.bench.compare import Measured, fold
from gpucache.bench.sessions import PEERS, peers_caveats, peers_libraries, taking_part
from gpucache.caches.registry import SYSTEMS
from gpucache.model import Target

OPENCL, CUDA = Target("opencl", "pocl"), Target("cuda", "sm_90")
EVERY = ("pyopencl", "cuda.core", Arm.DRIVER)


def _arms(arm: str, first: Sequence[Sample], own: Sequence[Sample]) -> tuple[ArmResult, ...]:
    """The other arms of a case with two pairs."""
    pairs = [Sample(Arm.COLD, (("compile", 10),)), Sample(Arm.WARM, (("load", 1),))] * 2
    measured = Measured(first=tuple(first), samples=(*pairs, *own), against=(arm,))
    return fold(BenchCase("p", "t", BenchVerdict.FAILED), measured).arms


def test_a_peer_takes_part_where_its_library_builds() -> None:
    """Each of the two libraries is for one language, the driver's cache for both; the order is fixed."""
    assert taking_part(reversed(EVERY), OPENCL) == ("pyopencl", Arm.DRIVER)
    assert taking_part(EVERY, CUDA) == ("cuda.core", Arm.DRIVER)
    assert taking_part((), CUDA) == ()


def test_a_peer_is_called_as_its_cache_is() -> None:
    """Peers have the names of systems, so that their starts' entries are recognised."""
    assert set(PEERS) == {"pyopencl", "cuda.core"} <= set(SYSTEMS)


def test_a_peer_that_stays_away_is_told() -> None:
    """A sentence says which programs it is for, once."""
    assert list(peers_caveats(["cuda.core", "cuda.core", Arm.DRIVER], OPENCL)) == [
        "cuda.core does not take part: its cache is for CUDA programs"
    ]
    assert list(peers_caveats(["pyopencl"], OPENCL)) == []


def test_every_start_loads_a_peers_library() -> None:
    """Loading cuda.core is not an effect of its cache, so every start does it, and that is reported."""
    assert peers_libraries(("cuda.core", Arm.DRIVER), CUDA) == ("cuda.core",)
    assert list(peers_caveats(["cuda.core"], CUDA)) == [
        "every start loads cuda.core, so that loading it does not count as a cost of its cache"
    ]


def _doubt(arm: str, first: tuple[str, ...], later: tuple[str, ...] = ()) -> str:
    filled, wrote = (tuple(Growth(cache, 1, 1) for cache in caches) for caches in (first, later))
    own = [Sample(arm, (("compile", 5),), growth=wrote)] * 2
    (result,) = _arms(arm, [Sample(arm, growth=filled)], own)
    return result.reason


@pytest.mark.parametrize(
    ("arm", "first", "later", "doubt"),
    [
        ("pyopencl", ("pyopencl",), (), ""),
        ("pyopencl", ("pyopencl", "mesa"), (), ""),
        ("cuda.core", ("cuda.core",), (), ""),
        (Arm.DRIVER, ("pocl",), (), ""),
        (
            "pyopencl",
            ("pocl",),
            (),
            "it has no cache for this platform and leaves that to pocl",
        ),
        (Arm.DRIVER, (), (), "nothing is cached, so these are cold starts"),
        (Arm.DRIVER, ("pocl",), ("pocl",), "its starts missed: they wrote into pocl"),
    ],
)
def test_a_peer_is_what_filled_its_own_cache_once(
    arm: str, first: tuple[str, ...], later: tuple[str, ...], doubt: str
) -> None:
    """The growth of a peer's first start and of later ones shows whose cache was timed."""
    assert _doubt(arm, first, later) == doubt


def test_a_peer_that_failed_later_has_no_figures() -> None:
    """Fewer starts than pairs, or a failed one among them, give no arm."""
    good, bad = Sample(Arm.DRIVER, (("compile", 5),)), Sample(Arm.DRIVER, error="it crashed")
    for own in ([good], [good, bad], []):
        assert _arms(Arm.DRIVER, [], own) == ()
