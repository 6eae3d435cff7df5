"""Carry out an eviction plan over any cache, one removal at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from gpucache.answers.entries import CacheEntry
from gpucache.answers.evict import EvictOutcome, Removal
from gpucache.caches.interface import Cache, RemovesTogether, Rescanned
from gpucache.engine.eviction_policy import Ask, EvictPlan, Limits, plan

Passed = Callable[[CacheEntry], object]
"""Is told of each entry that no rule chose."""


def entries_of(cache: Cache, *, heads: bool = True) -> Iterable[CacheEntry]:
    """All entries, to be walked several times, also while some are removed: as they are now, where a cache
    cannot be scanned meanwhile. Without ``heads`` they need tell nothing but what a removal of all needs."""
    return cache.entries(heads=heads) if isinstance(cache, Rescanned) else list(cache.scan())


def plan_evict(cache: Cache, limits: Limits, now_ns: int, toolchains: Ask = lambda _: ()) -> EvictPlan:
    """What would be removed from a cache."""
    return plan(entries_of(cache), limits, now_ns, toolchains)


def foresee(evict_plan: EvictPlan, passed: Passed = lambda _: None) -> Iterator[EvictOutcome]:
    """What is to become of each planned removal."""
    for removal in evict_plan.removals(passed):
        yield EvictOutcome(removal, removal.refused, tried=False)


def run_evict(cache: Cache, evict_plan: EvictPlan, passed: Passed = lambda _: None) -> Iterator[EvictOutcome]:
    """Remove the planned entries; one that changed since it was chosen stays."""
    removals = evict_plan.removals(passed)
    if not isinstance(cache, RemovesTogether):
        for removal in removals:
            yield EvictOutcome(removal, removal.refused or cache.remove(removal.entry, removal.rule))
        return
    for first in removals:
        yield from _together(cache, chain([first], islice(removals, cache.together - 1)), evict_plan.rule)


def _together(cache: RemovesTogether, some: Iterable[Removal], rule: str) -> Iterator[EvictOutcome]:
    """Removals that share what one costs. A cache may read them all before it tells of the first."""
    asked: deque[Removal] = deque()

    def going() -> Iterator[CacheEntry]:
        for removal in some:
            asked.append(removal)
            if removal.refused is None:
                yield removal.entry

    def refused() -> Iterator[EvictOutcome]:
        while asked and (why := asked[0].refused) is not None:
            yield EvictOutcome(asked.popleft(), why)

    for kept in cache.remove_together(going(), rule):
        yield from refused()
        yield EvictOutcome(asked.popleft(), kept)
    yield from refused()


def trim(cache: Cache, max_size_bytes: int, now_ns: int) -> int:
    """Keep a cache under its bound; returns how many entries were removed."""
    outcomes = run_evict(cache, plan_evict(cache, Limits(max_size_bytes=max_size_bytes), now_ns))
    return sum(outcome.removed for outcome in outcomes)
