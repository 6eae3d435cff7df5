"""Which entries ``evict`` removes: a pure function of entries, limits and the time.

An entry has to match all filters. With a size limit the least recently used of the matching entries are
removed, down to a low-water mark, so that eviction does not run again at the next entry.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from gpucache.engine.staleness import Origins, origin
from gpucache.model import Toolchain
from gpucache.outcomes import ALL, CacheEntry, EvictPlan, Removal
from gpucache.units import format_age, format_size

LOW_WATER = 0.8
TYPICAL_NS = 200 * 10**6
"""What compiling an entry is taken to have cost where its owner does not store that."""
_AT_ONCE_NS = 60 * 10**9
"""Entries used within so long are equally in use."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What ``evict`` was asked for; a filter that is absent selects everything."""

    max_size_bytes: int | None = None
    older_than_ns: int | None = None
    superseded: bool = False
    stale: bool = False
    unlike: tuple[tuple[str, str], ...] = ()
    """Key fields by label: an entry is selected if its field has another value."""
    program: str | None = None
    target: str | None = None
    everything: bool = False

    @property
    def filters(self) -> bool:
        """Whether anything but a size limit was asked for."""
        return bool(
            self.older_than_ns is not None
            or self.superseded
            or self.stale
            or self.unlike
            or self.program is not None
            or self.target is not None
        )

    @property
    def empty(self) -> bool:
        """Whether nothing at all was asked for."""
        return not (self.filters or self.everything or self.max_size_bytes is not None)


def plan(
    entries: Iterable[CacheEntry], limits: Limits, now_ns: int, toolchains: Iterable[Toolchain] = ()
) -> EvictPlan:
    """The entries of one cache to remove, each with the rule that chose it, and what stays."""
    everything = list(entries)
    chosen = _filtered(everything, limits, now_ns, tuple(toolchains))
    if limits.max_size_bytes is not None:
        chosen = _to_low_water(everything, chosen, limits, lambda entry: entry.last_used_ns)
    return _planned(everything, chosen)


def plan_together(
    caches: Sequence[Sequence[CacheEntry]], limits: Limits, now_ns: int, toolchains: Iterable[Toolchain] = ()
) -> list[EvictPlan]:
    """The same of several caches, in their order, which a size limit bounds together.

    The least valuable entries go first, wherever they lie; what nothing removes stays as long as there is
    anything else to remove.
    """
    here = tuple(toolchains)
    found = [_filtered(list(entries), limits, now_ns, here) for entries in caches]
    if limits.max_size_bytes is not None:
        every = [entry for entries in caches for entry in entries]
        some = [removal for chosen in found for removal in chosen]
        places = {id(entry): number for number, entries in enumerate(caches) for entry in entries}
        found = [[] for _ in caches]
        for removal in _to_low_water(every, some, limits, lambda entry: worth(entry, now_ns)):
            found[places[id(removal.entry)]].append(removal)
    return [_planned(entries, chosen) for entries, chosen in zip(caches, found, strict=True)]


def worth(entry: CacheEntry, now_ns: int) -> float:
    """What keeping an entry is worth beside others: the time that its compiling took, for each byte on disk,
    and less the longer ago it was used."""
    compile_ns = TYPICAL_NS if entry.compile_ns is None else max(entry.compile_ns, 1)
    return compile_ns / max(entry.size_bytes, 1) / max(now_ns - entry.last_used_ns, _AT_ONCE_NS)


def _planned(entries: Sequence[CacheEntry], chosen: Sequence[Removal]) -> EvictPlan:
    gone = {id(removal.entry) for removal in chosen}
    kept = [entry for entry in entries if id(entry) not in gone]
    return EvictPlan(tuple(chosen), len(kept), sum(entry.size_bytes for entry in kept))


def superseded(entries: Iterable[CacheEntry]) -> frozenset[str]:
    """Keys of entries for which there is a newer one of the same program, target and variant.

    Sources in two places are two programs even with one name, as every project has its ``main.cl``; an entry
    of an unknown place is compared with all. Kept are the keys that are given and, of each program, target,
    variant and place, some hundred bytes of the newest entry.
    """
    old: set[str] = set()
    placed: dict[tuple[bytes, str], bytes] = {}
    unplaced: dict[bytes, bytes] = {}
    for number, entry in enumerate(entries):
        if not entry.program or entry.damage or entry.unique:
            continue
        build = _digest(entry)
        # Bytes that sort by time, then as they were read; a tuple would take twice the memory.
        one = b"%020d%020d%s" % (max(entry.created_ns, 0), number, entry.key.encode())
        if entry.place:
            other = placed.setdefault((build, entry.place), one)
            placed[build, entry.place] = max(one, other)
        else:
            other = unplaced.setdefault(build, one)
            unplaced[build] = max(one, other)
        if other is not one:
            old.add(_key(min(one, other)))
    for (build, _), one in placed.items():
        if build in unplaced:
            old.add(_key(min(one, unplaced[build])))
    return frozenset(old)


