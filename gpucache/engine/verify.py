"""Check every entry of a cache, and on request load or rebuild each in a child process.

The cache itself reports the faults of an entry. This module adds findings from other entries and from
this machine: superseded and stale ones.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
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
    old, total = [], 0
    for of, (cache, own) in zip(origins, selected, strict=True):
        # Entries that no word names may show that their toolchain is in use.
        old.append(of.superseded(cache.scan() if words else own, now_ns))
        total += len([*own]) if words else of.seen
    done = 0
    named = [own for _, own in selected] if words else [one.samples() for one in origins]
    here = tuple(toolchains(chain(*named)))
    try:
        for (cache, entries), of, its in zip(selected, origins, old, strict=True):
            wrong: list[tuple[Checked, CacheEntry | None]] = []
            for checked, entry in run_verify(
                cache,
                entries if words else None,  # a cache is read again rather than kept in memory
                old=its,
                stale=of.stale(here, now_ns),
                trials=trials.get(cache.location().root, ()),
                whole=not words,
                sound_alike=0 if words or whole else of.seen,
            ):
                progress(done, total, checked.entry[:12])
                done += entry is not None
                if repair and checked.findings:
                    wrong.append((checked, entry))
                else:
                    yield checked
            yield from repaired(cache, wrong)
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
    sound_alike: int = 0,
) -> Iterator[tuple[Checked, CacheEntry | None]]:
    """Checks each entry, then the files of no entry; ``whole`` is False for a selection of entries.

    Without ``entries`` they are all that the cache has. ``old`` finds superseded entries, and ``stale``
    are the origins of unused ones. ``sound_alike`` is the number of entries if the result need not say which
    of them are sound: so many are shared out among the cores.
    """
    shares = 1
    if sound_alike >= 2 * _WORTH_A_SHARE and not trials and cache.divides:
        from gpucache.engine.workers.capacity import cores  # which a small cache does not need
        from gpucache.host.forks import shared_out

        shares = min(cores(), sound_alike // _WORTH_A_SHARE)
    if shares > 1:

        def told(number: int) -> Iterator[tuple[Checked, CacheEntry, int]]:
            found = cache.checked((number, shares))
            return _counted((_known(checked, entry, old, stale), entry) for entry, checked in found)

        for checked, entry, times in shared_out(told, shares):
            yield from repeat((checked, entry), times)
        yield from ((leftover, None) for leftover in cache.leftovers())
        return
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


def _counted(
    found: Iterable[tuple[Checked, CacheEntry]],
) -> Iterator[tuple[Checked, CacheEntry, int]]:
    """Each entry with a finding; runs of sound entries are one outcome with their number."""
    times = 0
    for checked, entry in found:
        if checked.findings or checked.notes or checked.unchecked or not checked.counts:
            yield checked, entry, 1
            continue
        times += 1
        if times == _TOGETHER:
            yield checked, entry, times
            times = 0
    if times:
        yield Checked(entry.key), entry, times


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
