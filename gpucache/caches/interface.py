"""What every cache can be asked, whoever keeps it.

Owns the protocol that inspect, verify and evict work on. Nothing found in a cache is ever loaded,
unpickled or executed; a removal that could break the owner is refused.
"""

from collections.abc import Iterator
from typing import Protocol

from gpucache.model import Artifact
from gpucache.outcomes import CacheEntry, Checked, EntryReport, Location


class Cache(Protocol):
    """One cache on disk."""

    @property
    def name(self) -> str:
        """What people and ``--cache`` call it."""
        ...

    def location(self) -> Location:
        """Where it lives, what decided that, and what is wrong with the place. Raises nothing."""
        ...

    def scan(self) -> Iterator[CacheEntry]:
        """Every entry, one by one, in constant memory; damaged ones say so."""
        ...

    def find(self, prefix: str) -> list[CacheEntry]:
        """Entries whose key begins with some hex digits, without scanning everything."""
        ...

    def report(self, entry: CacheEntry) -> EntryReport:
        """Everything that the entry stores about itself; raises FormatError when it does not read."""
        ...

    def artifact(self, entry: CacheEntry) -> Artifact:
        """What an entry holds, fully checked; raises FormatError when it is not sound."""
        ...

    def check(self, entry: CacheEntry) -> Checked:
        """An entry checked whole, leaving its last use alone."""
        ...

    def leftovers(self) -> Iterator[Checked]:
        """What belongs to no entry."""
        ...

    def remove(self, entry: CacheEntry, why: str) -> bool:
        """Remove an entry by its owner's rules if unchanged since the scan; whether it was removed."""
        ...

    def repair(self, checked: Checked, entry: CacheEntry | None) -> Checked:
        """Take what is wrong out of the way; the findings come back marked as repaired."""
        ...
