"""The build that is nearest to a request: the fewest and lightest differences among all that are recorded.

Histories name the candidates, however large the cache is. Heads are read of all of them and bound from
below how far each one is; details are read of those that can still be the nearest. Must not know how
a verdict is told.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpucache.engine.phrases import weight
from gpucache.engine.prepare import Prepared
from gpucache.engine.program_names import Identity
from gpucache.keys import Difference, difference
from gpucache.model import CacheKey, Checks, EntryDetail, EntryHead, KeyField
from gpucache.store.interface import UNREADABLE, EntryStore, Event

_NAMES_FOLLOWED = 32
_HEADS_READ = 512
_DETAILS_READ = 64
_SOURCE = (Difference("source", "", ""),)

_Rank = tuple[bool, bool, int, int]
"""Another program, another device, the weight of the differences, how old."""


@dataclass(frozen=True, slots=True)
class Record:
    """What one store remembers of one program, under its own name and under others."""

    store: EntryStore
    identity: Identity
    events: tuple[Event, ...]
    """Oldest first."""

    def of(self, prepared: Prepared) -> list[Event]:
        """What happened to the very keys of a request."""
        keys = (str(prepared.key), str(prepared.located_key))
        return [event for event in self.events if event.key in keys]

    def builds(self) -> list[Event]:
        """Builds of this program, whatever it was called; not of others with a kernel of its name."""
        return [event for event in self.events if event.what == "built" and self.is_kin(event)]

    def is_kin(self, event: Event) -> bool:
        """Whether something happened to this program, and not to another with a kernel of its name."""
        return self.identity.is_kin(event.program, event.source)


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest build whose entry is still there."""

    event: Event
    same_device: bool
    """Whether it was built for the device that is asked for, whatever the target was called then."""
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    store: EntryStore
    event: Event
    least: _Rank
    """Its rank if nothing differs but what its head says."""


def record_of(store: EntryStore, prepared: Prepared) -> Record:
    """The histories of a program: by name, base name, kernel, and by its source where it has none."""
    identity = Identity.of(prepared.request.program)
    led = [event.why for alias in identity.aliases for event in store.history(alias)[-_NAMES_FOLLOWED:]]
    names = dict.fromkeys([*identity.names, *led])
    events = [event for name in names for event in store.history(name)]
    keys = (str(prepared.key), str(prepared.located_key))
    events += [event for event in store.history(UNREADABLE) if event.key in keys]
    return Record(store, identity, tuple(sorted(events, key=lambda event: event.when_ns)))


def nearest(records: Sequence[Record], prepared: Prepared) -> Nearest | None:
    """The nearest build; of equally near ones the newest. None if no entry is left."""
    found: tuple[_Rank, _Candidate, tuple[Difference, ...]] | None = None
    candidates = sorted(_candidates(records, prepared), key=lambda one: one.least)
    for candidate in candidates[:_DETAILS_READ]:
        if found is not None and candidate.least >= found[0]:
            break  # no later one can be nearer
        detail = candidate.store.detail(CacheKey(candidate.event.key))
        if detail is None:
            continue
        differing = difference(detail.key_fields, _asked(prepared, detail))
        rank = (*candidate.least[:2], weight(differing), candidate.least[3])
        if found is None or rank < found[0]:
            found = rank, candidate, differing
    if found is None:
        return None
    rank, candidate, differing = found
    return Nearest(candidate.event, not rank[1], differing)


def _candidates(records: Sequence[Record], prepared: Prepared) -> Iterator[_Candidate]:
    """Every recorded build that is still there, with the least that its head says of its distance."""
    target = str(prepared.request.target)
    wanted = _known(prepared)
    for record in records:
        latest = {event.key: event for event in record.events if event.what == "built" and event.key}
        for event in list(latest.values())[-_HEADS_READ:]:
            scanned = record.store.look_at(CacheKey(event.key))
            if scanned is None or scanned.head is None:
                continue
            differing = difference(_told(scanned.head), wanted)
            edited = _SOURCE if event.source and event.source != record.identity.mark else ()
            yield _Candidate(
                record.store,
                event,
                (
                    not record.is_kin(event),
                    event.target != target and not _is_for(scanned.head, prepared),
                    weight((*differing, *edited)),
                    -event.when_ns,
                ),
            )


def _is_for(head: EntryHead, prepared: Prepared) -> bool:
    """Whether an entry is for a request's device; its name also tells it from others that are there."""
    own = tuple(pair for pair in head.toolchain if pair[0] in head.toolchain_identity)
    return own == prepared.compilation.inputs.toolchain.identity_fields()


def _told(head: EntryHead) -> list[KeyField]:
    """The key fields that a head tells."""
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


def _asked(prepared: Prepared, detail: EntryDetail) -> tuple[KeyField, ...]:
    """The fields to hold against an entry's: with places where the entry has them."""
    places = {item.label for item in prepared.located[len(prepared.fields) :]}
    located = any(item.label in places for item in detail.key_fields)
    return prepared.located if located else prepared.fields
