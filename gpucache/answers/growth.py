"""The contents of caches at one moment, and their growth between two. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

NAMES_KEPT = 8


class Held(NamedTuple):
    """The size and time that distinguish an entry of a cache from another of the same name."""

    size_bytes: int
    made_ns: int = 0
    """When it was written."""
    text: bool = False
    """Whether it is text of an unknown owner, such as settings or a log, and so no entry."""


Snapshot = Mapping[str, Mapping[str, Held]]
"""The entries of each cache, by name."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The entries that a cache gained."""

    cache: str
    """The cache's name, as --cache takes it."""
    entries: int
    """Entries that were not there, or were written anew."""
    size_bytes: int
    """Bytes that were not there."""
    names: tuple[str, ...] = ()
    """Some of the entries."""


def growth(before: Snapshot, after: Snapshot) -> tuple[Growth, ...]:
    """The entries that are new, larger or rewritten, by cache; nothing for a cache that gained nothing."""
    grown = (_of(name, before.get(name, {}), held) for name, held in after.items())
    return tuple(one for one in grown if one.entries)


def entries(held: Snapshot) -> int:
    """The number of entries."""
    return sum(not one.text for each in held.values() for one in each.values())


def texts(held: Snapshot) -> tuple[str, ...]:
    """The files that do not look like a cache's entries."""
    return tuple(sorted(name for each in held.values() for name, one in each.items() if one.text))


def joined(many: tuple[tuple[Growth, ...], ...]) -> tuple[Growth, ...]:
    """The growth in several runs together, by cache."""
    total: dict[str, Growth] = {}
    for one in (growth for run in many for growth in run):
        other = total.get(one.cache, Growth(one.cache, 0, 0))
        names = (*other.names, *one.names)[:NAMES_KEPT]
        total[one.cache] = Growth(
            one.cache, other.entries + one.entries, other.size_bytes + one.size_bytes, names
        )
    return tuple(total.values())


def _of(name: str, before: Mapping[str, Held], after: Mapping[str, Held]) -> Growth:
    gained = {entry: _gain(before.get(entry), held) for entry, held in after.items()}
    new = {entry: size for entry, size in gained.items() if size > 0}
    return Growth(name, len(new), sum(new.values()), tuple(sorted(new)[:NAMES_KEPT]))


def _gain(before: Held | None, after: Held) -> int:
    """Bytes that were written; a rewritten entry counts whole, text not at all."""
    if after.text:
        return 0
    if before is None or before.made_ns != after.made_ns:
        return after.size_bytes
    return after.size_bytes - before.size_bytes
