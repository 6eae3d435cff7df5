"""What any cache says of itself and of its entries."""

from enum import StrEnum
from typing import NamedTuple

from gpucache.model import Check, KeyField
from gpucache.outcomes.findings import Problem


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
