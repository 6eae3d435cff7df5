"""Where an implementation looks for headers, and how much may be read. Values only."""

from dataclasses import dataclass
from enum import StrEnum


class Place(StrEnum):
    """One step of a header search."""

    INCLUDER = "includer"
    """The directory of the file that holds the include; for a source in memory, the rule's ``home``."""
    MAIN_CWD = "main cwd"
    """The current directory, for includes written in the main source only."""
    CWD = "cwd"
    """The current directory."""
    DIRS = "dirs"
    """The include directories, in order."""
    SYSTEM = "system"
    """The folders an implementation has of its own, in order."""


@dataclass(frozen=True, slots=True)
class SearchRule:
    """The order in which an implementation looks for ``"name"`` and for ``<name>``."""

    quote: tuple[Place, ...]
    angle: tuple[Place, ...]
    every: bool = False
    """Cover every match in all places: right for any order, so for implementations never tried."""
    trigraphs: bool = True
    """Whether ``??=`` and ``??/`` may be read as ``#`` and a backslash; both readings count then."""
    system: tuple[str, ...] = ()
    """For ``Place.SYSTEM``; what is not absolute is meant from the current directory."""
    home: str | None = None
    """Where an implementation that compiles files writes the main source."""
    names_sources: bool = False
    """Whether the main source is compiled under one name, and not under one made up for each build."""
    configuration: str | None = None
    """The name of a file that an implementation reads in the current directory, whatever the source."""

    @property
    def places(self) -> tuple[Place, ...]:
        """All places of both forms, each once."""
        return tuple(dict.fromkeys((*self.quote, *self.angle)))

    @property
    def searches_cwd(self) -> bool:
        """Whether anything is looked for in the current directory."""
        return self.configuration is not None or not {Place.CWD, Place.MAIN_CWD}.isdisjoint(self.places)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one closure may hold before it is given up as uncacheable."""

    files: int = 20_000
    file_bytes: int = 64 * 1024**2
    total_bytes: int = 256 * 1024**2
    folder_entries: int = 200_000
    """Files and folders looked at, source-like or not, where directories are swept."""
