"""Which entries ``evict`` removes, a pure function of entries, limits and the time; and their removal.

There may be a million entries. So they are walked once for the facts that a limit needs of all of them, kept
as a few numbers, and again to be judged one by one.

An entry has to match all filters. With a size limit the least recently used of the matching entries are
removed, down to a low-water mark, so that eviction does not run again at the next entry. An entry that is by
itself larger than that mark goes first, as it could not stay even alone.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice

from gpucache.answers.entries import CacheEntry
from gpucache.answers.evict import ALL, EvictOutcome, EvictSummary, Foreseen, Removal
from gpucache.caches.interface import Cache, OwnRoot
from gpucache.engine.selection import Opened, matches_program, matches_target
from gpucache.engine.staleness import Ask, Origin, Origins, origin
from gpucache.errors import CacheUnusableError, UsageError
from gpucache.model import Toolchain
from gpucache.units import format_age, format_count, format_list, format_size

LOW_WATER = 0.8
TYPICAL_NS = 200 * 10**6
"""The assumed cost of compiling an entry whose owner does not store it."""
_AT_ONCE_NS = 60 * 10**9
"""Entries whose last uses differ by less than this count as equally used."""
ORDERED_TOGETHER = 4096
"""How many entries are sorted at once, for their removal in order."""
_RANK = struct.Struct(">??d8sqQ")
"""Whether an entry is refused and whether it fits below the mark, its value, the beginning and the hash
of its key, its size in bytes or files."""


_BY_USE = "--stale and --superseded"
_LEFT_SHOWN = 5
"""How many remaining files of a cache are reported one by one."""
NOTHING_ASKED = (
    "no filter was given; add --max-size, --max-files, --older-than, --superseded, --stale, --unlike, "
    "--program, --target or --all"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The options of ``evict``; a filter that is absent selects everything."""

    max_size_bytes: int | None = None
    max_files: int | None = None
    older_than_ns: int | None = None
    superseded: bool = False
    stale: bool = False
    unlike: tuple[tuple[str, str], ...] = ()
    """Key fields by label: an entry is selected if its field has another value."""
    program: str | None = None
    target: str | None = None
    everything: bool = False
    keep_binaries: bool = False
    """Remove from the selected entries everything that only compilers read; the binary stays."""

    @property
    def filters(self) -> bool:
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
        """Whether nothing is given: no filter, no limit, and not everything."""
        return not (self.filters or self.everything or self.keep_binaries or self.bounded)

    @property
    def bounded(self) -> bool:
        """Whether a size or a number of files is given that the caches are brought down to."""
        return self.max_size_bytes is not None or self.max_files is not None

    @property
    def bound(self) -> int:
        return (self.max_files if self.max_size_bytes is None else self.max_size_bytes) or 0

    def measure(self, entry: CacheEntry) -> int:
        return entry.files if self.max_size_bytes is None else entry.size_bytes


@dataclass(frozen=True, slots=True)
class EvictPlan:
    """Which entries of one cache go, by which rule and in which order.

    Entries are judged as they are read, so none has to be held in memory if the cache is read again.
    """

    entries: Iterable[CacheEntry]
    """All entries; walked anew by each call of ``removals``."""
    rule: str
    chooses: Callable[[CacheEntry], bool]
    order: Callable[[CacheEntry], bytes] | None = None
    """The sort key: the lowest goes first; None for the order in which they are read."""
    strip: Cache | None = None
    """The cache, if only the binaries of its entries are left."""
    unseen: bool = False
    """Whether a rule about last uses chooses nothing because no entry of the cache shows a use."""

    def removals(self, passed: Callable[[CacheEntry], object] = lambda _: None) -> Iterator[Removal]:
        """The entries to remove; ``passed`` is called with each other entry. Too many to sort at once are
        sorted in pieces.
        """
        chosen = self._chosen(passed)
        if self.order is None:
            part = self.strip is not None
            yield from (Removal(one, self.rule, part * one.spare_bytes) for one in chosen)
            return
        while piece := sorted(islice(chosen, ORDERED_TOGETHER), key=self.order):
            yield from (Removal(entry, self.rule) for entry in piece)

    def _chosen(self, passed: Callable[[CacheEntry], object]) -> Iterator[CacheEntry]:
        for entry in self.entries:
            if self.chooses(entry):
                yield entry
            else:
                passed(entry)


def plan(
    entries: Iterable[CacheEntry], limits: Limits, now_ns: int, toolchains: Ask = lambda _: ()
) -> EvictPlan:
    """The plan for one cache, whose entries are walked several times."""
    [found] = plan_each([(entries, limits)], now_ns, toolchains)
    return found


