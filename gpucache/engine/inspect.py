"""The contents of caches: their states, and the records of our own. Does not change the times of last use."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry, Problem
from gpucache.answers.inspect import Advice, CacheState
from gpucache.caches.interface import Cache, OwnRoot
from gpucache.engine.advice import Traces, advise_on
from gpucache.engine.selection import Opened
from gpucache.engine.staleness import Ask, Origins
from gpucache.errors import FormatError, GpucacheError
from gpucache.model import KeyField
from gpucache.units import format_count

Record = dict[str, object]
"""One line of the journal."""
MISSES_KEPT = 4096
"""How many of the last lines are read."""


class OwnContents(NamedTuple):
    """Our own cache: its state, its records, and the advice on it."""

    state: CacheState
    origins: Origins
    advice: Iterable[Advice]
    """Read once, as there is one for nearly every program."""
    misses: Sequence[Record]
    processes: Sequence[Record]
    noted: int
    """How many builds wait for ``warm --misses``."""


class Overview(NamedTuple):
    """All caches of this machine, and their sums."""

    own: OwnContents
    roots: list[CacheState]
    """Further roots of our own cache."""
    states: list[CacheState]
    """All but ``own``: the roots, other systems' caches, and unused ones."""

    @property
    def every(self) -> list[CacheState]:
        """All states."""
        return [self.own.state, *self.states]

    @property
    def sums(self) -> Mapping[str, int]:
        """The total sizes."""
        stale = sum(one.stale.size_bytes for one in self.every if one.stale)
        return {"total_bytes": sum(one.size_bytes for one in self.every), "total_stale_bytes": stale}


def overview(opened: Opened, others: Sequence[Cache], unused: Sequence[Cache], toolchains: Ask) -> Overview:
    """Our own cache and all others with their stale entries, as ``evict --cache all`` would judge them.

    Drivers are queried only about devices that two toolchains built for, as a child process for each takes a
    second: the entries of an old driver are reported once something was built with the new one.
    """
    first, *further = opened.roots
    own = own_contents(first)
    roots = [state_of(one) for one in further]
    origins = [Origins() for _ in others]
    states = [foreign_state(cache, one) for cache, one in zip(others, origins, strict=True)]
    # No system root, and no place from which programs are redirected, is judged.
    judged = [Origins() if first.location().role else own.origins, *origins]
    here = tuple(toolchains(entry for one in judged for entry in one.rebuilt()))
    now_ns = time.time_ns()
    its, *rest = (
        state._replace(stale=one.summary(one.stale(here, now_ns)))
        for state, one in zip([own.state, *states], judged, strict=True)
    )
    own = own._replace(state=its)
    return Overview(own, roots, [*roots, *rest, *map(foreign_state, unused)])


def own_contents(own: OwnRoot) -> OwnContents:
    """All that there is to know of a root of our own cache."""
    traces, origins = Traces(), Origins()
    found = own_state(own, origins.of(traces.of(own.scan())))
    advice = advise_on(traces, key_fields_of(own))
    records = own.store.journal_tail(MISSES_KEPT)
    processes = [record for record in records if record.get("kind") == "process"]
    return OwnContents(found, origins, advice, recent_misses(records), processes, own.store.missed.count())


def state_of(cache: Cache) -> CacheState:
    """The state of a cache, ours or another system's."""
    return own_state(cache, cache.scan()) if isinstance(cache, OwnRoot) else foreign_state(cache)


def own_state(cache: OwnRoot, scanned: Iterable[CacheEntry]) -> CacheState:
    """The state of our own cache, with the size of the files that are not entries."""
    found = state(cache, scanned)._replace(beside_bytes=cache.beside_bytes())
    if not found.damaged:
        return found
    count = format_count(found.damaged, "entry", "entries")
    told = Problem(None, f"{count} cannot be read; 'gpucache verify' has the reasons")
    return found._replace(found=(told,))


def state(cache: Cache, scanned: Iterable[CacheEntry]) -> CacheState:
    """How much is in a cache, from a scan of it."""
    entries = size_bytes = damaged = 0
    programs: set[str] = set()
    oldest: int | None = None
    for entry in scanned:
        entries += 1
        size_bytes += entry.size_bytes
        damaged += bool(entry.damage)
        programs.add(entry.program)
        if oldest is None or entry.last_used_ns < oldest:
            oldest = entry.last_used_ns
    return CacheState(
        location=cache.location(),
        entries=entries,
        size_bytes=size_bytes,
        files=entries,
        programs=len(programs - {""}),
        damaged=damaged,
        oldest_used_ns=oldest,
    )


def foreign_state(cache: Cache, origins: Origins | None = None) -> CacheState:
    """The state of another system's cache with each problem that a scan finds; the origins of
    its entries are counted in the same pass."""
    damages: list[Problem] = []

    def seen() -> Iterator[CacheEntry]:
        entries = cache.scan(beside=True)
        for entry in entries if origins is None else origins.of(entries):
            if entry.damage:
                detail = f"{entry.key[:12]} {entry.program}: {entry.damage}"
                damages.append(Problem(entry.damage.kind, detail))
            yield entry

    whole: list[Problem] = []
    found = CacheState(cache.location(), 0, 0, 0, 0, 0)
    try:
        found = state(cache, seen())
        whole = [Problem(one.kind, one.detail) for each in cache.leftovers() for one in each.findings]
    except GpucacheError as error:  # reported, so that it does not hide the other caches
        whole = [Problem(None, str(error))]
    told = {one.detail: one for one in (*whole, *damages) if one.detail not in found.location.problems}
    return found._replace(found=tuple(told.values()))


def key_fields_of(cache: Cache) -> Callable[[str], Sequence[KeyField]]:
    """Reads the key fields of an entry by its key; empty if they cannot be read."""

    def read(key: str) -> Sequence[KeyField]:
        try:
            return next((cache.report(entry).key_fields for entry in cache.find(key)), ())
        except FormatError:
            return ()

    return read


def recent_misses(records: Sequence[Record], oldest_ns: int = 0) -> list[Record]:
    """The misses among records of the journal, newest first, from an instant on."""
    return [record for record in records if record.get("kind") == "miss" and _when(record) >= oldest_ns]


def _when(record: Record) -> int:
    when = record.get("when_ns")
    return when if isinstance(when, int) else 0
