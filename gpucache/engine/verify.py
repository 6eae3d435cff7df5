"""Check every entry of a cache, and on request load or rebuild each in a child process.

The cache itself reports the faults of an entry. This module adds findings from other entries and from
this machine: superseded and stale ones.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.verify import Checked, Finding
from gpucache.caches.interface import Cache
from gpucache.engine.selection import Opened
from gpucache.engine.staleness import Ask, Origin, Origins, origin
from gpucache.errors import WorkersError

Judge = Callable[[CacheEntry], bool]
Try = Callable[[CacheEntry], Checked]
"""Loads an entry on a device, or builds it again; ``unchecked`` is why no entry can be tried now."""
_WORTH_A_SHARE = 2_000
_TOGETHER = 256


def verify_caches(
    opened: Opened,
    words: Sequence[str],
    trials: Mapping[str, Sequence[Try]],
    toolchains: Ask,
    progress: Callable[[int, int, str], object],
    *,
    repair: bool,
    whole: bool,
) -> Iterator[Checked]:
    """Every entry of opened caches, or those that words name, as it is checked.

    Repairs come at the end of each cache. ``trials`` are the trials of our own roots by their paths, and
    ``progress`` gets the number of entries that were checked, of all, and a name. With ``whole`` each sound
    entry is reported by itself. Raises UsageError for a word that names nothing.
    """
    selected = opened.select(words)
    origins = [Origins() for _ in selected]
    now_ns = time.time_ns()
    large = [
        0 if words or whole or cache.location().root in trials else _large(cache) for cache, _ in selected
    ]
    old, total, done = list[Judge](), sum(large), 0
    for of, size, (cache, own) in zip(origins, large, selected, strict=True):
        # Entries that no word names may show that their toolchain is in use.
        old.append(of.superseded(() if size else cache.scan() if words else own, now_ns))
        total += len([*own]) if words else of.seen

    def told(cache: Cache, found: Iterable[tuple[Checked, CacheEntry | None]]) -> Iterator[Checked]:
        nonlocal done
        wrong: list[tuple[Checked, CacheEntry | None]] = []
        for checked, entry in found:
            progress(done, total, checked.entry[:12])
            done += checked.counts
            if repair and checked.findings:
                wrong.append((checked, entry))
            else:
                yield checked
        yield from repaired(cache, wrong)

    try:
        for (cache, _), of, size in zip(selected, origins, large, strict=True):
            yield from told(cache, run_shares(cache, size, of) if size else ())
        named = [own for _, own in selected] if words else [one.samples() for one in origins]
        here = tuple(toolchains(chain(*named)))
        for (cache, entries), of, its, size in zip(selected, origins, old, large, strict=True):
            stale = of.stale(here, now_ns)
            found = run_verify(
                cache,
                entries if words else None,  # a cache is read again rather than kept in memory
                old=its,
                stale=stale,
                trials=trials.get(cache.location().root, ()),
                whole=not words,
            )
            yield from told(cache, _later(cache, of, stale, now_ns) if size else found)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{done} of {total} were checked") from None


def run_verify(
    cache: Cache,
    entries: Iterable[CacheEntry] | None,
    *,
    old: Judge = lambda _: False,
    stale: Mapping[Origin, str] = MappingProxyType({}),
    trials: Sequence[Try] = (),
    whole: bool = True,
) -> Iterator[tuple[Checked, CacheEntry | None]]:
    """Checks each entry, then the files of no entry; ``whole`` is False for a selection of entries.

    Without ``entries`` they are all that the cache has. ``old`` finds superseded entries, and ``stale``
    are the origins of unused ones.
    """
    stopped = ""
    for entry, checked in _checked(cache, entries):
        if trials and not checked.findings and checked.counts:
            try:
                checked = checked._replace(unchecked=stopped) if stopped else _tried(checked, entry, trials)
            except WorkersError as error:  # the next worker would not start either, and each try takes time
                stopped = str(error)
                checked = checked._replace(unchecked=stopped)
        yield _known(checked, entry, old, stale), entry
    if whole:
        yield from ((leftover, None) for leftover in cache.leftovers())


def _large(cache: Cache) -> int:
    """The number of a cache's entries if they are worth sharing out among the cores, else 0."""
    count = cache.count() if cache.divides else 0
    return count if count >= 2 * _WORTH_A_SHARE else 0


def run_shares(cache: Cache, size: int, origins: Origins) -> Iterator[tuple[Checked, CacheEntry | None]]:
    """Checks each entry of a large cache, all of them shared out among the cores, then the files of no entry.

    Entries are read once, and counted in ``origins``. Many sound ones are one outcome.
    """
    from gpucache.engine.workers.capacity import cores  # which a small cache does not need
    from gpucache.host.forks import shared_out

    shares = min(cores(), size // _WORTH_A_SHARE)

    def done(number: int) -> Iterator[tuple[Checked, CacheEntry] | Origins]:
        own = Origins()
        yield from _counted(own.versions_of(cache.checked((number, shares))))
        yield own

    for one in shared_out(done, shares):
        if isinstance(one, Origins):
            origins.include(one)
        else:
            yield one
    yield from ((leftover, None) for leftover in cache.leftovers())


def _later(
    cache: Cache, origins: Origins, stale: Mapping[Origin, str], now_ns: int
) -> Iterator[tuple[Checked, CacheEntry | None]]:
    """Stale and superseded entries among those that were checked already."""
    if stale or origins.may_supersede():
        old = Origins().superseded(cache.scan(), now_ns)
        for entry in cache.scan():
            found = _known(Checked(entry.key, counts=False), entry, old, stale)
            if found.findings:
                yield found, entry


def _counted(found: Iterable[tuple[CacheEntry, Checked]]) -> Iterator[tuple[Checked, CacheEntry]]:
    """Each entry with a finding; runs of sound entries are one outcome."""
    sound = 0
    for entry, checked in found:
        if checked.findings or checked.notes or checked.unchecked or not checked.counts:
            yield checked, entry
            continue
        sound += 1
        if sound == _TOGETHER:
            yield Checked(entry.key, counts=sound), entry
            sound = 0
    if sound:
        yield Checked(entry.key, counts=sound), entry


def _checked(cache: Cache, entries: Iterable[CacheEntry] | None) -> Iterable[tuple[CacheEntry, Checked]]:
    return cache.checked() if entries is None else ((entry, cache.check(entry)) for entry in entries)


def repaired(cache: Cache, found: Sequence[tuple[Checked, CacheEntry | None]]) -> list[Checked]:
    """Repair every repairable finding after all checks; returns the findings, marked as repaired."""
    done = [cache.repair(checked, entry) if checked.findings else checked for checked, entry in found]
    cache.finish_repairs()
    return done


def _tried(checked: Checked, entry: CacheEntry, trials: Sequence[Try]) -> Checked:
    for attempt in trials:
        trial = attempt(entry)
        checked = checked._replace(
            findings=(*checked.findings, *trial.findings),
            notes=(*checked.notes, *trial.notes),
            unchecked=trial.unchecked or checked.unchecked,
            passed=(*checked.passed, *trial.passed),
        )
    return checked


def _known(checked: Checked, entry: CacheEntry, old: Judge, stale: Mapping[Origin, str]) -> Checked:
    extra = []
    if stale and (why := stale.get(origin(entry))):
        extra.append(Finding.about(entry, Problem(FindingKind.STALE, why)))
    if old(entry):
        detail = "a newer entry has the same program, target and options, and this one was not used since"
        extra.append(Finding.about(entry, Problem(FindingKind.SUPERSEDED, detail)))
    return checked._replace(findings=(*checked.findings, *extra)) if extra else checked
