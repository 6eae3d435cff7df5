"""Other caches in the same run: which take part on a target, and what their starts come to.

Pure. Owns which peer belongs to which backend, and the rule that a peer is what it claims to be only if
its first start filled a cache of its own and no later one did. Must not know how a peer builds.
"""

from collections.abc import Iterable, Iterator, Sequence

from gpucache.bench.compare import compare_cached, paired_ratio
from gpucache.model import Target
from gpucache.outcomes import Arm, ArmResult, Sample, Spread

PEERS = (Arm.PYOPENCL, Arm.CUDA_CORE, Arm.DRIVER)
_BACKENDS = {Arm.PYOPENCL: ("opencl", "OpenCL programs"), Arm.CUDA_CORE: ("cuda", "CUDA programs")}


def taking_part(wanted: Iterable[Arm], target: Target) -> tuple[Arm, ...]:
    """The peers that can build for a target, each once, in a fixed order."""
    asked = set(wanted)
    return tuple(arm for arm in PEERS if arm in asked and _fits(arm, target))


def libraries(arms: Iterable[Arm]) -> tuple[str, ...]:
    """The peers that are libraries, which every start of their run loads: else theirs alone would pay."""
    return tuple(arm.value for arm in arms if arm in _BACKENDS)


def caveats(wanted: Iterable[Arm], target: Target) -> Iterator[str]:
    """A sentence for each peer that cannot build for a target, or that changes what every start loads."""
    for arm in dict.fromkeys(wanted):
        if arm is Arm.CUDA_CORE and _fits(arm, target):
            yield f"every start loads {arm}, so that its loading is not taken for its cache's"
        if not _fits(arm, target):
            yield f"{arm} does not take part: its cache is for {_BACKENDS[arm][1]}"


def results(
    arms: Iterable[Arm], first: Sequence[Sample], samples: Sequence[Sample], cold: Sequence[Sample]
) -> Iterator[ArmResult]:
    """Each arm beside the cold starts of its pairs; nothing for one that failed."""
    for arm in arms:
        own = [sample for sample in samples if sample.arm is arm]
        if not own or len(own) != len(cold) or any(sample.error for sample in own):
            continue
        durations = [sample.total_ns for sample in own]
        ratio = paired_ratio([sample.total_ns for sample in cold], durations)
        doubt = _doubt(arm, first, own) if arm in PEERS else ""
        yield ArmResult(arm, Spread.of(durations), ratio, doubt, compare_cached(cold, own))


def failures(arms: Iterable[Arm], samples: Iterable[Sample]) -> Iterator[str]:
    """A sentence for each peer that failed, in its own words."""
    failed: dict[Arm, str] = {}
    for sample in samples:
        if sample.error:
            failed.setdefault(sample.arm, sample.error)
    return (f"{arm} does not take part: {failed[arm]}" for arm in arms if arm in failed)


def _fits(arm: Arm, target: Target) -> bool:
    return arm not in _BACKENDS or _BACKENDS[arm][0] == target.backend


def _doubt(arm: Arm, first: Sequence[Sample], own: Sequence[Sample]) -> str:
    """Why a peer's starts are not what they seem to be; empty where they are."""
    wrote = _caches(own)
    if wrote:
        return f"its starts missed: they wrote into {', '.join(wrote)}"
    filled = _caches(sample for sample in first if sample.arm is arm)
    if not filled:
        return "nothing is cached here, so these are cold starts"
    if arm is Arm.DRIVER or arm.value in filled:
        return ""
    return f"it keeps nothing of its own for this platform and leaves that to {', '.join(filled)}"


def _caches(samples: Iterable[Sample]) -> list[str]:
    return sorted({growth.cache for sample in samples for growth in sample.growth})
