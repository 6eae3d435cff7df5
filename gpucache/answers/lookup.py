"""The result of a lookup: a hit, or a build with the reason of the miss."""

from enum import StrEnum
from typing import NamedTuple

from gpucache.keys import Difference
from gpucache.model import Artifact, CacheKey, Entry, EntryHead


class Verdict(StrEnum):
    """Why a lookup missed."""

    NEVER_BUILT = "never-built"
    """Nothing was built under this name."""
    KEY_CHANGED = "key-changed"
    """A header, define, option, driver, compiler or variable differs from the nearest entry; it is named
    with both values."""
    INCOMPLETE = "incomplete"
    """The entry is not compiled for a local size: programs hit it, and compile at their first launch
    with that size."""
    EVICTED = "evicted"
    """It was removed: when, and by which rule."""
    CORRUPT = "corrupt"
    """It was there, and its bytes were damaged."""
    REJECTED = "rejected"
    """The driver refused the binary, and the program was compiled again."""
    POISONED = "poisoned"
    """Its compiler crashed or hung twice in warm."""
    FAILED = "failed"
    """Its source did not compile, so no cache can have it."""
    NOT_CONSULTED = "not-consulted"
    """The cache was not queried: it is disabled or cannot be read, the target is not on this machine, or the
    source cannot be read again because the program was built from memory."""
    ELSEWHERE = "elsewhere"
    """The entry is in another root, which this run did not look in."""
    UNCACHEABLE = "uncacheable"
    """No exact key can be made for it; the reason and the remedy follow."""
    OPAQUE_KEY = "opaque-key"
    """Its key belongs to another system, such as Triton, and no other difference is known."""
    NOT_RECORDED = "not-recorded"
    """The record of earlier builds was lost."""


class Miss(NamedTuple):
    """Why nothing was found, in words, and for a changed key the fields that changed."""

    verdict: Verdict
    detail: str
    differences: tuple[Difference, ...] = ()
    nearest: CacheKey | None = None
    unread: str = ""
    """Why a store could not be read, in words that are equal for all programs."""

    def failed(self, when: str = "") -> "Miss":
        """The miss of a program that then did not compile: a change since an earlier build may be the cause.

        ``when`` is the instant of a failure in an earlier process.
        """
        known = self.verdict in (Verdict.NEVER_BUILT, Verdict.FAILED)
        more = "" if known else f"; {self.verdict}: {self.detail}"
        at = f" at {when}" if when else ""
        return self._replace(verdict=Verdict.FAILED, detail=f"it did not compile{at}{more}")


class Hit(NamedTuple):
    """A sound entry was found."""

    key: CacheKey
    head: EntryHead
    payload: bytes
    store: str
    """``memory``, the root it came from, or ``remote`` for a store on another machine."""
    log: str = ""
    """The compiler's log, if the entry may be in no root, where it would be read."""

    @property
    def verdict(self) -> str:
        """The word for a hit where results have the verdict of a miss."""
        return "hit"


class Noted(StrEnum):
    """The outcome of a request that ``gpucache warm --misses`` may have to build."""

    NEW = "new"
    KNOWN = "known"
    """The request was noted already, within the last hour."""
    LOST = "lost"
    """The request could not be written, or is too large."""
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
    entry: Entry | None = None
    """The published artifact."""
