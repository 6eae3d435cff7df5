"""What caches gained between two moments. Pure."""

from collections.abc import Mapping

from gpucache.outcomes import Growth

Snapshot = Mapping[str, Mapping[str, int]]
"""Entries of each cache, by name: what an entry is called, and its size in bytes."""

NAMES_KEPT = 8


def growth(before: Snapshot, after: Snapshot) -> tuple[Growth, ...]:
    """The entries that are new or larger, by cache; nothing for a cache that gained nothing."""
    grown = (_of(name, before.get(name, {}), held) for name, held in after.items())
    return tuple(one for one in grown if one.entries)


def joined(many: tuple[tuple[Growth, ...], ...]) -> tuple[Growth, ...]:
    """What several runs added together, by cache."""
    total: dict[str, Growth] = {}
    for one in (growth for run in many for growth in run):
        other = total.get(one.cache, Growth(one.cache, 0, 0))
        names = (*other.names, *one.names)[:NAMES_KEPT]
        total[one.cache] = Growth(
            one.cache, other.entries + one.entries, other.size_bytes + one.size_bytes, names
        )
    return tuple(total.values())


def _of(name: str, before: Mapping[str, int], after: Mapping[str, int]) -> Growth:
    gained = {entry: size - before.get(entry, 0) for entry, size in after.items()}
    new = {entry: size for entry, size in gained.items() if size > 0}
    return Growth(name, len(new), sum(new.values()), tuple(sorted(new)[:NAMES_KEPT]))
