"""Why a lookup missed: was the cache queried at all, and which field differs from the nearest entry.

Owns the verdicts and their order. Must not know how an explanation is shown.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.answers.lookup import Hit, Miss, Verdict
from gpucache.engine.nearest import Nearest, Record, nearest, record_of
from gpucache.engine.phrases import phrases, told_once
from gpucache.engine.prepare import Prepared
from gpucache.engine.store_layers import Layers, NoEntry
from gpucache.errors import CacheUnusableError
from gpucache.keys import NOT_FOUND, Difference, digest, format_local_size, header_of
from gpucache.model import CacheKey
from gpucache.store.interface import Damage, Event, ScannedEntry
from gpucache.units import format_age, format_instant

if TYPE_CHECKING:
    from gpucache.store.directory import DirectoryStore

_POISON_NS = 7 * 86_400 * 10**9
_PHRASES_TOLD = 4
_SAMPLED = 64
_GONE = {"evicted": Verdict.EVICTED, "quarantined": Verdict.CORRUPT}
_TOLD_AS = {"evicted": "removed", "quarantined": "quarantined"}
"""The same in words that do not repeat the verdict."""


def explain(layers: Layers, prepared: Prepared, met: NoEntry) -> Miss:
    """The verdict on a request without an entry in any layer; names every root that could not be queried."""
    if layers.disabled:
        return Miss(Verdict.NOT_CONSULTED, "GPUCACHE_DISABLE is set, so no cache was asked")
    if prepared.refusal is not None:
        return Miss(Verdict.UNCACHEABLE, prepared.refusal)
    if met.incomplete is not None:
        return _incomplete(prepared, met.incomplete)
    sentences = [sentence for _, sentence in layers.not_asked]
    if not any(True for _ in layers.on_disk()):
        return Miss(Verdict.NOT_CONSULTED, "; ".join(sentences) or "no cache root is configured")
    miss = _verdict(layers, prepared, met)
    if sentences and miss.verdict is Verdict.NEVER_BUILT:  # a root that was not queried may have it
        miss = miss._replace(verdict=Verdict.NOT_CONSULTED)
    if miss.verdict is Verdict.NOT_CONSULTED:
        return miss._replace(detail="; ".join((*sentences, miss.detail)))
    return miss._replace(detail="; ".join((miss.detail, *sentences)))


def _incomplete(prepared: Prepared, found: Hit) -> Miss:
    before = " ".join(map(format_local_size, found.head.local_sizes))
    more = " ".join(map(format_local_size, prepared.lacking_sizes(found.head)))
    return Miss(
        Verdict.INCOMPLETE,
        f"{found.key.short} is compiled for {before or 'no local size'}, and not for {more}: "
        f"programs hit it, and compile at their first launch with {more}",
        (Difference("local size", before or None, f"{before} {more}".strip()),),
        found.key,
    )


def _verdict(layers: Layers, prepared: Prepared, met: NoEntry) -> Miss:
    if met.damaged:
        first = met.damaged[0]
        what = "and was moved to quarantine" if first.quarantined else "and could not be moved away"
        how = "damaged" if first.damage is Damage.CORRUPT else first.damage  # the verdict has that word
        return Miss(Verdict.CORRUPT, f"the entry was {how}: {first.detail}, {what}")
    records = [record_of(store, prepared) for store in layers.on_disk()]
    return (
        _removed(records, prepared)
        or _unread(met)
        or _elsewhere(layers, prepared)
        or _lost(records, prepared)
        or _forgotten(records, prepared)
        or _nearest(layers, records, prepared)
        or _unknown(layers, prepared, records)
    )


def is_poisoned(layers: Layers, prepared: Prepared, timeout_s: float) -> bool:
    """Whether a key is on the poison list, unless a shorter time limit than this one put it there."""
    last = [event for store in layers.on_disk() for event in record_of(store, prepared).of(prepared)[-1:]]
    poisoned = [event for event in last if _is_poisoning(event)]
    return bool(poisoned) and not any(0 < event.limit_s < timeout_s for event in poisoned)


def _is_poisoning(event: Event) -> bool:
    """Whether a key's last event keeps it on the poison list; not for ever, as a machine's trouble passes."""
    return event.what == "poisoned" and time.time_ns() - event.when_ns < _POISON_NS


def _removed(records: Sequence[Record], prepared: Prepared) -> Miss | None:
    """The last event of this very key, if it explains why there is no entry."""
    for record in records:
        for last in record.of(prepared)[-1:]:
            when, why = format_instant(last.when_ns), last.why or "no reason kept"
            if last.what in _GONE:
                return Miss(_GONE[last.what], f"{_TOLD_AS[last.what]} at {when}: {why}")
            if _is_poisoning(last):
                retry = f"--retry or a --timeout above {last.limit_s:g}" if last.limit_s else "--retry"
                return Miss(
                    Verdict.POISONED,
                    f"its compiler failed twice in warm at {when}: {why}; warm {retry} tries it again",
                )
    return None


def _lost(records: Sequence[Record], prepared: Prepared) -> Miss | None:
    """A miss if this very key was built and no event explains why its entry is gone."""
    for record in records:
        for last in record.of(prepared)[-1:]:
            if last.what == "built":
                removed = record.store.removed_record(last.program)
                if removed is not None and removed.why and removed.when_ns > last.when_ns:
                    when = format_instant(removed.when_ns)
                    return Miss(Verdict.EVICTED, f"removed at {when}: {removed.why}")
                return Miss(
                    Verdict.NOT_RECORDED,
                    f"{last.key[:12]} was built at {format_instant(last.when_ns)} into {record.store.root}, "
                    "and is gone without a record: something other than gpucache removed its file",
                )
    return None


def _forgotten(records: Sequence[Record], prepared: Prepared) -> Miss | None:
    """No build of this program is recorded, and its record was removed."""
    name = prepared.request.program.name
    if any(record.builds() for record in records):
        return None
    for record in records:
        removed, root = record.store.removed_record(name), record.store.root
        if removed is None:
            continue
        when = format_instant(removed.when_ns)
        if removed.why:
            detail = f"removed at {when}: {removed.why}, with the record of what was built as {name}"
            return Miss(Verdict.EVICTED, detail)
        what = "its record was removed" if removed.named else "old records, maybe its own, were removed"
        return Miss(
            Verdict.NOT_RECORDED,
            f"it is no longer known whether {name} was ever built into {root}: {what} at {when}, because "
            "only so much is kept of past builds",
        )
    return None


def _unread(met: NoEntry) -> Miss | None:
    """A miss if this very key's entry exists but could not be read, or its store could not be queried."""
    for store, key, reason in met.unread:
        told = f"in {store.root} {reason}"
        if store.contains(key):
            detail = f"{key.short} is in {store.root}, but {reason}"
            return Miss(Verdict.NOT_RECORDED, detail, unread=told)
        detail = f"{store.root} could not be asked for {key.short}: {reason}"
        return Miss(Verdict.NOT_CONSULTED, detail, unread=told)
    return None


