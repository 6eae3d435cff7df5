"""The contents of a cache: its state, and the requested entries. Does not change the times of last use."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from gpucache.answers.entries import CacheEntry
from gpucache.answers.inspect import CacheState
from gpucache.caches.interface import Cache, Rebuildable
from gpucache.engine.staleness import Origins
from gpucache.errors import FormatError, GpucacheError, UsageError
from gpucache.model import KeyField

Record = dict[str, object]
"""One line of the journal."""


def own_state(cache: Rebuildable, scanned: Iterable[CacheEntry]) -> CacheState:
    """The state of our own cache, with the size of the files that are not entries."""
    return state(cache, scanned)._replace(beside_bytes=cache.beside_bytes())


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
    """The state of another system's cache, with a sentence for each problem that a scan finds; the origins of
    its entries are counted in the same pass."""
    damages: list[str] = []

    def seen() -> Iterator[CacheEntry]:
        entries = cache.scan()
        for entry in entries if origins is None else origins.of(entries):
            if entry.damage:
                damages.append(f"{entry.key[:12]} {entry.program}: {entry.damage}")
            yield entry

    whole: list[str] = []
    found = CacheState(cache.location(), 0, 0, 0, 0, 0)
    try:
        found = state(cache, seen())
        whole = [finding.detail for checked in cache.leftovers() for finding in checked.findings]
    except GpucacheError as error:  # reported, so that it does not hide the other caches
        whole = [str(error)]
    told = dict.fromkeys((*whole, *damages))
    return found._replace(findings=tuple(one for one in told if one not in found.location.problems))


def select(
    caches: Sequence[Cache], words: Sequence[str] = (), targets: Sequence[str] = ()
) -> list[tuple[Cache, Iterable[CacheEntry]]]:
    """The entries of each cache that some words name, for any of some targets; all entries without words.

    A word is a program, a target or the first digits of a key. Without words the entries are read one by one,
    on demand. Raises UsageError for a word that names nothing in any of the caches.
    """

    from gpucache.engine.evict import matches_target

    def wanted(entry: CacheEntry) -> bool:
        return not targets or any(matches_target(entry, target) for target in targets)

    if not words:
        return [(cache, filter(wanted, cache.scan())) for cache in caches]
    found = {word: [list(filter(wanted, _named(cache, word))) for cache in caches] for word in words}
    for word, by_cache in found.items():
        if not any(by_cache):
            raise UsageError(
                f"no entry is of a program, target or key {word!r}; run 'gpucache inspect --list' to see the "
                "entries"
            )
    return [(cache, list(chain(*own))) for cache, *own in zip(caches, *found.values(), strict=True)]


def _named(cache: Cache, word: str) -> list[CacheEntry]:
    from gpucache.engine.evict import matches_program, matches_target

    found = cache.find(word) if is_key_prefix(word) else []
    return found or [
        entry for entry in cache.scan() if matches_program(entry, word) or matches_target(entry, word)
    ]


def is_key_prefix(word: str) -> bool:
    """Whether a word can be the beginning of a key; in some systems a number follows its digits."""
    return re.fullmatch(r"[0-9a-f]{4,}(-\d+)?", word) is not None


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


def processes(records: Sequence[Record]) -> list[Record]:
    """The records in which processes count their hits and misses, newest first."""
    return [record for record in records if record.get("kind") == "process"]


def _when(record: Record) -> int:
    when = record.get("when_ns")
    return when if isinstance(when, int) else 0
