"""Outcomes of export."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exported:
    """A cache of another system that was written."""

    cache: str
    file: str
    entries: int
    size_bytes: int
    sources: tuple[tuple[str, int], ...] = ()
    """Where its entries came from, each with how many."""
    key: str = ""
    """The key of the one entry, where there is one."""
    notes: tuple[str, ...] = ()
    """What its owner will make of it, a sentence each."""
