"""Would a program hit, ours or a foreign cache, and if not why; of two machines, what splits a cache."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gpucache.answers.lookup import Hit, Miss, Verdict
from gpucache.keys import Difference


class ReplyState(StrEnum):
    """What a cache does for a program."""

    ANSWERS = "answers"
    MISSES = "misses"
    NOT_ASKED = "not-asked"
    UNKNOWN = "cannot-tell"


@dataclass(frozen=True, slots=True)
class Reply:
    """What one cache says that a program passes on its way to the compiler."""

    cache: str
    state: ReplyState
    detail: str


class Build(NamedTuple):
    """An entry that was built."""

    created_ns: int
    key: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One program for one target."""

    program: str
    target: str
    variant: str
    consulted: tuple[str, ...]
    """The roots that were asked, in order."""
    found: Hit | Miss
    written: tuple[Build, ...] = ()
    """What was built for the target under this name, newest first."""
    under_run: tuple[Build, ...] = ()
    """Those of them that a program asked its compiler for itself, which have other keys, newest first."""
    layers: tuple[Reply, ...] = ()
    """What the caches say that the program passes, ours first."""
    not_asked: tuple[tuple[str, str], ...] = ()
    """Every root that is named and could not be asked, with a sentence that says why and what mends it."""
    directory: str | None = None
    """The directory that the program is taken to run in, where its compiler finds files that it reads."""
    elsewhere: Hit | Miss | None = None
    """What it finds in any other directory, where ``directory`` is not None."""

    @property
    def miss(self) -> Miss | None:
        """Why it would not be found; None where it would."""
        return self.found if isinstance(self.found, Miss) else None

    @property
    def hit(self) -> bool:
        """Whether the program would be found."""
        return isinstance(self.found, Hit)


class TargetDifference(NamedTuple):
    """A key field of one target that two machines do not share."""

    target: str
    difference: Difference


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
