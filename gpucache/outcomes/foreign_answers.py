"""Whether a foreign cache would answer what a program wants."""

from dataclasses import dataclass
from enum import StrEnum

from gpucache.keys import Difference
from gpucache.outcomes.lookups import Verdict


class Served(StrEnum):
    """The owner would serve an entry."""

    HIT = "hit"
    FALSE_HIT = "false-hit"
    """It would serve an entry that was made from other inputs."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a cache would answer what is wanted, and if not what is in the way."""

    cache: str
    wanted: str
    """What was asked for, in a few words."""
    verdict: Served | Verdict
    detail: str
    """One sentence, with the remedy where there is one."""
    differences: tuple[Difference, ...] = ()
    """From the nearest entry to what is wanted: left is stored, right is wanted."""
    nearest: str = ""
    """The key of the entry that was found, or of the nearest one."""

    @property
    def hit(self) -> bool:
        """Whether what is wanted would be served, and rightly."""
        return self.verdict is Served.HIT
