"""What lies in a cache and is none of its owner's: counted, and the first of it named. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpucache.units import shown

_NAMED = 3


@dataclass(slots=True)
class Strangers:
    """Names, in constant memory; as text the first of them in order and how many more there are."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Count one more."""
        self.count += 1
        self.first = sorted([*self.first, name])[:_NAMED]

    def __str__(self) -> str:
        more = f" and {self.count - len(self.first)} more" if self.count > len(self.first) else ""
        return shown(", ".join(self.first)) + more


def listed(names: Iterable[str]) -> str:
    """The first names in order and how many more there are, in constant memory; empty for none."""
    found = Strangers()
    for name in names:
        found.add(name)
    return str(found)
