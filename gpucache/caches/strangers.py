"""What lies in a cache and is none of its owner's: counted, and the first of it named. Pure."""

from collections.abc import Iterable

from gpucache.units import shown

_NAMED = 3


def listed(names: Iterable[str]) -> str:
    """The first names in order and how many more there are, in constant memory; empty for none."""
    first: list[str] = []
    count = 0
    for name in names:
        count += 1
        first = sorted([*first, name])[:_NAMED]
    more = f" and {count - len(first)} more" if count > len(first) else ""
    return shown(", ".join(first)) + more
