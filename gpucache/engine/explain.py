"""Why a lookup missed: was the cache queried at all, and which field differs from the nearest entry.

Owns the verdicts and their order. Must not know how an explanation is shown.

The nearest entry is the recorded build with the fewest and lightest differences, which are weighed and put
into words here; both are pure functions of records.
"""

import heapq
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, count
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpucache.answers.lookup import Hit, Miss, Verdict
from gpucache.engine.prepare import Identity, Prepared
from gpucache.engine.stores import NoEntry, Stores
from gpucache.keys import (
    FOLDER,
    NOT_FOUND,
    PART,
    RESOLUTION,
    SEARCHED,
    SOURCE_NAME,
    Difference,
    difference,
    digest,
    format_local_size,
    header_of,
    variable_of,
)
from gpucache.model import CacheKey, Checks, EntryHead, FindingKind, KeyField, Program
from gpucache.store.interface import FAILED, MADE, UNREADABLE, Event, ScannedEntry
from gpucache.units import format_instant

if TYPE_CHECKING:
    from gpucache.store.directory import DirectoryStore

_POISON_NS = 7 * 86_400 * 10**9
_PHRASES_TOLD = 4
_SAMPLED = 64
_GONE = {"evicted": (Verdict.EVICTED, "removed"), "quarantined": (Verdict.CORRUPT, "quarantined")}
"""For each event the verdict, and a word that does not repeat it."""


