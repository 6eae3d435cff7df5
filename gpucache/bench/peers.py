"""Other caches in the same run: which take part on a target, and what their starts come to.

Pure. Owns the rule that a peer is what it claims to be only if its first start filled a cache of its own and
no later one did. Which peers there are and how they build is in ``sessions``.
"""

from collections.abc import Iterable, Iterator, Sequence

from gpucache.bench.compare import compare_cached, paired_ratio
from gpucache.bench.sessions import PEERS
from gpucache.model import Target
from gpucache.outcomes.bench import Arm, ArmResult, Sample, Spread


def is_peer(arm: str) -> bool:
    """Whether starts of an arm use neither our cache, nor none, nor whatever the user has."""
    return arm not in (Arm.COLD, Arm.WARM, Arm.AS_IS)


def taking_part(wanted: Iterable[str], target: Target) -> tuple[str, ...]:
    """The peers that can build for a target, each once, in a fixed order."""
    asked = set(wanted)
    return tuple(arm for arm in (*_named(target), Arm.DRIVER) if arm in asked)


def libraries(arms: Iterable[str], target: Target) -> tuple[str, ...]:
    """The peers that are libraries, which every start of their run loads: else theirs alone would pay."""
    return tuple(arm for arm in arms if arm in _named(target))


def caveats(wanted: Iterable[str], target: Target) -> Iterator[str]:
    """A sentence for each peer that cannot build for a target, or that changes what every start loads."""
    here = _named(target)
    for arm in dict.fromkeys(wanted):
        if arm in here and PEERS[arm].loaded_apart:
            yield f"every start loads {arm}, so that its loading is not taken for its cache's"
        if arm in PEERS and arm not in here:
            yield f"{arm} does not take part: its cache is for {PEERS[arm].programs}"


def switches(arm: str) -> Iterator[tuple[str, str | None]]:
    """The variables that turn the peers' caches off; None unsets one, as that of the arm's own peer."""
    for name, peer in PEERS.items():
        if peer.switch:
            yield peer.switch, None if arm == name else "1"


def _named(target: Target) -> tuple[str, ...]:
    return tuple(name for name, peer in PEERS.items() if peer.backend == target.backend)


def results(
    arms: Iterable[str], first: Sequence[Sample], samples: Sequence[Sample], cold: Sequence[Sample]
) -> Iterator[ArmResult]:
    """Each arm beside the cold starts of its pairs; nothing for one that failed."""
    for arm in arms:
        own = [sample for sample in samples if sample.arm == arm]
        if not own or len(own) != len(cold) or any(sample.error for sample in own):
            continue
        durations = [sample.total_ns for sample in own]
        ratio = paired_ratio([sample.total_ns for sample in cold], durations)
        doubt = _doubt(arm, first, own) if is_peer(arm) else ""
        yield ArmResult(arm, Spread.of(durations), ratio, doubt, compare_cached(cold, own))


def failures(arms: Iterable[str], samples: Iterable[Sample]) -> Iterator[str]:
    """A sentence for each peer that failed, in its own words."""
    failed: dict[str, str] = {}
    for sample in samples:
        if sample.error:
            failed.setdefault(sample.arm, sample.error)
    return (f"{arm} does not take part: {failed[arm]}" for arm in arms if arm in failed)


def _doubt(arm: str, first: Sequence[Sample], own: Sequence[Sample]) -> str:
    """Why a peer's starts are not what they seem to be; empty where they are."""
    wrote = _caches(own)
    if wrote:
        return f"its starts missed: they wrote into {', '.join(wrote)}"
    filled = _caches(sample for sample in first if sample.arm == arm)
    if not filled:
        return "nothing is cached here, so these are cold starts"
    if arm == Arm.DRIVER or arm in filled:
        return ""
    return f"it keeps nothing of its own for this platform and leaves that to {', '.join(filled)}"


def _caches(samples: Iterable[Sample]) -> list[str]:
    return sorted({growth.cache for sample in samples for growth in sample.growth})
