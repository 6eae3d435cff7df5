"""Names in a cache, counted, with the first of them listed: strangers, links, empty files. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpucache.units import printable


@dataclass(slots=True)
class Tally:
    """Names, in constant memory; as text the first of them in order and how many more there are."""

    named: int = 3
    """The number of names that are listed."""
    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Count one more."""
        self.count += 1
        self.first = sorted([*self.first, name])[: self.named]

    def __str__(self) -> str:
        more = f" and {self.count - len(self.first)} more" if self.count > len(self.first) else ""
        return ", ".join(printable(name, None) for name in self.first) + more


def listed(names: Iterable[str]) -> str:
    """The first names in order and how many more there are, in constant memory; empty for none."""
    found = Tally()
    for name in names:
        found.add(name)
    return str(found)
