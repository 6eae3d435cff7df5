"""The description of any cache and of its entries.

Also the contents of caches at one moment, and their growth between two. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from gpucache.json_keys import Instant, OrNull, json_keys
from gpucache.model import NAMESPACE, Check, KeyField
from gpucache.model import FindingKind as FindingKind
from gpucache.model import Problem as Problem
from gpucache.units import format_count


@json_keys(
    "cache key program target variant artifact_kind size_bytes created_ns last_used_ns path damage fields"
)
class CacheEntry(NamedTuple):
    """An entry of a cache."""

    cache: str
    key: Annotated[str, "The cache key, or the owner's name for the entry."]
    path: Annotated[str, "Its file, or the file it is a part of."]
    size_bytes: Annotated[int, "Bytes on disk."]
    created_ns: Annotated[Instant, "When it was written, in UTC: 2026-11-21T22:31:01Z."]
    last_used_ns: Annotated[Instant, "When it was last used, likewise."]
    program: str = ""
    target: Annotated[str, "The target; empty if the cache does not record it."] = ""
    artifact_kind: Annotated[str, "The kind of binary: cubin, ptx, opencl-binary and others."] = ""
    variant: Annotated[str, "The difference from the program's other builds, such as T=float."] = ""
    unique: bool = False
    """Whether no other entry can replace this one, as it is opaque or bound to its place."""
    toolchain: tuple[tuple[str, str], ...] = ()
    toolchain_identity: tuple[str, ...] = ()
    payload_sha256: str = ""
    fields: Annotated[tuple[tuple[str, str], ...], "The key fields that evict --unlike compares."] = ()
    damage: Annotated[Problem | None, "Why it cannot be read."] = None
    stays: Annotated[str, "Why no eviction removes it, a clause with the remedy; empty where one may."] = ""
    indivisible: str = ""
    """Why only ``--all`` removes it, a clause with the remedy; empty where any rule may."""
    spare_bytes: Annotated[int, "The bytes that ``evict --keep-binaries`` frees."] = 0
    compile_ns: Annotated[int | None, "The time that compiling it took; None if that is not stored."] = None
    producer: str = ""
    """The program that made it, with its version, if no other version reads it; else empty."""
    gone: str = ""
    """Its only reader, such as an interpreter, if that is not on this machine; empty if it is not known to
    be missing."""
    place: str = ""
    """A digest of the place of its source; empty if the place is not known."""
    renewed: bool = False
    """Whether every start of the owner writes it again, so that a new time does not mean a miss."""
    shows: bool | None = True
    """Whether its content, or its emptiness, shows that it is its owner's, None if it was not read. Otherwise
    it is only removed or repaired if its place, or another entry next to it, identifies the owner."""
    uses_show: bool = True
    """Whether every use changes ``last_used_ns``; False if other users or other machines read the entry."""
    files: Annotated[int, "The number of its files."] = 1
    pinned: Annotated[str, "The name of a pin by which its user keeps it in a store."] = ""
    handle: object = None
    """The cache's own record of the file, with the facts that show whether it changed since the scan."""


@json_keys("code check.file check.line check.function check.message")
class Failure(NamedTuple):
    """A check in a kernel; a failure reports its code."""

    code: Annotated[int, "Its number, from 0."]
    check: Check


@json_keys(
    "entry.* key_fields payload provenance=origin compile_ns build_log tool_version lowered_names "
    "local_sizes=sizes checks failure_table"
)
class EntryReport(NamedTuple):
    """An entry with everything it stores about itself."""

    entry: CacheEntry
    key_fields: Annotated[tuple[KeyField, ...], "Everything that could change the binary, in order."]
    payload: Annotated[tuple[tuple[str, str], ...], "The facts that the bytes contain about themselves."]
    compile_ns: Annotated[int | None, "How long compiling took."] = None
    build_log: Annotated[str, "The compiler's log."] = ""
    tool_version: Annotated[str, "The version of gpucache that wrote it."] = ""
    lowered_names: Annotated[tuple[tuple[str, str], ...], "The symbol of each name expression."] = ()
    provenance: tuple[tuple[str, str], ...] = ()
    local_sizes: tuple[tuple[int, ...], ...] = ()
    checks: Annotated[OrNull, "Its checks: none, sync or async; null where none can be."] = ""
    failures: tuple[Check, ...] = ()

    @property
    def origin(self) -> tuple[KeyField, ...]:
        """Where the entry was built or pulled from; not part of its key."""
        return tuple(KeyField(*pair) for pair in self.provenance)

    @property
    def compared(self) -> tuple[KeyField, ...]:
        """The fields by which entries are compared: with an opaque key also the owner's description."""
        opaque = any(item.label == NAMESPACE for item in self.key_fields)
        return (*self.origin, *self.key_fields) if opaque else self.key_fields

    @property
    def sizes(self) -> tuple[str, ...]:
        """The local sizes it is compiled for, such as 16x16."""
        return tuple("x".join(map(str, size)) for size in self.local_sizes)

    @property
    def failure_table(self) -> tuple[Failure, ...]:
        """The checks that were compiled in, by their codes."""
        return tuple(Failure(code, check) for code, check in enumerate(self.failures))