def _elsewhere(layers: Layers, prepared: Prepared) -> Miss | None:
    """This very key's entry is in a root that this process does not query."""
    for store in layers.unasked():
        if store.contains(prepared.key) or store.contains(prepared.located_key):
            return Miss(Verdict.NOT_CONSULTED, f"it is in {store.root}, but only {_asked(layers)} was asked")
    return None


def _nearest(layers: Layers, records: Sequence[Record], prepared: Prepared) -> Miss | None:
    found = nearest(records, prepared)
    if found is None:
        return None
    key = CacheKey(found.event.key)
    if not found.differences:  # the same key, so the file is there and was not served
        return Miss(Verdict.NOT_RECORDED, f"the entry {key.short} has the same fields but was not served")
    differences = tuple(told_once(found.differences))
    request = prepared.request
    searched = (*([request.cwd] if request.searches_cwd else []), *prepared.compilation.include_dirs)
    told = phrases(differences, shadows(differences, searched))
    more = f"; and {len(told) - _PHRASES_TOLD} more" if len(told) > _PHRASES_TOLD else ""
    words = f"{'; '.join(told[:_PHRASES_TOLD])}{more} (nearest: {_origin(found.event, prepared)})"
    never = _never(layers, records, prepared, found)
    if never is None:
        return Miss(Verdict.KEY_CHANGED, words, differences, key)
    return Miss(Verdict.NEVER_BUILT, f"{never}: {words}", differences, key)


