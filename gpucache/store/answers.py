"""The results of looking up an entry in a store."""

from pathlib import Path
from typing import NamedTuple

from gpucache.model import CacheKey, EntryHead, FindingKind

REMOTE = "remote"
"""The word for the root of an entry that came from a store on another machine."""


class Found(NamedTuple):
    """A sound entry: header and payload checksums match, and the key is the requested one."""

    key: CacheKey
    head: EntryHead
    payload: bytes
    root: Path
    log: str = ""
    """The compiler's log, of an entry that may be in no root."""


class Absent(NamedTuple):
    """The entry does not exist; ``reason`` is set if it could not be read, as with an unreadable root."""

    reason: str | None = None


class Damaged(NamedTuple):
    """The entry exists and is not sound; ``quarantined`` says whether it was moved out of the way."""

    damage: FindingKind
    detail: str
    quarantined: bool
