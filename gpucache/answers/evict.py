"""The results of evict: the outcome of each entry that a filter chose."""

import errno
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, NamedTuple, Self

from gpucache.answers.console import (
    NAMED,
    ROWS_SHOWN,
    SIZE,
    Block,
    Column,
    Grid,
    more_rows,
    named,
    one_line,
    plain,
)
from gpucache.answers.entries import CacheEntry, Location, unread_words
from gpucache.host import os_errors
from gpucache.json_keys import json_keys
from gpucache.units import format_count, format_list, format_size

ALL = "--all"
"""The rule that chooses every entry."""


class Kept(NamedTuple):
    """An entry was not removed."""

    reason: Annotated[str, "Why it stays, where its owner keeps it."] = "it changed since the scan"
    gone: Annotated[bool, "Whether another process removed it first, with the same result."] = False
    pinned: Annotated[bool, "Whether its user keeps it, which is no failure."] = False

    @classmethod
    def by(cls, error: OSError, place: object) -> "Kept":
        """The reason why a removal below a place failed, with its remedy."""
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
    rule: Annotated[str, "The filter."]
    part_bytes: Annotated[int, "The bytes removed from an entry whose binary stays; 0 if all of it goes."] = 0

    @property
    def refused(self) -> Kept | None:
        """Why the chosen entry cannot be removed; None if its removal will be tried."""
        if self.entry.pinned:
            return Kept(f"it is pinned as {self.entry.pinned}", pinned=True)
        why = self.entry.stays or ("" if self.rule == ALL else self.entry.indivisible)
        return Kept(why) if why else None


@json_keys("removal.entry.* rule=removal.rule removed=done stripped kept_because=kept.reason")
class EvictOutcome(NamedTuple):
    """An entry that a filter chose."""

    removal: Removal
    kept: Kept | None = None
    """Why the entry was not removed; None if it was."""
    tried: bool = True
    """False if the removal is only planned."""

    @property
    def removed(self) -> bool:
        """Whether this run removed it."""
        return self.kept is None

    @property
    def done(self) -> bool:
        """Whether the entry was removed completely."""
        return self.removed and self.tried and not self.removal.part_bytes

    @property
    def stripped(self) -> bool:
        """Whether everything but its binary is gone."""
        return self.removed and self.tried and self.removal.part_bytes > 0

    @property
    def stays(self) -> bool:
        """Whether the entry still exists."""
        return self.kept is not None and not self.kept.gone


@json_keys("removed stripped freed_bytes kept kept_bytes left unread")
@dataclass(slots=True)
class EvictSummary:
    """The removed entries, the allocated blocks that they freed, and the kept entries; counted as outcomes
    pass."""

    removed: Annotated[int, "Entries that are gone."] = 0
    stripped: Annotated[
        int, "Entries that lost everything but their binary: only a compiler reads the rest."
    ] = 0
    freed_bytes: Annotated[int, "The space that was freed."] = 0
    kept: Annotated[int, "Entries that stay."] = 0
    kept_bytes: Annotated[int, "Their size."] = 0
    left: Annotated[tuple[str, ...], "The files that --all leaves in the caches, a sentence each."] = ()
    unread: tuple[str, ...] = ()
    chosen: Annotated[int, "How many entries a rule chose."] = 0
    stay: Annotated[int, "How many of those are still there."] = 0

    def of(self, outcomes: Iterable[EvictOutcome]) -> Iterator[EvictOutcome]:
        """Count outcomes while they pass. An entry that changed since it was chosen counts as kept; one
        that another process removed is ignored.
        """
        for outcome in outcomes:
            self.chosen += 1
            if outcome.removed:
                self.count_removed(outcome.removal)
            elif outcome.stays:
                self.stay += not (outcome.kept and outcome.kept.pinned)
                self.keep(outcome.removal.entry)
            yield outcome

    def count_removed(self, removal: Removal) -> None:
        """Count an entry that was removed, or stripped to its binary."""
        self.freed_bytes += removal.part_bytes or removal.entry.size_bytes
        if removal.part_bytes:
            self.stripped += 1
            self.keep(removal.entry)
            self.kept_bytes -= removal.part_bytes
        else:
            self.removed += 1

    def keep(self, entry: CacheEntry) -> None:
        self.kept += 1
        self.kept_bytes += entry.size_bytes

    def include(self, other: Self) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@json_keys(
    "would_remove would_strip would_free_bytes removed stripped freed_bytes kept kept_bytes left unread"
)
@dataclass(slots=True)
class Foreseen(EvictSummary):
    """The entries that an eviction would remove, counted by ``--dry-run``."""

    would_remove: Annotated[int, "Entries that would go."] = 0
    would_strip: Annotated[int, "Entries of which the binary would stay."] = 0
    would_free_bytes: Annotated[int, "The space that would be freed."] = 0

    def count_removed(self, removal: Removal) -> None:
        """Count an entry that would be removed or stripped, and still exists."""
        self.would_remove += not removal.part_bytes
        self.would_strip += removal.part_bytes > 0
        self.would_free_bytes += removal.part_bytes or removal.entry.size_bytes
        self.keep(removal.entry)

    @property
    def stay_count(self) -> int:
        """How many entries would stay."""
        return self.kept - self.would_remove

    @property
    def stay_bytes(self) -> int:
        """The size of these."""
        return self.kept_bytes - self.would_free_bytes


