"""Outcomes of evict."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpucache.outcomes.entries import CacheEntry

ALL = "--all"
"""The rule that chooses every entry."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry was not removed; ``reason`` is a sentence, with the remedy where there is one."""

    reason: str = "it changed since the scan"


@dataclass(frozen=True, slots=True)
class Removal:
    """One entry that evict plans to remove, and the rule that chose it."""

    entry: CacheEntry
    rule: str

    @property
    def refused(self) -> Kept | None:
        """Why the entry stays although it was chosen; None where its removal will be tried."""
        why = self.entry.stays or ("" if self.rule == ALL else self.entry.indivisible)
        return Kept(why) if why else None


@dataclass(frozen=True, slots=True)
class EvictPlan:
    """What would go and what stays."""

    removals: tuple[Removal, ...]
    kept: int
    kept_bytes: int

    def expected(self) -> "tuple[EvictOutcome, ...]":
        """What is to become of each planned removal."""
        return tuple(EvictOutcome(removal, removal.refused) for removal in self.removals)


@dataclass(frozen=True, slots=True)
class EvictOutcome:
    """What became of one planned removal."""

    removal: Removal
    kept: Kept | None = None
    """Why it stays; None where it was removed."""

    @property
    def removed(self) -> bool:
        """Whether it is gone."""
        return self.kept is None


@dataclass(frozen=True, slots=True)
class EvictSummary:
    """What was removed, what that freed in allocated blocks, and what stays."""

    removed: int
    freed_bytes: int
    kept: int
    kept_bytes: int


def summarise_evict(plan: EvictPlan, outcomes: Iterable[EvictOutcome]) -> EvictSummary:
    """The summary of a run of evict; an entry that changed since the scan counts as kept."""
    removed = freed = kept = kept_bytes = 0
    for outcome in outcomes:
        if outcome.removed:
            removed += 1
            freed += outcome.removal.entry.size_bytes
        else:
            kept += 1
            kept_bytes += outcome.removal.entry.size_bytes
    return EvictSummary(removed, freed, plan.kept + kept, plan.kept_bytes + kept_bytes)