@dataclass(frozen=True)
class Record:
    """The events that one store has recorded of one program, under its own name and under others."""

    store: "DirectoryStore"
    identity: Identity
    events: tuple[Event, ...]

    def last(self, prepared: Prepared) -> list[Event]:
        """The last event of a request's keys, if there is one."""
        found = map(self._last.get, (str(prepared.key), str(prepared.located_key)))
        return sorted(filter(None, found), key=lambda event: event.when_ns)[-1:]

    @cached_property
    def _last(self) -> Mapping[str, Event]:
        return {event.key: event for event in self.events}

    @property
    def builds(self) -> Iterator[Event]:
        """Builds of this program under any name; not of other programs with a kernel of its name."""
        return (event for event in self.events if event.what in MADE and self.is_kin(event))

    def is_kin(self, event: Event) -> bool:
        """Whether an event is of this program, and not of another with a kernel of its name."""
        return event.source == self.identity.mark or self._is_named_alike(event.program)

    @cached_property
    def _is_named_alike(self) -> Callable[[str], bool]:
        return cache(lambda program: self.identity.is_kin(program, ""))


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest build whose entry still exists."""

    event: Event
    same_device: bool
    """Whether it was built for the requested device, under any name of the target."""
    differences: tuple[Difference, ...]


class _Candidate(NamedTuple):
    record: Record
    event: Event
    same_device: bool | None = None
    """Whether it was built for the requested device; None before its head is read."""
    older: list[Event] | None = None
    """Builds with the same bound but for their age, the newest last."""


def explain(stores: Stores, prepared: Prepared, met: NoEntry) -> Miss:
    """The verdict on a request without an entry in any store; names every root that could not be queried."""
    if stores.disabled:
        return Miss(Verdict.NOT_CONSULTED, "GPUCACHE_DISABLE is set, so no cache was queried")
    if prepared.refusal is not None:
        return Miss(Verdict.UNCACHEABLE, prepared.refusal)
    if met.incomplete is not None:
        return _incomplete(prepared, met.incomplete)
    sentences = [sentence for _, sentence in stores.not_asked]
    if not any(True for _ in stores.on_disk()):
        return Miss(Verdict.NOT_CONSULTED, "; ".join(sentences) or "no cache root is configured")
    miss = _verdict(stores, prepared, met)
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


def _verdict(stores: Stores, prepared: Prepared, met: NoEntry) -> Miss:
    if met.damaged:
        first = met.damaged[0]
        what = "and was moved to quarantine" if first.quarantined else "and could not be moved away"
        how = "damaged" if first.damage is FindingKind.CORRUPT else first.damage  # the verdict has that word
        return Miss(Verdict.CORRUPT, f"the entry was {how}: {first.detail}, {what}")
    recorded = stores.recorded or record_of
    records = [recorded(store, prepared.request.program) for store in stores.on_disk()]
    miss = (
        _removed(records, prepared)
        or _unread(met)
        or _elsewhere(stores, prepared)
        or _lost(records, prepared)
        or _forgotten(records, prepared)
        or _nearest(stores, records, prepared)
        or _unknown(stores, prepared, records)
    )
    last = (event for record in records for event in record.last(prepared))
    failed = next((event for event in last if event.what == FAILED), None)
    return miss if failed is None else miss.failed(format_instant(failed.when_ns))


def is_poisoned(stores: Stores, prepared: Prepared, timeout_s: float) -> bool:
    """Whether a key is on the poison list, unless a shorter time limit than this one put it there."""
    records = (record_of(store, prepared.request.program) for store in stores.on_disk())
    last = [event for record in records for event in record.last(prepared)]
    poisoned = [event for event in last if _is_poisoning(event)]
    return bool(poisoned) and not any(0 < event.limit_s < timeout_s for event in poisoned)


def _is_poisoning(event: Event) -> bool:
    """Whether a key's last event keeps it on the poison list; not for ever, as a machine's trouble passes."""
    return event.what == "poisoned" and time.time_ns() - event.when_ns < _POISON_NS


def _removed(records: Sequence[Record], prepared: Prepared) -> Miss | None:
    """The miss that the last event of this key explains, if it does."""
    for record in records:
        for last in record.last(prepared):
            when, why = format_instant(last.when_ns), last.why or "no reason kept"
            if last.what in _GONE:
                verdict, word = _GONE[last.what]
                return Miss(verdict, f"{word} at {when}: {why}")
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
        for last in record.last(prepared):
            if last.what in MADE:
                when = format_instant(last.when_ns)
                removed = record.store.history.removed(last.program)
                if removed is not None and removed.why and removed.when_ns > last.when_ns:
                    gone = format_instant(removed.when_ns)
                    return Miss(Verdict.EVICTED, f"removed at {gone}: {removed.why}")
                return Miss(
                    Verdict.NOT_RECORDED,
                    f"{last.key[:12]} was {last.what} at {when} into {record.store.root}, "
                    "and is gone without a record: something other than gpucache removed its file",
                )
    return None


def _forgotten(records: Sequence[Record], prepared: Prepared) -> Miss | None:
    name = prepared.request.program.name
    if _was_built(records):
        return None
    for record in records:
        removed, root = record.store.history.removed(name), record.store.root
        if removed is None:
            continue
        when = format_instant(removed.when_ns)
        if removed.why:
            detail = f"removed at {when}: {removed.why}, with the build history of {name}"
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


def _elsewhere(stores: Stores, prepared: Prepared) -> Miss | None:
    """This very key's entry is in a root that this process does not query."""
    for store in stores.unasked():
        if store.contains(prepared.key) or store.contains(prepared.located_key):
            origin = f" ({stores.origin})" if stores.origin else ""
            where = f"but this run looked in {_asked(stores)}{origin}"
            return Miss(Verdict.ELSEWHERE, f"built in {store.root}, {where}")
    return None


def _nearest(stores: Stores, records: Sequence[Record], prepared: Prepared) -> Miss | None:
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
    never = _never(stores, records, prepared, found)
    if never is None:
        return Miss(Verdict.KEY_CHANGED, words, differences, key)
    return Miss(Verdict.NEVER_BUILT, f"{never}: {words}", differences, key)


def _never(stores: Stores, records: Sequence[Record], prepared: Prepared, found: Nearest) -> str | None:
    """A sentence saying that this was never built, if the nearest entry has a different program or target."""
    program, target = prepared.request.program.name, str(prepared.request.target)
    if not _was_built(records):
        never = f"nothing was ever built as {program} in {_asked(stores)}"
        return f"{never}, but {found.event.program} has a kernel of the same name"
    if not found.same_device and not any(
        event.target == target for record in records for event in record.builds
    ):
        other = any(item.label == "language" for item in found.differences)
        of = f" (another program of that name was built for {found.event.target})"
        return f"{program} was never built for {target}{of if other else f', but for {found.event.target}'}"
    return None


