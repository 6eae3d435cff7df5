"""Why a lookup missed: was the cache asked at all, and which field differs from the nearest entry.

Reads one program's history and a few entries' details, however large the cache is. Must not know
how an explanation is shown.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice

from gpucache.engine.layers import Layers
from gpucache.engine.naming import kernel_alias, program_name
from gpucache.engine.phrases import phrases, weight
from gpucache.engine.prepare import Prepared
from gpucache.engine.shadows import shadows
from gpucache.errors import CacheUnusableError
from gpucache.keys import Difference, difference
from gpucache.model import CacheKey, EntryDetail, KeyField
from gpucache.outcomes import Miss, Verdict
from gpucache.store.interface import Absent, Damaged, EntryStore, Event, ScannedEntry
from gpucache.units import format_age, format_instant

_NEAREST_TRIED = 8
_PHRASES_TOLD = 4
_SAMPLED = 64
_GONE = {"evicted": Verdict.EVICTED, "quarantined": Verdict.CORRUPT}


@dataclass(frozen=True, slots=True)
class Record:
    """What one store remembers of one program, under its name and under its kernel's."""

    store: EntryStore
    events: tuple[Event, ...]


def explain(layers: Layers, prepared: Prepared, damage: Sequence[Damaged] = ()) -> Miss:
    """The verdict on a request that no store answered."""
    if damage:
        what = "and was moved to quarantine" if damage[0].quarantined else "and could not be moved away"
        return Miss(Verdict.CORRUPT, f"the entry was {damage[0].damage}: {damage[0].detail}, {what}")
    if not any(True for _ in layers.on_disk()):
        return Miss(Verdict.NOT_CONSULTED, layers.unusable or "no cache root is configured")
    records = [record_of(store, prepared) for store in layers.on_disk()]
    return (
        next((gone for gone in (_gone(record, prepared) for record in records) if gone), None)
        or _unread(layers, prepared)
        or _elsewhere(layers, prepared)
        or _nearest(records, prepared)
        or _unknown(layers, prepared, records)
    )


def record_of(store: EntryStore, prepared: Prepared) -> Record:
    """The history of a program, which a library may know only by its kernel."""
    program = prepared.request.program
    nameless = program.name == program_name(program.source)  # what a library calls it by itself
    aliased = store.history(kernel_alias(program.source)) if nameless else []
    names = dict.fromkeys([program.name, *(event.why for event in aliased)])
    events = [event for name in names for event in store.history(name)]
    return Record(store, tuple(sorted(events, key=lambda event: event.when_ns)))


def to_record(layers: Layers, prepared: Prepared, miss: Miss, now_ns: int) -> dict[str, object]:
    """One line of the journal."""
    return {
        "kind": "miss",
        "when_ns": now_ns,
        "program": prepared.request.program.name,
        "target": str(prepared.request.target),
        "key": str(prepared.key),
        "verdict": miss.verdict.value,
        "detail": miss.detail,
        "differences": [asdict(item) for item in miss.differences[:8]],
        "command": layers.command,
        "pid": os.getpid(),
    }


def process_record(layers: Layers, hits: int, misses: int, now_ns: int) -> dict[str, object]:
    """One line of the journal for a process that ends: what it counted."""
    return {
        "kind": "process",
        "when_ns": now_ns,
        "command": layers.command,
        "pid": os.getpid(),
        "hits": hits,
        "misses": misses,
    }


def _gone(record: Record, prepared: Prepared) -> Miss | None:
    """The last thing that happened to this very key, where that removed it."""
    keys = {str(prepared.key), str(prepared.located_key)}
    own = [event for event in record.events if event.key in keys and event.what != "poisoned"]
    if not own or own[-1].what not in _GONE:
        return None
    last = own[-1]
    return Miss(
        _GONE[last.what], f"{last.what} at {format_instant(last.when_ns)}: {last.why or 'no reason kept'}"
    )


def _unread(layers: Layers, prepared: Prepared) -> Miss | None:
    """The very entry is there but could not be used, whatever else differs from others."""
    for store in layers.on_disk():
        for key in (prepared.key, prepared.located_key):
            answer = store.get(key) if store.contains(key) else None
            if isinstance(answer, Absent) and answer.reason:
                return Miss(Verdict.NOT_RECORDED, f"{key.short} is in {store.root}, but {answer.reason}")
    return None


def _elsewhere(layers: Layers, prepared: Prepared) -> Miss | None:
    """The very entry lies in a root that this process does not ask."""
    for store in layers.unasked:
        if store.contains(prepared.key) or store.contains(prepared.located_key):
            asked = ", ".join(str(one.root) for one in layers.on_disk())
            return Miss(Verdict.NOT_CONSULTED, f"it is in {store.root}, but only {asked} was asked")
    return None