def plan_each(
    caches: Sequence[tuple[Iterable[CacheEntry], Limits]], now_ns: int, toolchains: Ask = lambda _: ()
) -> list[EvictPlan]:
    """The plans for several caches, in their order, each with its own limits."""
    found = _filtered(caches, now_ns, toolchains)
    for number, (one, (_, limits)) in enumerate(zip(found, caches, strict=True)):
        if limits.bounded:
            [found[number]] = _to_low_water([one], limits, lambda entry: entry.last_used_ns)
    return found


def plan_together(
    caches: Sequence[Iterable[CacheEntry]], limits: Limits, now_ns: int, toolchains: Ask = lambda _: ()
) -> list[EvictPlan]:
    """The plans for several caches, with one size limit for their total.

    The least valuable entries go first, in whichever cache they are; entries that cannot be removed stay as
    long as there is anything else to remove.
    """
    found = _filtered([(entries, limits) for entries in caches], now_ns, toolchains)
    if not limits.bounded:
        return found
    if limits.max_size_bytes is None:
        return _to_low_water(found, limits, lambda entry: entry.last_used_ns)
    return _to_low_water(found, limits, lambda entry: worth(entry, now_ns))


def worth(entry: CacheEntry, now_ns: int) -> float:
    """The value of keeping an entry, relative to others: its compile time per byte, less if long unused."""
    compile_ns = TYPICAL_NS if entry.compile_ns is None else max(entry.compile_ns, 1)
    return compile_ns / max(entry.size_bytes, 1) / max(now_ns - entry.last_used_ns, _AT_ONCE_NS)


def is_unlike(entry: CacheEntry, label: str, value: str) -> bool:
    """Whether an entry has a key field of this label, with another value."""
    values = [own for name, own in entry.fields if name == label]
    return bool(values) and value not in values


def _filtered(
    caches: Sequence[tuple[Iterable[CacheEntry], Limits]], now_ns: int, toolchains: Ask
) -> list[EvictPlan]:
    """The entries that match all filters; without a filter all of a cache that has a limit, else none."""
    judged = [Origins() for _ in caches]
    old: list[Callable[[CacheEntry], bool]] = []
    for origins, (entries, limits) in zip(judged, caches, strict=True):
        if limits.stale and not limits.superseded:
            deque(origins.of(entries), maxlen=0)
        old.append(origins.superseded(entries if limits.superseded else (), now_ns))
    here: Iterable[Toolchain] = ()
    if any(limits.stale for _, limits in caches):
        here = tuple(toolchains(entry for origins in judged for entry in origins.samples()))
    plans = []
    for origins, judge, (entries, limits) in zip(judged, old, caches, strict=True):
        tests = _tests(limits, now_ns, origins.stale(here, now_ns), judge)
        rule = ", ".join(name for name, _ in tests)
        if limits.everything:
            rule = ALL
        elif not tests and limits.max_size_bytes is not None:
            rule = f"over {format_size(limits.max_size_bytes)}"
        elif not tests and limits.max_files is not None:
            rule = f"over {format_count(limits.max_files, 'file')}"
        elif not tests and limits.keep_binaries:
            rule = "--keep-binaries"
        unseen = (limits.stale or limits.superseded) and origins.seen > 0 and not origins.used_ns
        chooses = _all_of([test for _, test in tests]) if rule else _none
        plans.append(EvictPlan(entries, rule, chooses, unseen=unseen))
    return plans


def _all_of(tests: Sequence[Callable[[CacheEntry], bool]]) -> Callable[[CacheEntry], bool]:
    return lambda entry: all(test(entry) for test in tests)


def _none(_: CacheEntry) -> bool:
    return False