def _was_built(records: Sequence[Record]) -> bool:
    return any(True for record in records for _ in record.builds)


def _origin(event: Event, prepared: Prepared) -> str:
    """An entry with the time of its build, and with its program's name if that differs."""
    named = "" if event.program == prepared.request.program.name else f" as {event.program}"
    return f"{event.key[:12]}, built at {format_instant(event.when_ns)}{named}"


def _unknown(stores: Stores, prepared: Prepared, records: Sequence[Record]) -> Miss:
    name = prepared.request.program.name
    roots = _asked(stores)
    if _was_built(records):
        return Miss(Verdict.NOT_RECORDED, f"earlier builds of {name} in {roots} left nothing to compare with")
    samples = [(store, store.sample(_SAMPLED)) for store in stores.on_disk()]
    unrecorded = next((told for store, sample in samples if (told := _unrecorded(store, sample, name))), None)
    if unrecorded is not None:
        return Miss(Verdict.NOT_RECORDED, unrecorded)
    few = all(len(sample) < _SAMPLED for _, sample in samples)
    told = f"nothing was ever built as {name}" if few else f"no build of {name} is recorded"
    return Miss(Verdict.NEVER_BUILT, f"{told} in {roots}")


def _asked(stores: Stores) -> str:
    elsewhere = stores.remote().queried if stores.remote is not None else ""
    return ", ".join(filter(None, (*(str(store.root) for store in stores.on_disk()), elsewhere)))


def _unrecorded(store: "DirectoryStore", sample: Sequence[ScannedEntry], name: str) -> str | None:
    """For a program without a history: a sentence if entries in the sample show that records were lost."""
    heads = [(entry.key, entry.head) for entry in sample if entry.head is not None]
    for key, head in heads:
        if head.program == name:
            built = format_instant(head.created_ns)
            there = f"{key.short} of {name}, built {built}, is in {store.root}"
            return f"{there}, but its record was lost, or is written at this moment"
    programs = {head.program for _, head in heads}
    if programs and not any(store.history.events(program) for program in programs):
        return f"{store.root} has entries, but the record of builds as {name} or anything else was lost"
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
        contents = [(Path(folder), _digest(Path(folder, name))) for folder in searched]
        order = [digested for _, digested in contents]
        if item.right in order and item.left in order[(now := order.index(item.right)) :]:
            before = order.index(item.left, now)
            found[name] = f"a new {name} in {contents[now][0]} shadows the one in {contents[before][0]}"
    return found


