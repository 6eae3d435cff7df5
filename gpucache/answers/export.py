"""The result of export: the cache file that was written."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gpucache.answers.console import Block, plain
from gpucache.json_keys import OrNull
from gpucache.units import format_count, format_size


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
    """The effect of the file on its owner, a sentence each."""


def exported(one: Exported) -> Iterator[Block]:
    """The file that was written, and its sources."""
    entries = format_count(one.entries, "entry", "entries")
    yield plain(f"{one.file}: {entries} for {one.cache}, {format_size(one.size_bytes)}", "bold")
    if one.key:
        yield plain(f"  key: {one.key}")
    for file, count in one.sources:
        yield plain(f"  {file}: {count}")
    yield from (plain(note, "yellow") for note in one.notes)