class Evictions:
    """The text about outcomes of evict: of many equal ones a few are named, or all if ``whole``."""

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._shown: list[Removal] = []
        self._why: dict[str, list[str]] = {}

    def add(self, outcome: EvictOutcome) -> None:
        if outcome.kept is not None:
            self._why.setdefault(outcome.kept.reason, []).append(outcome.removal.entry.key[:12])
        elif self._whole or len(self._shown) < ROWS_SHOWN:
            self._shown.append(outcome.removal)

    def plan(self, foreseen: Foreseen) -> Iterator[Block]:
        """The entries that would be removed, in order, and why; all rows and columns if ``whole``."""
        going = foreseen.would_remove + foreseen.would_strip
        if self._shown:
            yield self._rows()
            yield from more_rows(0 if self._whole else going, "entry", "entries")
        yield from self._kept("would not be removed", "would not be removed")
        how = "would be stripped to the binary" if foreseen.would_strip else "would go"
        yield plain(
            "\n" * bool(self._shown or self._why) + f"{format_count(going, 'entry', 'entries')} {how}, "
            f"freeing {format_size(foreseen.would_free_bytes)}; "
            f"{foreseen.stay_count} would stay ({format_size(foreseen.stay_bytes)})"
            f"{unread_words(foreseen.unread)}",
            "bold",
        )

    def done(self, summary: EvictSummary) -> Iterator[Block]:
        """The number of removed entries, and each entry that was not removed; with ``whole`` every entry."""
        for removal in self._shown if self._whole else ():
            one, how = removal.entry, "stripped to its binary" if removal.part_bytes else "removed"
            yield one_line(f"{one.key[:12]} {named(one.program, one.target)} was {how}: {removal.rule}")
        yield from self._kept("was not removed", "were not removed")
        how = "stripped to the binary" if summary.stripped else "removed"
        removed = format_count(summary.removed + summary.stripped, "entry", "entries")
        yield plain(
            f"{removed} {how}, {format_size(summary.freed_bytes)} freed; "
            f"{format_count(summary.kept, 'stays', 'stay')} ({format_size(summary.kept_bytes)})"
            f"{unread_words(summary.unread)}",
            "bold",
        )

    def _rows(self) -> Grid:
        caches = len({removal.entry.cache for removal in self._shown}) > 1
        columns = (
            Column("cache", lambda one: one.entry.cache if caches else "", whole=True, shared=True),
            Column("key", lambda one: one.entry.key[:12], whole=True),
            Column("program", lambda one: one.entry.program),
            Column("variant", lambda one: one.entry.variant, prose=True, cut=True, spare=1),
            Column("target", lambda one: one.entry.target, shared=True),
            Column(SIZE, lambda one: format_size(one.part_bytes or one.entry.size_bytes), numeric=True),
            Column("rule", lambda one: one.rule, shared=True),
        )
        return Grid(columns, self._shown, every=self._whole)

    def _kept(self, one: str, many: str) -> Iterator[Block]:
        """The entries that were not removed, in a line for each reason; with ``whole`` all their keys."""
        for reason, keys in self._why.items():
            which = format_list(keys, len(keys) if self._whole else NAMED)
            yield plain(f"{which} {one if len(keys) == 1 else many}: {reason}", "yellow")


def _staying(one: Foreseen) -> str:
    return f"{one.stay_count} ({format_size(one.stay_bytes)})"


def evict_caches(found: Sequence[tuple[Location, Foreseen]]) -> Iterator[Block]:
    """The part of each cache that would be removed, the most first, if there are several caches."""
    if len(found) < 2:
        return
    columns = (
        Column("cache", lambda pair: pair[0].name, whole=True),
        Column("would go", lambda pair: str(pair[1].would_remove), numeric=True),
        Column("freeing", lambda pair: format_size(pair[1].would_free_bytes), numeric=True),
        Column("would stay", lambda pair: _staying(pair[1]), numeric=True),
        Column("place", lambda pair: pair[0].root, place=True),
    )
    yield ""
    yield Grid(columns, sorted(found, key=lambda pair: (-pair[1].would_free_bytes, pair[0].cache)))