def _digest(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
        return digest(path.read_bytes())
    except OSError:
        return None


_NAMES_FOLLOWED = 32
_HEADS_READ = 512
_DETAILS_READ = 64
_SOURCE = (Difference("source", "", ""),)

_Rank = tuple[bool, bool, int, int]
"""Whether the program differs, whether the device differs, the weight of the differences, the age."""


def record_of(store: "DirectoryStore", program: Program) -> Record:
    """The histories of a program: by name, base name and kernel, or by its source if it has no kernel.

    Also those under names that its aliases lead to. The events of entries that could not be read are among
    them, whatever their program was.
    """
    identity = Identity.of(program)
    names, aliases = (*identity.names, UNREADABLE), identity.aliases
    read = store.history.events(*aliases, *names)
    led = [[event.why for event in read if event.program == one][-_NAMES_FOLLOWED:] for one in aliases]
    more = [name for name in dict.fromkeys(chain.from_iterable(led)) if name not in names]
    events = [event for event in read if event.program in names]
    events += store.history.events(*more) if more else []
    return Record(store, identity, tuple(sorted(events, key=lambda event: event.when_ns)))


def nearest(records: Sequence[Record], prepared: Prepared) -> Nearest | None:
    """The nearest build, of equally near ones the newest; None if no entry is left.

    The candidate with the lowest bound is examined next. Its event gives a first bound, the head of its entry
    a closer one, and its detail the rank itself. So of hundreds of entries only a few are opened.
    """
    found: tuple[_Rank, _Candidate, tuple[Difference, ...]] | None = None
    numbers, details = count(), 0
    pending = [(least, next(numbers), each) for least, each in _candidates(records, prepared)]
    alone = len(pending) == 1 and not pending[0][2].older
    wanted = None if alone else _known(prepared)  # one alone needs no bound
    heapq.heapify(pending)
    while pending and details < _DETAILS_READ:
        least, _, candidate = heapq.heappop(pending)
        if found is not None and least >= found[0]:
            break  # no later one can be nearer
        if candidate.older:
            older = candidate._replace(event=candidate.older.pop())
            heapq.heappush(pending, ((*least[:3], -older.event.when_ns), next(numbers), older))
        if candidate.same_device is None:
            if (closer := _by_head(candidate, prepared, wanted)) is not None:
                heapq.heappush(pending, (closer[0], next(numbers), closer[1]))
            continue
        details += 1
        detail = candidate.record.store.detail(CacheKey(candidate.event.key))
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


def _candidates(records: Sequence[Record], prepared: Prepared) -> Iterator[tuple[_Rank, _Candidate]]:
    """The newest of the recorded builds whose events give one bound of the rank but for their age.

    Each has its bound, and the older builds.
    """
    options = prepared.compilation.inputs.options
    for record in records:
        latest = {event.key: event for event in record.events if event.what in MADE and event.key}
        alike: dict[tuple[object, ...], list[Event]] = {}
        for event in [*latest.values()][-_HEADS_READ:]:
            bound = event.program, event.source == record.identity.mark, not event.source, event.options
            alike.setdefault(bound, []).append(event)
        for older in alike.values():
            older.sort(key=attrgetter("when_ns"))  # a key may have been built twice
            event = older.pop()
            lightest = 0 if event.options is None else least_options_weight(event.options, options)
            edited = _EDITED if _edited(record, event) else 0
            found = _Candidate(record, event, older=older)
            yield (not record.is_kin(event), False, lightest + edited, -event.when_ns), found


def _by_head(
    candidate: _Candidate, prepared: Prepared, wanted: Sequence[KeyField] | None
) -> tuple[_Rank, _Candidate] | None:
    """A closer bound: the rank if nothing differs beyond what the head shows. None if the entry is gone.

    ``wanted`` are the fields of the request that a head shows.
    """
    record, event = candidate.record, candidate.event
    scanned = record.store.look_at(CacheKey(event.key))
    if scanned is None or scanned.head is None:
        return None
    same_device = event.target == str(prepared.request.target) or _is_for(scanned.head, prepared)
    differing = () if wanted is None else difference(_told(scanned.head), wanted)
    least = (
        not record.is_kin(event),
        not same_device,
        weight((*differing, *_edited(record, event))),
        -event.when_ns,
    )
    return least, _Candidate(record, event, same_device)


def _edited(record: Record, event: Event) -> tuple[Difference, ...]:
    return _SOURCE if event.source and event.source != record.identity.mark else ()


def _is_for(head: EntryHead, prepared: Prepared) -> bool:
    """Whether an entry is for a request's device, going by the toolchain's fields and not by its name."""
    own = tuple(pair for pair in head.toolchain if pair[0] in head.toolchain_identity)
    return own == prepared.compilation.inputs.toolchain.identity_fields()


def _told(head: EntryHead) -> list[KeyField]:
    return [
        *(KeyField("option", option) for option in head.options),
        *([] if head.checks == Checks.NONE else [KeyField("checks", head.checks)]),
        KeyField("artifact kind", head.artifact_kind),
        *(KeyField(label, value) for label, value in head.toolchain),
    ]


def _known(prepared: Prepared) -> list[KeyField]:
    inputs = prepared.compilation.inputs
    return [
        *(KeyField("option", option) for option in inputs.options),
        *(item for item in prepared.fields if item.label == "checks"),
        KeyField("artifact kind", prepared.request.artifact_kind.value),
        *(KeyField(label, value) for label, value in inputs.toolchain.fields),
    ]


# Differences that make it another program or another machine weigh most. An update of a driver changes
# several fields at once, so each of these weighs little.
_LABELS: Mapping[str, tuple[int, str]] = {
    "language": (50, ""),
    "platform name": (20, "another platform: {arrow}"),
    "platform vendor": (20, ""),
    "device name": (20, "another device: {arrow}"),
    "device vendor": (20, ""),
    "architecture": (20, ""),
    "artifact kind": (10, ""),
    "source": (8, "the source changed"),
    PART: (8, "a part that it is linked of, or their order changed"),
    "option": (4, ""),  # and one more for every further option
    "name expression": (4, ""),
    "checks": (4, ""),
    SOURCE_NAME: (3, "the program calls its source {right}, which it called {left}"),
    "driver version": (2, "driver {arrow}"),
    "NVRTC version": (2, "NVRTC {arrow}"),
    "hipRTC version": (2, "hipRTC {arrow}"),
    "NVRTC build id": (2, "another build of NVRTC"),
    "NVRTC builtins build id": (2, "another build of NVRTC's builtins library"),
    "driver UUID": (2, "another build of the driver"),
    "compiler build": (2, "another build of the compiler under the same version"),
    "compiler built-ins": (2, "the compiler's own headers or built-in functions changed"),
    "CPU features": (2, "the CPU has other instruction sets"),
    SEARCHED: (2, "it contains paths and was built in other directories"),
    FOLDER: (2, "it contains the current directory, which was {left}"),
    RESOLUTION: (0, "the same headers are reached another way"),
    "local size": (0, "an older gpucache had local sizes in the key, which no longer belong there"),
}
"""The weight of a difference by its label, and its phrase if that is not 'label left -> right'."""
_EDITED = _LABELS["source"][0]
_OLDER = (
    "it was kept by an older gpucache, whose keys lack the name that the program gives its source; "
    "it is compiled once more"
)
_HEADERS = {
    (False, True): "it no longer includes {}",
    (True, False): "it now includes {}",
    (NOT_FOUND, False): "{} now exists where it was not found before",
    (False, NOT_FOUND): "{} is no longer found",
}
"""Phrases by both sides of a header: True for a missing header, False for a content."""
_DEFINE = re.compile(r"-D([^=]+)(?:=(.*))?|--spec-constant=(\d+):(.*)", re.DOTALL)
"""A define or a specialization constant, with the name and the value."""


def weight(differences: Iterable[Difference]) -> int:
    """How far apart two builds are: the sum of the weights of their differences, more for more options.

    The same options in another order are the lightest difference.
    """
    return sum(_weight(item) if item.label != "option" else _options_weight(item) for item in differences)


def _weight(item: Difference) -> int:
    return _LABELS.get(item.label, (2, ""))[0]


def least_options_weight(before: Sequence[str], now: Sequence[str]) -> int:
    """A lower bound of the weight of two lists of options, which takes less time than the weight itself."""
    if before == now:
        return 0
    had, has = {*before}, {*now}
    changed = max(len(had - has), len(has - had))
    return _LABELS["option"][0] - 1 + changed if changed else 1


def _options_weight(item: Difference) -> int:
    before, now = item.values()
    return 1 if Counter(before) == Counter(now) else _LABELS["option"][0] - 1 + len(list(_options(item)))


def phrases(differences: Sequence[Difference], shadows: Mapping[str, str] | None = None) -> list[str]:
    """Phrases for the differences, the heaviest first, but none for a difference that another one implies.

    ``shadows`` maps a header's name to the sentence that says which file now shadows which.
    """
    if way := _other_way(differences):
        return [way]
    # The resolution changes with every header, so it is news only alone.
    known = any(header_of(item.label) for item in differences)
    told = [item for item in told_once(differences) if not (known and item.label == RESOLUTION)]
    told.sort(key=lambda item: -_weight(item))
    return [phrase for item in told for phrase in _phrase(item, shadows or {})]


def _other_way(differences: Sequence[Difference]) -> str:
    """A phrase if only one of two builds was requested by a program itself; else empty.

    The options and kinds of such builds differ in any case.
    """
    by_label = {item.label: item for item in differences}
    name, options = by_label.get(SOURCE_NAME), by_label.get("option")
    if name is None or "language" in by_label:  # of another language's compiler nothing can be compared
        return ""
    if name.right is None:
        return "the nearest entry is of 'gpucache run', whose keys also contain the source's name"
    # Only such a program's options name the architecture; entries without its source's name are older.
    named = options and any(option.startswith("-arch=") for option in options.values()[0])
    if name.left is not None or options is None or named:
        return ""
    return (
        "the nearest entry is of warm or the library, whose keys do not contain the source's name; to warm "
        "for 'gpucache run', use 'gpucache record' and 'gpucache warm --recording'"
    )


def told_once(differences: Sequence[Difference]) -> list[Difference]:
    """The differences, each header once: a macro may name the same header with more directories as well."""
    short = {(item.left, item.right, name) for item in differences if (name := header_of(item.label))}

    def is_repeated(item: Difference) -> bool:
        name = header_of(item.label) or ""
        ends = (name[place + 1 :] for place, letter in enumerate(name) if letter == "/")
        return any((item.left, item.right, end) in short for end in ends)

    return [item for item in differences if not is_repeated(item)]


def _phrase(item: Difference, shadows: Mapping[str, str]) -> Iterable[str]:
    left, right = ("none" if value is None else value or "(empty)" for value in (item.left, item.right))
    arrow = f"{left} -> {right}"
    if name := header_of(item.label):
        sides = [value is None or (value == NOT_FOUND and NOT_FOUND) for value in (item.left, item.right)]
        yield shadows.get(name) or _HEADERS.get((sides[0], sides[1]), "the header {} changed").format(name)
    elif item.label == "option":
        yield from _options(item)
    elif variable := variable_of(item.label):
        yield f"the environment variable {variable}: {arrow}"
    elif item.label == SOURCE_NAME and item.left is None:
        yield _OLDER
    else:
        phrase = _LABELS.get(item.label, (0, ""))[1] or f"{item.label} {{arrow}}"
        yield phrase.format(left=left, right=right, arrow=arrow)


def _options(item: Difference) -> Iterator[str]:
    left, right = item.values()
    gone, new = Counter(left) - Counter(right), Counter(right) - Counter(left)
    renewed = {}
    for option in list(gone):
        match = next((one for one in new if _macro(one)[0] and _macro(one)[0] == _macro(option)[0]), None)
        if match is not None:
            del gone[option], new[match]
            renewed[option] = match
            yield f"the {_macro(option)[0]}: {_macro(option)[1]} -> {_macro(match)[1]}"
    yield from (f"the option {one} is {'given less often' if one in right else 'gone'}" for one in gone)
    yield from (f"the option {one} is {'given more often' if one in left else 'new'}" for one in new)
    stayed = [renewed.get(option, option) for option in left]
    if _on_both(stayed, right) != _on_both(right, stayed):
        yield "the options are in another order"


def _on_both(options: Sequence[str], others: Sequence[str]) -> list[str]:
    """The first sequence's options that both have equally often, in order."""
    count, other_count = Counter(options), Counter(others)
    return [option for option in options if count[option] == other_count[option]]


def _macro(option: str) -> tuple[str, str]:
    """The name and the value of a define or a constant; two empty texts for another option."""
    match = _DEFINE.fullmatch(option)
    if match is None:
        return "", ""
    if match[3]:
        return f"specialization constant {match[3]}", match[4]
    return f"define {match[1]}", "(no value)" if match[2] is None else match[2] or "(empty)"
