"""Say what is in a cache: its state, its entries, one entry whole. Leaves last uses alone."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from gpucache.caches.interface import Cache, Rebuildable
from gpucache.engine.policy import matches_program, matches_target
from gpucache.errors import FormatError, GpucacheError, UsageError
from gpucache.model import KeyField
from gpucache.outcomes import CacheEntry, CacheState

Record = dict[str, object]
"""One line of the journal."""
KEY_DIGITS = frozenset("0123456789abcdef")
SHORTEST_PREFIX = 4
_FOREIGN_KEY = re.compile(r"[0-9a-f]{16,}-\d+")
"""As SYCL's, which end in the number of an entry."""


def own_state(cache: Rebuildable, scanned: Iterable[CacheEntry]) -> CacheState:
    """The same of our own cache, with what lies beside its entries."""
    return replace(state(cache, scanned), beside_bytes=cache.beside_bytes())


def state(cache: Cache, scanned: Iterable[CacheEntry]) -> CacheState:
    """How much is in a cache, from a scan of it, and what is wrong with its place."""
    entries = size_bytes = damaged = 0
    programs: set[str] = set()
    oldest: int | None = None
    for entry in scanned:
        entries += 1
        size_bytes += entry.size_bytes
        damaged += bool(entry.damage)
        programs.add(entry.program)
        oldest = entry.last_used_ns if oldest is None else min(oldest, entry.last_used_ns)
    return CacheState(
        location=cache.location(),
        entries=entries,
        size_bytes=size_bytes,
        files=entries,
        programs=len(programs - {""}),
        damaged=damaged,
        oldest_used_ns=oldest,
    )


def foreign_state(cache: Cache) -> CacheState:
    """The same of a cache of another system, with what a scan sees wrong in it, a sentence each."""
    damages: list[str] = []

    def seen() -> Iterator[CacheEntry]:
        for entry in cache.scan():
            if entry.damage:
                damages.append(f"{entry.key[:12]} {entry.program}: {entry.damage}")
            yield entry

    whole: list[str] = []
    found = CacheState(cache.location(), 0, 0, 0, 0, 0)
    try:
        found = state(cache, seen())
        whole = [finding.detail for checked in cache.leftovers() for finding in checked.findings]
    except GpucacheError as error:  # it is told, and does not hide the other caches
        whole = [str(error)]
    told = dict.fromkeys((*whole, *damages))
    return replace(found, findings=tuple(one for one in told if one not in found.location.problems))


def select(cache: Cache, words: Sequence[str], target: str | None) -> Iterator[CacheEntry]:
    """Entries of the programs, targets or key prefixes named; of all with no words.

    Raises UsageError for a word that names nothing.
    """
    if not words:
        yield from (entry for entry in cache.scan() if target is None or matches_target(entry, target))
        return
    for word in words:
        found = [entry for entry in _named(cache, word) if target is None or matches_target(entry, target)]
        if not found:
            raise UsageError(_nothing(word))
        yield from found


def every(caches: Iterable[Cache], targets: Sequence[str] = ()) -> Iterator[tuple[Cache, CacheEntry]]:
    """The entries of some caches, one by one, each with its cache, for any of some targets or of all."""
    for cache in caches:
        for entry in cache.scan():
            if not targets or any(matches_target(entry, target) for target in targets):
                yield cache, entry


def select_by_cache(
    caches: Sequence[Cache], words: Sequence[str], targets: Sequence[str] = ()
) -> list[tuple[Cache, list[CacheEntry]]]:
    """The entries of each cache that the words name, for any of some targets, or for all with none.

    Raises UsageError for a word that names nothing in any of the caches.
    """
    found = [(cache, _selected(cache, words, targets)) for cache in caches]
    for word in words:
        if not any(by_word[word] for _, by_word in found):
            raise UsageError(_nothing(word))
    return [(cache, [entry for own in by_word.values() for entry in own]) for cache, by_word in found]


def _selected(cache: Cache, words: Sequence[str], targets: Sequence[str]) -> dict[str, list[CacheEntry]]:
    """Entries by the word that names them; by an empty word where there are none."""

    def wanted(entry: CacheEntry) -> bool:
        return not targets or any(matches_target(entry, target) for target in targets)

    if not words:
        return {"": [entry for entry in cache.scan() if wanted(entry)]}
    return {word: [entry for entry in _named(cache, word) if wanted(entry)] for word in words}


def _nothing(word: str) -> str:
    return (
        f"no entry is of a program, target or key {word!r}; run 'gpucache inspect --list' to see the entries"
    )


def key_fields_of(cache: Cache) -> Callable[[str], Sequence[KeyField]]:
    """Reads the key fields of an entry by its key; empty where they cannot be read."""

    def read(key: str) -> Sequence[KeyField]:
        try:
            return next((cache.report(entry).key_fields for entry in cache.find(key)), ())
        except FormatError:
            return ()

    return read


def recent_misses(records: Sequence[Record], oldest_ns: int = 0) -> list[Record]:
    """The misses among records of the journal, newest first, none before an instant."""
    return [record for record in records if record.get("kind") == "miss" and _when(record) >= oldest_ns]


def processes(records: Sequence[Record]) -> list[Record]:
    """What processes counted of their hits and misses, newest first."""
    return [record for record in records if record.get("kind") == "process"]


def _when(record: Record) -> int:
    when = record.get("when_ns")
    return when if isinstance(when, int) else 0


def is_key_prefix(word: str) -> bool:
    """Whether a word can be the beginning of a key."""
    return len(word) >= SHORTEST_PREFIX and set(word) <= KEY_DIGITS


def _named(cache: Cache, word: str) -> list[CacheEntry]:
    if is_key_prefix(word) or _FOREIGN_KEY.fullmatch(word):
        found = cache.find(word)
        if found:
            return found
    return [entry for entry in cache.scan() if matches_program(entry, word) or matches_target(entry, word)]
