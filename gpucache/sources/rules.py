"""The inputs of a closure: a source, the places where its compiler searches for headers, and limits."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class Place(StrEnum):
    """One step of a header search."""

    INCLUDER = "includer"
    """The directory of the file with the include; for a source in memory, the rule's ``home``."""
    MAIN_CWD = "main cwd"
    """The current directory, for includes written in the main source only."""
    CWD = "cwd"
    DIRS = "dirs"
    SYSTEM = "system"
    """The compiler's own directories, in order."""


class SearchRule(NamedTuple):
    """The order in which a compiler searches for ``"name"`` and for ``<name>``."""

    quote: tuple[Place, ...]
    angle: tuple[Place, ...]
    every: bool = False
    """Cover every match in all places: correct for any order, and so for compilers that were never tried."""
    system: tuple[str, ...] = ()
    """The directories of ``Place.SYSTEM``; relative paths start at the current directory."""
    home: str | None = None
    """The directory to which a compiler of files writes the main source."""
    names_sources: bool = False
    """Whether the main source has the same file name in every build."""
    makes_up_folders: bool = False
    """Whether the compiler makes up a directory for each build and names types after it."""
    suffix: str = ""
    """The suffix of the name of an include without a dot, in each place after the name itself."""
    assembles: bool = True
    """Whether it assembles inline assembly as GNU's assembler does, which reads files."""
    heeds_dependency: bool = True
    """Whether it reads the file of a ``#pragma GCC dependency``."""
    configuration: str | None = None
    """The name of a file that a compiler reads in the current directory, for any source."""

    @property
    def places(self) -> tuple[Place, ...]:
        """The places of both forms of include, each once."""
        return tuple(dict.fromkeys((*self.quote, *self.angle)))

    @property
    def searches_cwd(self) -> bool:
        """Whether the current directory is searched for anything."""
        return self.configuration is not None or not {Place.CWD, Place.MAIN_CWD}.isdisjoint(self.places)


class Limits(NamedTuple):
    """How large a closure may be; a larger one is uncacheable."""

    files: int = 20_000
    file_bytes: int = 64 * 1024**2
    total_bytes: int = 256 * 1024**2
    folder_entries: int = 200_000
    """The number of files and directories that may be looked at to expand includes through macros."""


class Wanted(NamedTuple):
    """A source in memory, with everything that decides which files its compiler reads."""

    source: bytes
    rule: SearchRule
    include_dirs: Sequence[str] = ()
    cwd: str | None = None
    """The compiler's current directory; None if it runs in an empty one: relative names resolve nowhere."""
    forced: Sequence[str] = ()
    definitions: Sequence[str] = ()
    named_headers: Sequence[str] = ()
    """Paths of headers that macros may name: with any, includes through macros count as covered."""
    name_them: str = "name the headers in headers = [...]"
    """The sentence that proposes this remedy."""
    limits: Limits = Limits()
    held: Sequence[tuple[str, bytes]] = ()
    """Headers in memory, each after the directory in which its quoted includes are searched first: they are
    read with the source, as macros of one count in the other, and are not part of the includes."""
