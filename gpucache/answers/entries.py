"""What any cache says of itself and of its entries."""

from enum import StrEnum
from typing import NamedTuple

from gpucache.model import Check, KeyField


class FindingKind(StrEnum):
    """What verify reports. The first five are wrong; the rest are worth knowing."""

    TRUNCATED = "truncated"
    CORRUPT = "corrupt"
    MISPLACED = "misplaced"
    MISLABELLED = "mislabelled"
    UNTRUSTED = "untrusted"
    STALE = "stale"
    SUPERSEDED = "superseded"
    ORPHAN = "orphan"
    LEFTOVER = "leftover"
    LOCKED = "locked"
    UNSUPPORTED = "unsupported"

    @property
    def wrong(self) -> bool:
        """Whether it gives exit 3 without ``--strict``."""
        return self in _WRONG


_WRONG = frozenset(
    {
        FindingKind.TRUNCATED,
        FindingKind.CORRUPT,
        FindingKind.MISPLACED,
        FindingKind.MISLABELLED,
        FindingKind.UNTRUSTED,
    }
)


class Problem(NamedTuple):
    """What is wrong with an entry or worth knowing of it, before anybody makes a sentence of it."""

    kind: FindingKind | None
    """None where it could not be looked at, which is no fault of what lies there."""
    detail: str
    """A clause that names the thing and what follows from it."""
    remedy: str = ""
    """What mends it, as a clause; empty where the detail says so or removing the entry does."""
    paths: tuple[str, ...] | None = None
    """The files of the entry whose removal mends it; empty where none does. None where removing the whole
    entry does, if its format says so of the kind."""

    def __str__(self) -> str:
        """All of it in one line."""
        told = f"{self.detail}; {self.remedy}" if self.remedy else self.detail
        return told if self.kind is None else f"{self.kind}: {told}"


class CacheEntry(NamedTuple):
    """One entry of any cache as inspect and evict see it."""

    cache: str
    key: str
    path: str
    size_bytes: int
    created_ns: int
    last_used_ns: int
    program: str = ""
    target: str = ""
    artifact_kind: str = ""
    variant: str = ""
    """Everything else that tells builds of one program for one target apart, as text."""
    unique: bool = False
    """Whether no other entry can be another version of this one: it is opaque, or bound to its place."""
    toolchain: tuple[tuple[str, str], ...] = ()
    toolchain_identity: tuple[str, ...] = ()
    payload_sha256: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    """The key fields that a scan reads, by label; what ``--unlike`` compares."""
    damage: Problem | None = None
    """What a scan saw wrong with it; None for an entry that reads."""
    stays: str = ""
    """Why no eviction removes it, a clause with the remedy; empty where one may."""
    indivisible: str = ""
    """Why only ``--all`` removes it, a clause with the remedy; empty where any rule may."""
    compile_ns: int | None = None
    """What compiling it took; None where that is not stored."""
    producer: str = ""
    """What made it, with its version, where no other version reads it and every use of it shows; else
    empty."""
    gone: str = ""
    """What alone reads it and is not on this machine, such as an interpreter; empty where nothing is known to
    be missing, or where a use from elsewhere would not show."""
    place: str = ""
    """Tells where its source lies from other places; empty where that is not known."""
    handle: object = None
    """The cache's own record of the file, with what tells whether it changed since the scan."""


class EntryReport(NamedTuple):
    """One entry with everything that inspect can say of it."""

    entry: CacheEntry
    key_fields: tuple[KeyField, ...]
    payload: tuple[tuple[str, str], ...]
    compile_ns: int | None = None
    build_log: str = ""
    tool_version: str = ""
    lowered_names: tuple[tuple[str, str], ...] = ()
    provenance: tuple[tuple[str, str], ...] = ()
    local_sizes: tuple[tuple[int, ...], ...] = ()
    """The local sizes it is compiled for, by a compiler that builds late."""
    checks: str = ""
    """The mode of its checks; empty for other systems, which have none."""
    failures: tuple[Check, ...] = ()
    """Its failure table."""


class Location(NamedTuple):
    """Where a cache lives, which setting decided that, and what is wrong with the place."""

    cache: str
    root: str
    decided_by: str
    enabled: bool
    limit_bytes: int | None = None
    problems: tuple[str, ...] = ()
    role: str = ""
    """Which of a system's caches it is, such as ``user`` or ``system``; empty where there is one."""
    bounds: tuple[int, int] | None = None
    """The least and the largest size in bytes of what programs cache there, 0 for no bound; None where its
    system has no such bounds, or where the place was named by hand."""
