"""What inspect says of one program asked about: would it hit, and if not, why and what is there instead."""

from dataclasses import dataclass
from enum import StrEnum

from gpucache.outcomes.lookups import Hit, Miss


class LayerState(StrEnum):
    """What a layer does for a program."""

    ANSWERS = "answers"
    MISSES = "misses"
    NOT_ASKED = "not-asked"
    UNKNOWN = "cannot-tell"


@dataclass(frozen=True, slots=True)
class Layer:
    """One cache that a program passes on its way to the compiler."""

    cache: str
    state: LayerState
    detail: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One program for one target."""

    program: str
    target: str
    variant: str
    consulted: tuple[str, ...]
    """The roots that were asked, in order."""
    found: Hit | Miss
    written: tuple[tuple[int, str], ...] = ()
    """What was built for the target under this name: when (ns) and the key, newest first."""
    layers: tuple[Layer, ...] = ()
    """The caches that the program passes, ours first."""
    not_asked: tuple[tuple[str, str], ...] = ()
    """Every root that is named and could not be asked, with a sentence that says why and what mends it."""
    directory: str | None = None
    """The directory that the program is taken to run in, where its compiler finds files that it reads."""
    elsewhere: Hit | Miss | None = None
    """What it finds in any other directory, where ``directory`` is not None."""

    @property
    def hit(self) -> bool:
        """Whether the program would be found."""
        return isinstance(self.found, Hit)
