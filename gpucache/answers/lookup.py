"""What a lookup answers: a hit, or a build with the reason why nothing was found."""

from enum import StrEnum
from typing import NamedTuple

from gpucache.keys import Difference
from gpucache.model import Artifact, CacheKey, EntryHead


class Verdict(StrEnum):
    """Why a lookup missed."""

    NEVER_BUILT = "never-built"
    KEY_CHANGED = "key-changed"
    INCOMPLETE = "incomplete"
    EVICTED = "evicted"
    CORRUPT = "corrupt"
    REJECTED = "rejected"
    POISONED = "poisoned"
    NOT_CONSULTED = "not-consulted"
    UNCACHEABLE = "uncacheable"
    OPAQUE_KEY = "opaque-key"
    NOT_RECORDED = "not-recorded"


class Miss(NamedTuple):
    """Why nothing was found, in words, and for a changed key the fields that changed."""

    verdict: Verdict
    detail: str
    differences: tuple[Difference, ...] = ()
    nearest: CacheKey | None = None
    unread: str = ""
    """Why a store could not be read, in the same words for every program that this happens to."""


class Hit(NamedTuple):
    """A sound entry was found."""

    key: CacheKey
    head: EntryHead
    payload: bytes
    layer: str
    """``memory``, or the root it came from."""

    @property
    def verdict(self) -> str:
        """The word for it in answers, as a miss has its verdict."""
        return "hit"


class Noted(StrEnum):
    """What became of a request that may have to be kept for ``gpucache warm --misses``."""

    NEW = "new"
    KNOWN = "known"
    """It was kept already, within the last hour."""
    LOST = "lost"
    """It could not be written, or is too large."""
    NONE = "none"
    """There was nothing to keep."""

    @property
    def is_kept(self) -> bool:
        """Whether ``gpucache warm --misses`` finds it."""
        return self in (Noted.NEW, Noted.KNOWN)


class Plain(NamedTuple):
    """Nothing was found, and the program was left to build itself as it does without a cache."""

    miss: Miss
    compile_ns: int
    noted: Noted
    """Whether ``gpucache warm --misses`` can build it for the next start."""
    note: str
    """Why it was left alone, in one sentence."""
    told_by_miss: bool = False
    """Whether the miss says that already."""


class Built(NamedTuple):
    """Nothing was found and the program was compiled."""

    artifact: Artifact
    miss: Miss
    key: CacheKey | None
    """The key it was published under; None where it was not published."""
    note: str = ""
    """Why it was not published, in one sentence; empty where it was."""
    told_by_miss: bool = False
    """Whether the miss says that already."""
    publish_failed: bool = False
    """Whether that is because the cache could not be written."""