def _tests(
    limits: Limits, now_ns: int, unread: Mapping[Origin, str], old: Callable[[CacheEntry], bool]
) -> list[tuple[str, Callable[[CacheEntry], bool]]]:
    tests: list[tuple[str, Callable[[CacheEntry], bool]]] = []
    if limits.older_than_ns is not None:
        oldest = now_ns - limits.older_than_ns
        tests.append(
            (f"unused for {format_age(limits.older_than_ns)}", lambda entry: entry.last_used_ns < oldest)
        )
    if limits.superseded:
        tests.append(("superseded", old))
    if limits.stale:
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
    plans: Sequence[EvictPlan], limits: Limits, value: Callable[[CacheEntry], float]
) -> list[EvictPlan]:
    """The least valuable entries that the plans choose, as many as the low-water mark needs.

    Entries that can never be removed come last, so that the reasons are reported if the limit cannot be met.
    For each chosen entry its place in the order is kept, 80 bytes or so.
    """
    total = 0
    ranks: list[bytes] = []
    mark, size = limits.bound * LOW_WATER, limits.measure
    for one in plans:
        for entry in one.entries:
            total += size(entry)
            if one.chooses(entry):
                ranks.append(_rank(entry, one.rule, value, size(entry), mark))
    last = b""
    if total > limits.bound:
        for rank in sorted(ranks):
            if total <= mark:
                break
            last = rank
            refused, *_, freed = _RANK.unpack(rank)
            total -= 0 if refused else freed

    def bounded(one: EvictPlan) -> EvictPlan:
        def order(entry: CacheEntry) -> bytes:
            return _rank(entry, one.rule, value, size(entry), mark)

        def chooses(entry: CacheEntry) -> bool:
            return one.chooses(entry) and order(entry) <= last

        return replace(one, chooses=chooses, order=order)

    return [bounded(one) for one in plans]


def _rank(
    entry: CacheEntry, rule: str, value: Callable[[CacheEntry], float], size: int, mark: float
) -> bytes:
    """A sort key for the order of removal: removable entries first, then those above the mark by themselves,
    then the least valuable, then by key; and the size.

    The key's beginning is for the order, and its hash distinguishes keys that begin alike.
    """
    refused = Removal(entry, rule).refused is not None
    key = entry.key
    return _RANK.pack(refused, size <= mark, max(value(entry), 0), key[:8].encode(), hash(key), size)


Passed = Callable[[CacheEntry], object]


def foresee(evict_plan: EvictPlan, passed: Passed = lambda _: None) -> Iterator[EvictOutcome]:
    for removal in evict_plan.removals(passed):
        yield EvictOutcome(removal, removal.refused, tried=False)


def run_evict(cache: Cache, evict_plan: EvictPlan, passed: Passed = lambda _: None) -> Iterator[EvictOutcome]:
    """Remove the planned entries, but none that changed since it was chosen."""
    removals = evict_plan.removals(passed)
    if (strip := evict_plan.strip) is not None:
        for removal in removals:
            yield EvictOutcome(removal, removal.refused or strip.strip(removal.entry))
        return
    for first in removals:
        yield from _together(cache, chain([first], islice(removals, cache.together - 1)), evict_plan.rule)


def _together(cache: Cache, some: Iterable[Removal], rule: str) -> Iterator[EvictOutcome]:
    """Remove several entries at once. A cache may take them all before it reports the first."""
    asked: deque[Removal] = deque()

    def going() -> Iterator[CacheEntry]:
        for removal in some:
            asked.append(removal)
            if removal.refused is None:
                yield removal.entry

    def refused() -> Iterator[EvictOutcome]:
        while asked and (why := asked[0].refused) is not None:
            yield EvictOutcome(asked.popleft(), why)

    for kept in cache.remove_together(going(), rule):
        yield from refused()
        yield EvictOutcome(asked.popleft(), kept)
    yield from refused()


def trim(cache: Cache, max_size_bytes: int, now_ns: int) -> int:
    """Keep a cache under its bound; returns how many entries were removed."""
    outcomes = run_evict(cache, plan(cache.entries(), Limits(max_size_bytes=max_size_bytes), now_ns))
    return sum(outcome.removed for outcome in outcomes)


