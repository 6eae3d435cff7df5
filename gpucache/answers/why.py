"""Would a program hit, ours or a foreign cache, and if not why; of two machines, what splits a cache."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gpucache.answers.lookup import Hit, Miss, Verdict
from gpucache.answers.told import Instant, OrNull, told
from gpucache.keys import Difference
from gpucache.model import CacheKey


class ReplyState(StrEnum):
    """What a cache does for a program."""

    ANSWERS = "answers"
    MISSES = "misses"
    NOT_ASKED = "not-asked"
    UNKNOWN = "cannot-tell"


@dataclass(frozen=True, slots=True)
class Reply:
    """A cache that a program passes on its way to the compiler."""

    cache: str
    """The cache's name, as --cache takes it."""
    state: ReplyState
    """What it does."""
    detail: str
    """The same as a sentence."""


@told("key created_ns")
class Build(NamedTuple):
    """An entry that was built."""

    created_ns: Instant
    """When."""
    key: str
    """Its key."""


@told(
    "program target variant consulted not_asked=unasked verdict detail differences key nearest written "
    "under_run directory elsewhere=verdict_elsewhere layers"
)
@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a program would be found, and if not why."""

    program: str
    """The program's name."""
    target: OrNull
    """The target; null where none could be chosen."""
    variant: str
    """What tells it from other builds of the program for the target, such as T=float."""
    consulted: tuple[str, ...]
    """The roots that were asked, in order."""
    found: Hit | Miss
    written: tuple[Build, ...] = ()
    """What was built under this name for the target, newest first."""
    under_run: tuple[Build, ...] = ()
    """Those of them for programs that call NVRTC themselves."""
    layers: tuple[Reply, ...] = ()
    """The caches below ours that the program passes."""
    not_asked: tuple[tuple[str, str], ...] = ()
    """Every root that is named and could not be asked, with a sentence that says why and what mends it."""
    directory: str | None = None
    """Where the program is taken to run, if its compiler finds files there."""
    elsewhere: Hit | Miss | None = None
    """What it finds in any other directory, where ``directory`` is not None."""

    @property
    def unasked(self) -> tuple[str, ...]:
        """Why a root that is named was not asked, a sentence each."""
        return tuple(sentence for _, sentence in self.not_asked)

    @property
    def verdict(self) -> "Served | Verdict":
        """What would happen."""
        return self.found.verdict if isinstance(self.found, Miss) else Served.HIT

    @property
    def detail(self) -> str:
        """The verdict as a sentence; empty for a hit."""
        return self.found.detail if isinstance(self.found, Miss) else ""

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The key fields that differ from the nearest entry."""
        return self.found.differences if isinstance(self.found, Miss) else ()

    @property
    def key(self) -> CacheKey | None:
        """The key of the entry that would be used."""
        return self.found.key if isinstance(self.found, Hit) else None

    @property
    def nearest(self) -> CacheKey | None:
        """The key of the entry that differs least."""
        return self.found.nearest if isinstance(self.found, Miss) else None

    @property
    def verdict_elsewhere(self) -> str | None:
        """The verdict for one that runs elsewhere, where directory is not null."""
        return None if self.elsewhere is None else str(self.elsewhere.verdict)

    @property
    def hit(self) -> bool:
        """Whether the program would be found."""
        return isinstance(self.found, Hit)


@told("target difference.*")
class TargetDifference(NamedTuple):
    """A key field that differs between two machines."""

    target: str
    """The target it is a field of."""
    difference: Difference


class Served(StrEnum):
    """The owner would serve an entry."""

    HIT = "hit"
    FALSE_HIT = "false-hit"
    """It would serve an entry that was made from other inputs."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether another system's cache would answer what --want says."""

    cache: str
    """The cache's name, as --cache takes it."""
    wanted: str
    """What was asked for, in a few words."""
    verdict: Served | Verdict
    """What would happen; a false-hit was made from other inputs."""
    detail: str
    """The verdict as a sentence."""
    differences: tuple[Difference, ...] = ()
    """The key fields that differ from the nearest entry: before is stored, now is wanted."""
    nearest: OrNull = ""
    """The key of the entry that was found, or of the nearest."""

    @property
    def hit(self) -> bool:
        """Whether what is wanted would be served, and rightly."""
        return self.verdict is Served.HIT


class WhySummary(NamedTuple):
    """How many were asked about, and would be found."""

    asked: int
    """How many were asked about."""
    hits: int
    """How many would be found."""
    misses: int
    """How many would not."""


class EntriesCompared(NamedTuple):
    """Two entries that were compared."""

    left: str
    """The key of the first."""
    right: str
    """The key of the second."""
    differences: int
    """How many there are."""
