"""Outcomes of evict."""

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gpucache.host import os_errors
from gpucache.outcomes.entries import CacheEntry

ALL = "--all"
"""The rule that chooses every entry."""


class Kept(NamedTuple):
    """An entry was not removed; ``reason`` is a sentence, with the remedy where there is one."""

    reason: str = "it changed since the scan"
    gone: bool = False
    """Whether somebody else removed it first, which is what was wanted."""

    @classmethod
    def by(cls, error: OSError, place: object) -> "Kept":
        """Why a removal below a place failed, with what mends that."""
        if isinstance(error, FileNotFoundError):
            return GONE
        if error.errno == errno.EROFS:
            return cls(f"{place} is on a read-only file system; mount it writable")
        return cls(
            f"it cannot be removed from {place} ({os_errors.reason(error)}); {os_errors.remedy(error)}"
        )


GONE = Kept("it was removed since the scan", gone=True)


class Removal(NamedTuple):
    """One entry that evict plans to remove, and the rule that chose it."""

    entry: CacheEntry
    rule: str

    @property
    def refused(self) -> Kept | None:
        """Why the entry stays although it was chosen; None where its removal will be tried."""
        why = self.entry.stays or ("" if self.rule == ALL else self.entry.indivisible)
        return Kept(why) if why else None


class EvictPlan(NamedTuple):
    """What would go and what stays."""

    removals: tuple[Removal, ...]
    kept: int
    kept_bytes: int

    def expected(self) -> "tuple[EvictOutcome, ...]":
        """What is to become of each planned removal."""
        return tuple(EvictOutcome(removal, removal.refused, tried=False) for removal in self.removals)

    def foreseen(self, left: Iterable[str]) -> "Foreseen":
        """The summary of what a run would do."""
        going = [one.entry.size_bytes for one in self.removals if one.refused is None]
        chosen = sum(one.entry.size_bytes for one in self.removals)
        kept, kept_bytes = self.kept + len(self.removals), self.kept_bytes + chosen
        return Foreseen(0, 0, kept, kept_bytes, tuple(left), len(going), sum(going))


class EvictOutcome(NamedTuple):
    """What became of one planned removal."""

    removal: Removal
    kept: Kept | None = None
    """Why it stays; None where it was removed."""
    tried: bool = True
    """False for what a plan expects."""

    @property
    def removed(self) -> bool:
        """Whether this run removed it."""
        return self.kept is None

    @property
    def stays(self) -> bool:
        """Whether it is still there."""
        return self.kept is not None and not self.kept.gone


@dataclass(frozen=True, slots=True)
class EvictSummary:
    """What was removed, what that freed in allocated blocks, and what stays."""

    removed: int
    freed_bytes: int
    kept: int
    kept_bytes: int
    left: tuple[str, ...] = ()
    """What ``--all`` leaves besides entries, a sentence each."""


@dataclass(frozen=True, slots=True)
class Foreseen(EvictSummary):
    """Of a plan, which removes nothing yet: what a run of it would remove."""

    would_remove: int = 0
    would_free_bytes: int = 0


def summarise_evict(plan: EvictPlan, outcomes: Iterable[EvictOutcome]) -> EvictSummary:
    """The summary of a run of evict; what changed since the scan counts as kept, what was gone as nothing."""
    removed = freed = kept = kept_bytes = 0
    for outcome in outcomes:
        if outcome.removed:
            removed += 1
            freed += outcome.removal.entry.size_bytes
        elif outcome.stays:
            kept += 1
            kept_bytes += outcome.removal.entry.size_bytes
    return EvictSummary(removed, freed, plan.kept + kept, plan.kept_bytes + kept_bytes)
