"""Carry out an eviction plan over any cache, one removal at a time."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter

from gpucache.caches.interface import Cache, RemovesTogether
from gpucache.engine.eviction_policy import Limits, plan
from gpucache.model import Toolchain
from gpucache.outcomes import EvictOutcome, EvictPlan


def plan_evict(cache: Cache, limits: Limits, now_ns: int, toolchains: Iterable[Toolchain] = ()) -> EvictPlan:
    """What would be removed from a cache as it is now."""
    return plan(cache.scan(), limits, now_ns, toolchains)


def run_evict(cache: Cache, evict_plan: EvictPlan) -> Iterator[EvictOutcome]:
    """Remove the planned entries; one that changed since the scan stays."""
    if not isinstance(cache, RemovesTogether):
        for removal in evict_plan.removals:
            yield EvictOutcome(removal, removal.refused or cache.remove(removal.entry, removal.rule))
        return
    yield from (outcome for outcome in evict_plan.expected() if not outcome.removed)
    going = [removal for removal in evict_plan.removals if removal.refused is None]
    for rule, chosen in groupby(going, attrgetter("rule")):
        while some := list(islice(chosen, cache.together)):
            kept = cache.remove_together([removal.entry for removal in some], rule)
            yield from map(EvictOutcome, some, kept)


def joined(plans: Sequence[EvictPlan]) -> EvictPlan:
    """The plans of several caches as one."""
    return EvictPlan(
        tuple(removal for one in plans for removal in one.removals),
        sum(one.kept for one in plans),
        sum(one.kept_bytes for one in plans),
    )


def trim(cache: Cache, max_size_bytes: int, now_ns: int) -> int:
    """Keep a cache under its bound; returns how many entries were removed."""
    outcomes = run_evict(cache, plan_evict(cache, Limits(max_size_bytes=max_size_bytes), now_ns))
    return sum(outcome.removed for outcome in outcomes)
