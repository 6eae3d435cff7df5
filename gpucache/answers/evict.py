"""Outcomes of evict."""

import errno
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

from gpucache.answers.entries import CacheEntry
from gpucache.answers.told import told
from gpucache.host import os_errors

ALL = "--all"
"""The rule that chooses every entry."""


class Kept(NamedTuple):
    """An entry was not removed."""

    reason: str = "it changed since the scan"
    """Why it stays, where its owner keeps it."""
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
    """The filter."""

    @property
    def refused(self) -> Kept | None:
        """Why the entry stays although it was chosen; None where its removal will be tried."""
        why = self.entry.stays or ("" if self.rule == ALL else self.entry.indivisible)
        return Kept(why) if why else None


@told("removal.entry.* rule=removal.rule removed=done kept_because=kept.reason")
class EvictOutcome(NamedTuple):
    """An entry that a filter chose."""

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
    def done(self) -> bool:
        """Whether it is gone."""
        return self.removed and self.tried

    @property
    def stays(self) -> bool:
        """Whether it is still there."""
        return self.kept is not None and not self.kept.gone


@told("removed freed_bytes kept kept_bytes left unread")
@dataclass(slots=True)
class EvictSummary:
    """What was removed, what that freed in allocated blocks, and what stays; counted as outcomes pass."""

    removed: int = 0
    """Entries that are gone."""
    freed_bytes: int = 0
    """What that freed."""
    kept: int = 0
    """Entries that stay."""
    kept_bytes: int = 0
    """What they take."""
    left: tuple[str, ...] = ()
    """What --all leaves in the caches besides entries, a sentence each."""
    unread: tuple[str, ...] = ()
    """Why not all of the caches could be read, a sentence each; exit 5."""
    chosen: int = 0
    """How many entries a rule chose."""
    stay: int = 0
    """How many of those are still there."""

    def of(self, outcomes: Iterable[EvictOutcome]) -> Iterator[EvictOutcome]:
        """Passes outcomes through, one by one, and counts them.

        What changed since it was chosen counts as kept, what somebody else removed as nothing.
        """
        for outcome in outcomes:
            self.chosen += 1
            if outcome.removed:
                self.count_removed(outcome.removal.entry)
            elif outcome.stays:
                self.stay += 1
                self.keep(outcome.removal.entry)
            yield outcome

    def count_removed(self, entry: CacheEntry) -> None:
        """Count an entry that was removed."""
        self.removed += 1
        self.freed_bytes += entry.size_bytes

    def keep(self, entry: CacheEntry) -> None:
        """Count an entry that stays."""
        self.kept += 1
        self.kept_bytes += entry.size_bytes

    def include(self, other: Self) -> None:
        """Count what another summary of this type counted."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@told("would_remove would_free_bytes removed freed_bytes kept kept_bytes left unread")
@dataclass(slots=True)
class Foreseen(EvictSummary):
    """Of a plan, which removes nothing yet: what a run of it would remove."""

    would_remove: int = 0
    """Entries that would go."""
    would_free_bytes: int = 0
    """What that would free."""

    def count_removed(self, entry: CacheEntry) -> None:
        """Count an entry that would be removed and is still there."""
        self.would_remove += 1
        self.would_free_bytes += entry.size_bytes
        self.keep(entry)
