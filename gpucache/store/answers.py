"""The results of looking up an entry in a store."""

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from gpucache.model import CacheKey, EntryHead

REMOTE = "remote"
"""The word for the root of an entry that came from a store on another machine."""


class Damage(StrEnum):
    """The kind of damage to the bytes of an entry."""

    TRUNCATED = "truncated"
    CORRUPT = "corrupt"
    MISPLACED = "misplaced"
    MISLABELLED = "mislabelled"
    UNTRUSTED = "untrusted"
    UNSUPPORTED = "unsupported"


class Found(NamedTuple):
    """A sound entry: header and payload checksums match, and the key is the requested one."""

    key: CacheKey
    head: EntryHead
    payload: bytes
    root: Path


class Absent(NamedTuple):
    """The entry does not exist; ``reason`` is set if it could not be read, as with an unreadable root."""

    reason: str | None = None


class Damaged(NamedTuple):
    """The entry exists and is not sound; ``quarantined`` says whether it was moved out of the way."""

    damage: Damage
    detail: str
    quarantined: bool
