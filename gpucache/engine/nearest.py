"""The recorded build that is nearest to a request: the one with the fewest and lightest differences.

The candidates come from histories, so that the size of the cache does not matter. An event gives a lower
bound of its distance; heads and details of entries are read only of those that can still be the nearest. Must
not know how a verdict is shown.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from gpucache.engine.phrases import least_options_weight, weight
from gpucache.engine.prepare import Prepared
from gpucache.engine.program_names import Identity
from gpucache.keys import Difference, difference
from gpucache.model import CacheKey, Checks, EntryHead, KeyField, Program
from gpucache.store.interface import UNREADABLE, Event

if TYPE_CHECKING:
    from gpucache.store.directory import DirectoryStore

_NAMES_FOLLOWED = 32
_HEADS_READ = 512
_DETAILS_READ = 64
_SOURCE = (Difference("source", "", ""),)

_Rank = tuple[bool, bool, int, int]
"""Whether the program differs, whether the device differs, the weight of the differences, the age."""


@dataclass(frozen=True, slots=True)
class Record:
    """The events that one store has recorded of one program, under its own name and under others."""

    store: "DirectoryStore"
    identity: Identity
    events: tuple[Event, ...]
    """Oldest first."""

    def of(self, prepared: Prepared) -> list[Event]:
        """The events of the two keys of a request."""
        keys = (str(prepared.key), str(prepared.located_key))
        return [event for event in self.events if event.key in keys]

    def builds(self) -> list[Event]:
        """Builds of this program under any name; not of other programs with a kernel of its name."""
        return [event for event in self.events if event.what == "built" and self.is_kin(event)]

    def is_kin(self, event: Event) -> bool:
        """Whether an event is of this program, and not of another with a kernel of its name."""
        return self.identity.is_kin(event.program, event.source)


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest build whose entry still exists."""

    event: Event
    same_device: bool
    """Whether it was built for the requested device, under any name of the target."""
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    record: Record
    event: Event
    same_device: bool | None = None
    """Whether it was built for the requested device; None before its head is read."""

    @property
    def store(self) -> "DirectoryStore":
        return self.record.store


def was_ever_built(stores: "Iterable[DirectoryStore]", program: Program) -> bool:
    """Whether a build of this very source is recorded, for any target and with any options."""
    identity = Identity.of(program)
    return any(event.source == identity.mark for store in stores for event in _events(store, identity))


def _events(store: "DirectoryStore", identity: Identity) -> list[Event]:
    """The recorded events under a program's names, and under those that its aliases lead to."""
    led = [event.why for alias in identity.aliases for event in store.history(alias)[-_NAMES_FOLLOWED:]]
    names = dict.fromkeys([*identity.names, *led])
    return [event for name in names for event in store.history(name)]


def record_of(store: "DirectoryStore", prepared: Prepared) -> Record:
    """The histories of a program: by name, base name and kernel, or by its source if it has no kernel."""
    identity = Identity.of(prepared.request.program)
    events = _events(store, identity)
    keys = (str(prepared.key), str(prepared.located_key))
    events += [event for event in store.history(UNREADABLE) if event.key in keys]
    return Record(store, identity, tuple(sorted(events, key=lambda event: event.when_ns)))


def nearest(records: Sequence[Record], prepared: Prepared) -> Nearest | None:
    """The nearest build, of equally near ones the newest; None if no entry is left.

    The candidate with the lowest bound is examined next. Its event gives a first bound, the head of its entry
    a closer one, and its detail the rank itself. So of hundreds of entries only a few are opened.
    """
    found: tuple[_Rank, _Candidate, tuple[Difference, ...]] | None = None
    wanted, details = _known(prepared), 0
    pending = list(_candidates(records, prepared))
    heapq.heapify(pending)
    while pending and details < _DETAILS_READ:
        least, number, candidate = heapq.heappop(pending)
        if found is not None and least >= found[0]:
            break  # no later one can be nearer
        if candidate.same_device is None:
            if (closer := _by_head(candidate, prepared, wanted)) is not None:
                heapq.heappush(pending, (closer[0], number, closer[1]))
            continue
        details += 1
        detail = candidate.store.detail(CacheKey(candidate.event.key))
        if detail is None:
            continue
        # Locations count only if the entry has them.
        places = {item.label for item in prepared.located[len(prepared.fields) :]}
        located = any(item.label in places for item in detail.key_fields)
        differing = difference(detail.key_fields, prepared.located if located else prepared.fields)
        rank = (*least[:2], weight(differing), least[3])
        if found is None or rank < found[0]:
            found = rank, candidate, differing
    if found is None:
        return None
    rank, candidate, differing = found
    return Nearest(candidate.event, not rank[1], differing)


def _candidates(records: Sequence[Record], prepared: Prepared) -> Iterator[tuple[_Rank, int, _Candidate]]:
    """Every recorded build with a lower bound of its rank, from its event alone, and with a number."""
    options, numbers = prepared.compilation.inputs.options, count()
    for record in records:
        latest = {event.key: event for event in record.events if event.what == "built" and event.key}
        for event in list(latest.values())[-_HEADS_READ:]:
            lightest = 0 if event.options is None else least_options_weight(event.options, options)
            least = (
                not record.is_kin(event),
                False,
                lightest + weight(_edited(record, event)),
                -event.when_ns,
            )
            yield least, next(numbers), _Candidate(record, event)


def _by_head(
    candidate: _Candidate, prepared: Prepared, wanted: Sequence[KeyField]
) -> tuple[_Rank, _Candidate] | None:
    """A closer bound: the rank if nothing differs beyond what the head shows. None if the entry is gone."""
    record, event = candidate.record, candidate.event
    scanned = record.store.look_at(CacheKey(event.key))
    if scanned is None or scanned.head is None:
        return None
    same_device = event.target == str(prepared.request.target) or _is_for(scanned.head, prepared)
    differing = difference(_told(scanned.head), wanted)
    least = (
        not record.is_kin(event),
        not same_device,
        weight((*differing, *_edited(record, event))),
        -event.when_ns,
    )
    return least, replace(candidate, same_device=same_device)


def _edited(record: Record, event: Event) -> tuple[Difference, ...]:
    """The difference of the sources, if their marks differ."""
    return _SOURCE if event.source and event.source != record.identity.mark else ()


def _is_for(head: EntryHead, prepared: Prepared) -> bool:
    """Whether an entry is for a request's device, going by the toolchain's fields and not by its name."""
    own = tuple(pair for pair in head.toolchain if pair[0] in head.toolchain_identity)
    return own == prepared.compilation.inputs.toolchain.identity_fields()


def _told(head: EntryHead) -> list[KeyField]:
    """The key fields that are in a head."""
    return [
        *(KeyField("option", option) for option in head.options),
        *([] if head.checks == Checks.NONE else [KeyField("checks", head.checks)]),
        KeyField("artifact kind", head.artifact_kind),
        *(KeyField(label, value) for label, value in head.toolchain),
    ]


def _known(prepared: Prepared) -> list[KeyField]:
    """The same fields of a request."""
    inputs = prepared.compilation.inputs
    return [
        *(KeyField("option", option) for option in inputs.options),
        *(item for item in prepared.fields if item.label == "checks"),
        KeyField("artifact kind", prepared.request.artifact_kind.value),
        *(KeyField(label, value) for label, value in inputs.toolchain.fields),
    ]