class Location(NamedTuple):
    """Where a cache lives, which setting decided that, and the problems of the place."""

    cache: str
    root: Annotated[str, "Where it lives; empty where no place is known."]
    decided_by: Annotated[str, "What named that place: an option, a variable, a settings file, or default."]
    enabled: Annotated[bool, "Whether its owner uses it."]
    limit_bytes: Annotated[int | None, "The bound that its owner keeps."] = None
    problems: Annotated[tuple[str, ...], "The problems of the place, a sentence each."] = ()
    role: Annotated[str, "Which of a system's caches it is; empty where there is one."] = ""

    @property
    def name(self) -> str:
        """Words that distinguish this cache from others shown with it."""
        return f"{self.cache} ({self.role})" if self.role else self.cache


def unread_words(sentences: Sequence[str]) -> str:
    """A suffix with the number of places that the sums leave out."""
    return f", {format_count(len(sentences), 'place')} not read" if sentences else ""


NAMES_KEPT = 8


class Held(NamedTuple):
    """The size and time that distinguish an entry of a cache from another of the same name."""

    size_bytes: int
    made_ns: int = 0
    """When it was written."""
    text: bool = False
    """Whether it is text of an unknown owner, such as settings or a log, and so no entry."""


Snapshot = Mapping[str, Mapping[str, Held]]
"""The entries of each cache, by name."""


class Growth(NamedTuple):
    """The entries that a cache gained."""

    cache: str
    entries: Annotated[int, "Entries that were not there, or were written anew."]
    size_bytes: Annotated[int, "Bytes that were not there."]
    names: Annotated[tuple[str, ...], "Some of the entries."] = ()
    again: Annotated[int, "How many of them were there before, and were written anew."] = 0


def growth(before: Snapshot, after: Snapshot) -> tuple[Growth, ...]:
    """The entries that are new, larger or rewritten, by cache; nothing for a cache that gained nothing."""
    grown = (_of(name, before.get(name, {}), held) for name, held in after.items())
    return tuple(one for one in grown if one.entries)


def entries(held: Snapshot) -> int:
    return sum(not one.text for each in held.values() for one in each.values())


def texts(held: Snapshot) -> tuple[str, ...]:
    """The files that do not look like a cache's entries."""
    return tuple(sorted(name for each in held.values() for name, one in each.items() if one.text))


def joined(many: tuple[tuple[Growth, ...], ...]) -> tuple[Growth, ...]:
    total: dict[str, Growth] = {}
    for one in (growth for run in many for growth in run):
        other = total.get(one.cache, Growth(one.cache, 0, 0))
        names = (*other.names, *one.names)[:NAMES_KEPT]
        size, again = other.size_bytes + one.size_bytes, other.again + one.again
        total[one.cache] = Growth(one.cache, other.entries + one.entries, size, names, again)
    return tuple(total.values())


def _of(name: str, before: Mapping[str, Held], after: Mapping[str, Held]) -> Growth:
    gained = {entry: _gain(before.get(entry), held) for entry, held in after.items()}
    new = {entry: size for entry, size in gained.items() if size > 0}
    again = sum(entry in before and before[entry].made_ns != after[entry].made_ns for entry in new)
    return Growth(name, len(new), sum(new.values()), tuple(sorted(new)[:NAMES_KEPT]), again)


def _gain(before: Held | None, after: Held) -> int:
    """The bytes that were written: all of a rewritten entry, none of a text."""
    if after.text:
        return 0
    if before is None or before.made_ns != after.made_ns:
        return after.size_bytes
    return after.size_bytes - before.size_bytes