def _key(known: bytes) -> str:
    return known[40:].decode()


def _digest(entry: CacheEntry) -> bytes:
    """A digest of the program, target and variant of an entry."""
    from hashlib import blake2b

    program, target, kind, variant = entry.program, entry.target, entry.artifact_kind, entry.variant
    framed = f"{len(program)} {len(target)} {len(kind)} {program}{target}{kind}{variant}"
    return blake2b(framed.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def is_unlike(entry: CacheEntry, label: str, value: str) -> bool:
    """Whether an entry has a key field of this label, with another value."""
    values = [own for name, own in entry.fields if name == label]
    return bool(values) and value not in values


def matches_program(entry: CacheEntry, program: str) -> bool:
    """Whether a word names an entry's program: its name, the last part of its name, or one of its kernels."""
    if entry.program == program or entry.program.endswith(f"/{program}"):
        return True
    kernels = (value for label, value in entry.fields if label in ("kernel", "kernels"))
    return entry.program.startswith(f"{program} and ") or any(
        program in value.replace(",", " ").split() for value in kernels
    )


def matches_target(entry: CacheEntry, target: str) -> bool:
    """Whether an entry is for a target, for one below it, or for a version of the platform.

    If two platforms share a name, their targets carry versions, as in ``opencl:pocl-3.1/cpu``. The plain
    name, with which ``warm`` finds the one that can be compiled for, means all of them.
    """
    if not entry.target.startswith(target):
        return False
    rest = entry.target[len(target) :]
    return re.match(r"\Z|[/:]", rest) is not None or re.match(r"-\d[^/]*/", rest) is not None


def _filtered(
    entries: list[CacheEntry], limits: Limits, now_ns: int, toolchains: tuple[Toolchain, ...]
) -> list[Removal]:
    if limits.everything:
        return [Removal(entry, ALL) for entry in entries]
    if not limits.filters:
        return []
    tests = _tests(entries, limits, now_ns, toolchains)
    rule = ", ".join(name for name, _ in tests)
    return [Removal(entry, rule) for entry in entries if all(test(entry) for _, test in tests)]


def _tests(
    entries: list[CacheEntry], limits: Limits, now_ns: int, toolchains: tuple[Toolchain, ...]
) -> list[tuple[str, Callable[[CacheEntry], bool]]]:
    tests: list[tuple[str, Callable[[CacheEntry], bool]]] = []
    if limits.older_than_ns is not None:
        oldest = now_ns - limits.older_than_ns
        tests.append(
            (f"unused for {format_age(limits.older_than_ns)}", lambda entry: entry.last_used_ns < oldest)
        )
    if limits.superseded:
        old = superseded(entries)
        tests.append(("superseded", lambda entry: entry.key in old))
    if limits.stale:
        origins = Origins()
        deque(origins.of(entries), maxlen=0)
        unread = origins.stale(toolchains, now_ns)
        tests.append(("stale", lambda entry: origin(entry) in unread))
    for label, value in limits.unlike:
        tests.append((f"{label} is not {value}", partial(is_unlike, label=label, value=value)))
    if limits.program is not None:
        program = limits.program
        tests.append((f"program {program}", lambda entry: matches_program(entry, program)))
    if limits.target is not None:
        target = limits.target
        tests.append((f"target {target}", lambda entry: matches_target(entry, target)))
    return tests


def _to_low_water(
    entries: Sequence[CacheEntry],
    chosen: list[Removal],
    limits: Limits,
    value: Callable[[CacheEntry], float],
) -> list[Removal]:
    """The least valuable of the chosen (or of all) entries, as many as the low-water mark needs; those that
    stay whatever is planned come last, so that the reasons are told where the limit cannot be met."""
    limit = limits.max_size_bytes or 0
    total = sum(entry.size_bytes for entry in entries)
    if total <= limit:
        return []
    rule = f"over {format_size(limit)}"
    pool = chosen if limits.filters else [Removal(entry, rule) for entry in entries]

    def order(one: Removal) -> tuple[bool, float, str]:
        return one.refused is not None, value(one.entry), one.entry.key

    removals = []
    for removal in sorted(pool, key=order):
        if total <= limit * LOW_WATER:
            break
        removals.append(removal)
        total -= removal.entry.size_bytes if removal.refused is None else 0
    return removals