@dataclass(frozen=True, slots=True)
class Eviction:
    """A plan for each of some opened caches."""

    opened: Opened
    asked: Limits
    plans: list[tuple[Cache, EvictPlan]]

    def foreseen(self, total: Foreseen, owns: Sequence[Foreseen]) -> Iterator[EvictOutcome]:
        """The expected outcomes; counted in ``total``, and for each cache in one of ``owns``."""
        for own, (_, one) in zip(owns, self.plans, strict=True):
            yield from own.of(foresee(one, own.keep))
            total.include(own)
        total.left = self.left()
        total.unread = self.opened.unread

    def run(self, summary: EvictSummary, said: list[str]) -> Iterator[EvictOutcome]:
        """Remove the planned entries; at the end, ``summary`` and the sentences in ``said`` are complete."""
        emptied = []
        for cache, one in self.plans:
            own = EvictSummary()
            try:
                yield from own.of(run_evict(cache, one, own.keep))
            finally:
                summary.include(own)
            if own.chosen:
                said += cache.finish_removals()
            if self.asked.everything and not own.stay:
                emptied.append(cache)
        for root in self.opened.roots:
            rule = ALL if root in emptied and not root.unread() else ""
            said += filter(None, [root.sweep(_max_size(self.asked, root), rule)])
        summary.left = self.left()
        summary.unread = self.opened.unread

    @property
    def unseen(self) -> str:
        """A sentence about caches in which uses leave no trace, if a rule needs uses; else empty."""
        names = format_list([*dict.fromkeys(cache.name for cache, one in self.plans if one.unseen)], 8)
        return f"no use of an entry of {names} is recorded, so {_BY_USE} choose none" if names else ""

    def left(self) -> tuple[str, ...]:
        """With ``--all``: sentences about files that are not entries; they stay, as they may be another
        program's."""
        told: list[str] = []
        for cache, _ in self.plans if self.asked.everything else ():
            place = f"{cache.name}:{cache.location().root}"
            with suppress(CacheUnusableError):
                found = [finding for checked in cache.leftovers() for finding in checked.findings]
                told += [f"left in {place}: {one.entry}: {one.detail}" for one in found[:_LEFT_SHOWN]]
                if (more := len(found) - _LEFT_SHOWN) > 0:
                    told.append(f"left in {place}: {more} more; run 'gpucache verify --cache {place}'")
        return tuple(told)


def plan_eviction(opened: Opened, asked: Limits, toolchains: Ask, now_ns: int, *, heads: bool) -> Eviction:
    """The plans of the removals from opened caches; without ``heads`` as ``Cache.entries`` reads them.

    Raises UsageError for limits that do not go together, for a name that no entry has, and if nothing is
    given and a cache has no own limit.
    """
    if asked.max_size_bytes is not None and asked.max_files is not None:
        raise UsageError("--max-size and --max-files are two runs; give one of them")
    if asked.everything and (asked.filters or asked.bounded):
        raise UsageError("--all goes with no other filter; leave the other filters out")
    if asked.keep_binaries and (asked.everything or asked.bounded):
        raise UsageError("--keep-binaries goes only with filters; leave --all and limits out")
    limits = [_limits(asked, cache) for cache in opened.caches]
    every = [cache.entries(heads=heads) for cache in opened.caches]
    with opened.found_or_unread():
        _require_names(asked, every)
    if asked.bounded and len(every) > 1:
        plans = plan_together(every, asked, now_ns, toolchains)
    else:
        plans = plan_each(list(zip(every, limits, strict=True)), now_ns, toolchains)
    if asked.keep_binaries:
        plans = [_stripping(one, cache) for one, cache in zip(plans, opened.caches, strict=True)]
    return Eviction(opened, asked, list(zip(opened.caches, plans, strict=True)))


def _stripping(one: EvictPlan, cache: Cache) -> EvictPlan:
    """The plan that leaves the binaries of its entries; raises UsageError if a cache keeps nothing else."""
    if not cache.strips:
        raise UsageError(
            f"--keep-binaries is for caches that keep each stage of a compilation, which {cache.name} does "
            "not; name others by --cache"
        )
    return replace(one, chooses=_all_of([one.chooses, lambda entry: entry.spare_bytes > 0]), strip=cache)


def _require_names(asked: Limits, every: Sequence[Iterable[CacheEntry]]) -> None:
    """Raise UsageError for a name that no entry has: it was mistyped, and would seem to keep everything."""
    known = {entry.fields: None for entry in chain(*every)} if asked.unlike else {}
    labels = {name for fields in known for name, _ in fields}
    for label, _ in asked.unlike:
        if known and label not in labels:
            told = f"--unlike takes one of {', '.join(sorted(labels))}" if labels else "they have none at all"
            raise UsageError(f"no entry has a field {label!r}; {told}")
    for what, name, matches in (
        ("program", asked.program, matches_program),
        ("target", asked.target, matches_target),
    ):
        if name is not None and not any(matches(entry, name) for entry in chain(*every)):
            raise UsageError(
                f"no entry is of the {what} {name!r}; run 'gpucache inspect --list' to see the entries"
            )


def _limits(asked: Limits, cache: Cache) -> Limits:
    """The limits that were asked for, or the cache's own limit if there are none."""
    limit_bytes = _max_size(asked, cache)
    if asked.empty and limit_bytes is None:
        own = "; or set GPUCACHE_MAX_SIZE" if isinstance(cache, OwnRoot) else ""
        raise UsageError(f"{NOTHING_ASKED}{own}")
    return replace(asked, max_size_bytes=limit_bytes)


def _max_size(asked: Limits, cache: Cache) -> int | None:
    return cache.location().limit_bytes if asked.empty else asked.max_size_bytes
