"""Check every entry of a cache, and on request load or rebuild each in a child process.

Owns the order of checks and what is worth knowing beyond a single entry (stale, superseded). What
is wrong with an entry's bytes is its cache's to say.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpucache.caches.interface import Cache
from gpucache.engine.eviction_policy import is_stale
from gpucache.errors import WorkersError
from gpucache.model import Toolchain
from gpucache.outcomes import CacheEntry, Checked, Finding, FindingKind


@dataclass(frozen=True, slots=True)
class Trial:
    """What trying an entry on a device or against a rebuild said."""

    problem: str = ""
    """What is wrong; empty if nothing is."""
    note: str = ""
    """What could not be told, and why."""
    unchecked: str = ""
    """Why nothing can be tried now, whatever the entry."""


Try = Callable[[CacheEntry], Trial]


def run_verify(
    cache: Cache,
    entries: Iterable[CacheEntry],
    *,
    old: Collection[str] = (),
    toolchains: Sequence[Toolchain] = (),
    trials: Sequence[Try] = (),
    whole: bool = True,
) -> Iterator[tuple[Checked, CacheEntry | None]]:
    """Each entry checked, then what belongs to no entry; ``whole`` is False for a selection of entries.

    ``old`` are the keys of entries that are superseded.
    """
    stopped = ""
    for entry in entries:
        checked = cache.check(entry)
        if not checked.findings and checked.counts:
            try:
                checked = replace(checked, unchecked=stopped) if stopped else _tried(checked, entry, trials)
            except WorkersError as error:  # the next one would not start either, each after a while
                stopped = str(error)
                checked = replace(checked, unchecked=stopped)
        yield _known(checked, entry, old, toolchains), entry
    if whole:
        yield from ((leftover, None) for leftover in cache.leftovers())


def repaired(cache: Cache, found: Sequence[tuple[Checked, CacheEntry | None]]) -> list[Checked]:
    """What was found once everything was checked, with what could be mended taken out of the way."""
    return [cache.repair(checked, entry) if checked.findings else checked for checked, entry in found]


def _tried(checked: Checked, entry: CacheEntry, trials: Sequence[Try]) -> Checked:
    for attempt in trials:
        trial = attempt(entry)
        if trial.problem:
            finding = _finding(entry, FindingKind.MISLABELLED, trial.problem)
            checked = replace(checked, findings=(*checked.findings, finding))
        if trial.note:
            checked = replace(checked, notes=(*checked.notes, trial.note))
        if trial.unchecked:
            checked = replace(checked, unchecked=trial.unchecked)
    return checked


def _known(
    checked: Checked, entry: CacheEntry, old: Collection[str], toolchains: Sequence[Toolchain]
) -> Checked:
    """Add what is worth knowing of a readable entry."""
    extra = []
    if is_stale(entry, toolchains):
        extra.append(
            _finding(entry, FindingKind.STALE, "its device is here with another driver or toolchain")
        )
    if entry.key in old:
        extra.append(
            _finding(entry, FindingKind.SUPERSEDED, "a newer entry has the same program, target and options")
        )
    return replace(checked, findings=(*checked.findings, *extra))


def _finding(entry: CacheEntry, kind: FindingKind, detail: str) -> Finding:
    return Finding(entry.cache, entry.key, kind, detail, entry.program, entry.target)