def _never(layers: Layers, records: Sequence[Record], prepared: Prepared, found: Nearest) -> str | None:
    """A sentence on the build that was never made, if the nearest entry is another program's or target's."""
    program, target = prepared.request.program.name, str(prepared.request.target)
    builds = [event for record in records for event in record.builds()]
    if not builds:
        never = f"nothing was ever built as {program} in {_asked(layers)}"
        return f"{never}, but {found.event.program} has a kernel of the same name"
    if not found.same_device and all(event.target != target for event in builds):
        return f"{program} was never built for {target}, but for {found.event.target}"
    return None


def _origin(event: Event, prepared: Prepared) -> str:
    """An entry with its age, and with the program's name if it was built under another one."""
    age = format_age(time.time_ns() - event.when_ns)
    named = "" if event.program == prepared.request.program.name else f" as {event.program}"
    return f"{event.key[:12]}, built {'just now' if age == 'now' else f'{age} ago'}{named}"


def _unknown(layers: Layers, prepared: Prepared, records: Sequence[Record]) -> Miss:
    name = prepared.request.program.name
    roots = _asked(layers)
    if any(record.builds() for record in records):
        return Miss(Verdict.NOT_RECORDED, f"earlier builds of {name} in {roots} left nothing to compare with")
    samples = [(store, _sample(store)) for store in layers.on_disk()]
    unrecorded = next((told for store, sample in samples if (told := _unrecorded(store, sample, name))), None)
    if unrecorded is not None:
        return Miss(Verdict.NOT_RECORDED, unrecorded)
    few = all(len(sample) < _SAMPLED for _, sample in samples)
    told = f"nothing was ever built as {name}" if few else f"no build of {name} is recorded"
    return Miss(Verdict.NEVER_BUILT, f"{told} in {roots}")


def _asked(layers: Layers) -> str:
    """The roots that were queried."""
    return ", ".join(str(store.root) for store in layers.on_disk())


def _sample(store: "DirectoryStore") -> list[ScannedEntry]:
    """A few entries of a store, or all if there are few."""
    with suppress(OSError, CacheUnusableError):
        return list(islice(store.scan(), _SAMPLED))
    return []


def _unrecorded(store: "DirectoryStore", sample: Sequence[ScannedEntry], name: str) -> str | None:
    """For a program without a history: whether a sample shows that its record was lost, or all records."""
    heads = [(entry.key, entry.head) for entry in sample if entry.head is not None]
    for key, head in heads:
        if head.program == name:
            built = format_instant(head.created_ns)
            there = f"{key.short} of {name}, built {built}, is in {store.root}"
            return f"{there}, but its record was lost, or is written at this moment"
    programs = {head.program for _, head in heads}
    if programs and not any(store.history(program) for program in programs):
        return (
            f"{store.root} has entries, but the record of what was built as {name} or anything else was lost"
        )
    return None


_MAX_BYTES = 16 * 1024 * 1024
_MOST_HEADERS = 8


def shadows(differences: Iterable[Difference], searched: Sequence[str]) -> dict[str, str]:
    """For each changed header whose old content is in a later directory: the sentence that says so."""
    found = {}
    changed = [
        (name, item)
        for item in differences
        if (name := header_of(item.label)) and not {item.left, item.right} & {None, NOT_FOUND}
    ]
    for name, item in changed[:_MOST_HEADERS]:
        sentence = _shadow(name, item, [Path(directory, name) for directory in searched])
        if sentence is not None:
            found[name] = sentence
    return found


def _shadow(name: str, item: Difference, candidates: Sequence[Path]) -> str | None:
    first: Path | None = None
    for path in candidates:
        content = _digest(path)
        if content is None:
            continue
        if first is None and content == item.right:
            first = path
        elif first is not None and content == item.left:
            return f"a new {name} in {first.parent} shadows the one in {path.parent}"
    return None


def _digest(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
        return digest(path.read_bytes())
    except OSError:
        return None
