"""Why a lookup missed: what was asked, what is nearest, what was written instead.

Reads one program's history and a few entries' details, however large the cache is. Must not know
how an explanation is shown.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from gpucache.engine.layers import Layers
from gpucache.engine.prepare import Prepared
from gpucache.keys import Difference, difference
from gpucache.model import CacheKey, EntryDetail, KeyField
from gpucache.outcomes import Miss, Verdict
from gpucache.store.interface import Damaged, EntryStore, Event
from gpucache.units import format_instant

_NEAREST_TRIED = 8
_GONE = {"evicted": Verdict.EVICTED, "quarantined": Verdict.CORRUPT}


def explain(layers: Layers, prepared: Prepared, damage: Sequence[Damaged] = ()) -> Miss:
    """The verdict on a request that no store answered."""
    if damage:
        what = "and was moved to quarantine" if damage[0].quarantined else "and could not be moved away"
        return Miss(Verdict.CORRUPT, f"the entry was {damage[0].damage}: {damage[0].detail}, {what}")
    if not any(True for _ in layers.on_disk()):
        return Miss(Verdict.NOT_CONSULTED, layers.unusable or "no cache root is configured")
    name = prepared.request.program.name
    for store in layers.on_disk():
        gone = _gone(store.history(name), prepared)
        if gone is not None:
            return gone
    return _nearest(layers, prepared) or _unknown(layers, name)


def to_record(prepared: Prepared, miss: Miss, now_ns: int) -> dict[str, object]:
    """One line of the journal."""
    return {
        "when_ns": now_ns,
        "program": prepared.request.program.name,
        "target": str(prepared.request.target),
        "key": str(prepared.key),
        "verdict": miss.verdict.value,
        "detail": miss.detail,
        "differences": [asdict(item) for item in miss.differences[:8]],
        "command": sys.argv[0].rpartition(os.sep)[2] if sys.argv else "",
        "pid": os.getpid(),
    }


def _gone(events: Sequence[Event], prepared: Prepared) -> Miss | None:
    """The last thing that happened to this very key, where that removed it."""
    keys = {str(prepared.key), str(prepared.located_key)}
    own = [event for event in events if event.key in keys and event.what != "poisoned"]
    if not own or own[-1].what not in _GONE:
        return None
    last = own[-1]
    return Miss(
        _GONE[last.what], f"{last.what} at {format_instant(last.when_ns)}: {last.why or 'no reason kept'}"
    )


def _nearest(layers: Layers, prepared: Prepared) -> Miss | None:
    candidates: list[tuple[int, CacheKey, tuple[Difference, ...]]] = []
    for store in layers.on_disk():
        for key in _recent_keys(store, prepared):
            detail = store.detail(key)
            if detail is not None:
                differing = difference(detail.key_fields, _asked(prepared, detail))
                candidates.append((len(differing), key, differing))
    if not candidates:
        return None
    _, key, differences = min(candidates, key=lambda candidate: candidate[0])
    if not differences:  # the same fields, so a file that is there but was not served
        return Miss(Verdict.NOT_RECORDED, f"the entry {key.short} has the same fields but was not served")
    named = ", ".join(item.label for item in differences[:3])
    more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
    return Miss(Verdict.KEY_CHANGED, f"{named}{more} changed since {key.short}", differences, key)


def _asked(prepared: Prepared, detail: EntryDetail) -> tuple[KeyField, ...]:
    """The fields to hold against an entry's: with places where the entry has them."""
    places = {item.label for item in prepared.located[len(prepared.fields) :]}
    located = any(item.label in places for item in detail.key_fields)
    return prepared.located if located else prepared.fields


def _recent_keys(store: EntryStore, prepared: Prepared) -> list[CacheKey]:
    """Keys built under this program's name, those for the same target first, newest first."""
    history = store.history(prepared.request.program.name)
    newest_first = [event for event in reversed(history) if event.what == "built"]
    target = str(prepared.request.target)
    ordered = sorted(newest_first, key=lambda event: event.target != target)
    keys = dict.fromkeys(event.key for event in ordered)
    return [CacheKey(key) for key in keys if len(key) == 64][:_NEAREST_TRIED]


def _unknown(layers: Layers, name: str) -> Miss:
    roots = ", ".join(str(store.root) for store in layers.on_disk())
    if any(store.history(name) for store in layers.on_disk()):
        return Miss(Verdict.NOT_RECORDED, f"earlier builds of {name} in {roots} left nothing to compare with")
    return Miss(Verdict.NEVER_BUILT, f"nothing was ever built as {name} in {roots}")
