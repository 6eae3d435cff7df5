"""Outcomes of export."""

from dataclasses import dataclass
from typing import NamedTuple

from gpucache.answers.told import OrNull


class Source(NamedTuple):
    """A file whose entries were exported."""

    file: str
    """The file."""
    entries: int
    """How many came from it."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A cache file that was written."""

    cache: str
    """The cache's name, as --cache takes it."""
    file: str
    """The file."""
    entries: int
    """Entries in it."""
    size_bytes: int
    """Bytes on disk."""
    sources: tuple[Source, ...] = ()
    """Where the entries came from."""
    key: OrNull = ""
    """The key of the one entry, where there is one."""
    notes: tuple[str, ...] = ()
    """What the file's owner will make of it, a sentence each."""


class ExportSummary(NamedTuple):
    """How much was written."""

    entries: int
    """Entries in it."""
