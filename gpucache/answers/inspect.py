"""What inspect says of caches, and of what is written to them."""

from enum import StrEnum
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry, Location


class AdviceKind(StrEnum):
    """What the keys of a program can suffer from."""

    IDENTICAL = "identical"
    RESTLESS = "restless"
    GROWTH = "growth"
    UNREAD = "unread"


class Advice(NamedTuple):
    """Something worth knowing about the entries of one program for one target."""

    kind: AdviceKind
    program: str
    target: str
    detail: str
    fields: tuple[str, ...] = ()
    """Labels of the key fields it is about."""
    keys: tuple[str, ...] = ()


class Written(NamedTuple):
    """An entry that was just written, as ``inspect --watch`` saw it."""

    entry: CacheEntry
    root: str
    when_ns: int
    writers: tuple[tuple[str, str], ...] = ()
    """The processes that had a file of it open for writing, by number, with their commands; empty where
    nobody had by then, or where the system does not tell."""
    before_bytes: int | None = None
    """The size of an entry that was there before, and was written to again; None for a new one."""


class Stale(NamedTuple):
    """What of a cache no program of this machine reads again and ``evict --stale`` removes."""

    entries: int = 0
    size_bytes: int = 0
    why: tuple[str, ...] = ()
    """A clause for each reason."""


class CacheState(NamedTuple):
    """The state of one cache."""

    location: Location
    entries: int
    size_bytes: int
    files: int
    programs: int
    damaged: int
    oldest_used_ns: int | None = None
    findings: tuple[str, ...] = ()
    """What a scan saw wrong, a sentence each."""
    stale: "Stale | None" = None
    """What of it nobody reads again; None where that was not asked."""
    beside_bytes: int = 0
    """What its own records and leftovers take beside the entries; told of our own cache alone."""