def _nearest(records: Sequence[Record], prepared: Prepared) -> Miss | None:
    candidates = [candidate for record in records for candidate in _candidates(record, prepared)]
    if not candidates:
        return None
    _, event, differences = min(candidates, key=lambda candidate: candidate[0])
    key = CacheKey(event.key)
    if not differences:  # the same fields, so a file that is there but was not served
        return Miss(Verdict.NOT_RECORDED, f"the entry {key.short} has the same fields but was not served")
    told = phrases(differences, shadows(differences, _searched(prepared)))
    more = f"; and {len(told) - _PHRASES_TOLD} more" if len(told) > _PHRASES_TOLD else ""
    age = format_age(time.time_ns() - event.when_ns)
    when = "just now" if age == "now" else f"{age} ago"
    detail = f"{'; '.join(told[:_PHRASES_TOLD])}{more} (nearest: {key.short}, built {when})"
    return Miss(Verdict.KEY_CHANGED, detail, differences, key)


def _candidates(
    record: Record, prepared: Prepared
) -> Iterator[tuple[tuple[int, int], Event, tuple[Difference, ...]]]:
    """Entries that are still there, each with its distance; of equally near ones the newest counts."""
    for event in _recent(record, prepared):
        detail = record.store.detail(CacheKey(event.key))
        if detail is not None:
            differing = difference(detail.key_fields, _asked(prepared, detail))
            yield (weight(differing), -event.when_ns), event, differing


def _asked(prepared: Prepared, detail: EntryDetail) -> tuple[KeyField, ...]:
    """The fields to hold against an entry's: with places where the entry has them."""
    places = {item.label for item in prepared.located[len(prepared.fields) :]}
    located = any(item.label in places for item in detail.key_fields)
    return prepared.located if located else prepared.fields


def _recent(record: Record, prepared: Prepared) -> list[Event]:
    """The latest build of each key, those for the same target first, newest first."""
    target = str(prepared.request.target)
    newest_first = [event for event in reversed(record.events) if event.what == "built"]
    latest = {event.key: event for event in reversed(newest_first) if len(event.key) == 64}
    ordered = sorted(latest.values(), key=lambda event: (event.target != target, -event.when_ns))
    return ordered[:_NEAREST_TRIED]


def _searched(prepared: Prepared) -> tuple[str, ...]:
    """Where the compiler looks for headers; the current directory comes first where it counts at all."""
    request = prepared.request
    return (*([request.cwd] if request.searches_cwd else []), *prepared.compilation.include_dirs)


def _unknown(layers: Layers, prepared: Prepared, records: Sequence[Record]) -> Miss:
    name = prepared.request.program.name
    roots = ", ".join(str(store.root) for store in layers.on_disk())
    if any(record.events for record in records):
        return Miss(Verdict.NOT_RECORDED, f"earlier builds of {name} in {roots} left nothing to compare with")
    samples = [(store, _sample(store)) for store in layers.on_disk()]
    unrecorded = next((told for store, sample in samples if (told := _unrecorded(store, sample, name))), None)
    if unrecorded is not None:
        return Miss(Verdict.NOT_RECORDED, unrecorded)
    few = all(len(sample) < _SAMPLED for _, sample in samples)
    told = f"nothing was ever built as {name}" if few else f"no build of {name} is recorded"
    if layers.unusable:  # only system roots were asked
        return Miss(Verdict.NOT_CONSULTED, f"{layers.unusable}; {told} in {roots}")
    return Miss(Verdict.NEVER_BUILT, f"{told} in {roots}")


def _sample(store: EntryStore) -> list[ScannedEntry]:
    """A few entries, or all where there are few."""
    with suppress(OSError, CacheUnusableError):
        return list(islice(store.scan(), _SAMPLED))
    return []


def _unrecorded(store: EntryStore, sample: Sequence[ScannedEntry], name: str) -> str | None:
    """What a sample says of a program without a history: that its record was lost, or everyone's."""
    heads = [(entry.key, entry.head) for entry in sample if entry.head is not None]
    for key, head in heads:
        if head.program == name:
            built = format_instant(head.created_ns)
            return f"{key.short} of {name}, built {built}, is in {store.root}, but its record was lost"
    programs = {head.program for _, head in heads}
    if programs and not any(store.history(program) for program in programs):
        return (
            f"{store.root} has entries, but the record of what was built as {name} or anything else was lost"
        )
    return None
