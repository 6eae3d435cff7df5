"""Which machines would miss, from recordings and profiles alone: ``warm --check`` for a fleet elsewhere.

Owns which programs each machine asks for, and the smallest set of builds that would serve all. A machine is
its profile: what agrees in everything that a key contains is looked up once. Probes and compiles nothing.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry
from gpucache.answers.fleet import FleetCommand, FleetOutcome, FleetSummary, summarise_machines
from gpucache.answers.lookup import Verdict
from gpucache.answers.warm import ALIKE, WarmOutcome, WarmResult, summarise_warm
from gpucache.engine.explain import phrases, weight
from gpucache.engine.machine import Machine, find_machine, select_target
from gpucache.engine.stores import Stores
from gpucache.engine.warm.plan import Backends, WarmItem, devices_there, recorded_device, recorded_items
from gpucache.engine.warm.run import Session, Warming, interrupted, prepare_item, read_recordings
from gpucache.errors import GpucacheError, NoDeviceError, TargetError, UsageError
from gpucache.host.scratch import scratch
from gpucache.keys import difference
from gpucache.model import Device, KeyField, Target, Toolchain
from gpucache.recording.builds import RecordedBuild
from gpucache.recording.reading import RecordingFolder, Replayed, as_recorded, replay
from gpucache.store.directory import Snapshot

_PHRASES = 4
_NAMES_TARGET = re.compile("the option (-arch|--gpu-architecture)=")
_SOURCE_CHANGED = "its source, headers or options differ, of which a store keeps no record"
_NOWHERE = "no machine has a device for it; name a target of theirs with --target"


class _Kind(NamedTuple):
    """All that a key contains of a machine."""

    backend: str
    toolchain: Toolchain | None
    environment: tuple[tuple[str, str], ...]
    """The variables that reach the compiler."""
    available: bool


@dataclass(slots=True)
class _Machines:
    """Machines whose profiles agree."""

    devices: tuple[Device, ...]
    environment: Mapping[str, str]
    names: dict[str, int] = field(default_factory=dict)
    """The profiles, with their places among all."""
    asks: dict[_Kind, set[int]] = field(default_factory=dict)
    """The numbers of the builds that they ask for, by kind."""


@dataclass(slots=True)
class _Build:
    """A recorded build without its target."""

    replayed: list[Replayed] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    """The recordings with its sources."""


@dataclass(slots=True)
class _Asked:
    """The builds that some machines ask for on their devices of one kind."""

    device: Device
    machines: list[_Machines] = field(default_factory=list)
    numbers: dict[int, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Lookup:
    """A key that was looked up, for all machines that ask for any of some builds on a kind."""

    kind: _Kind
    outcome: WarmOutcome
    numbers: set[int]
    machines: tuple[_Machines, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """The entries of a store on another machine, by key and by program."""

    url: str
    by_key: Mapping[str, CacheEntry]
    by_program: Mapping[str, Sequence[CacheEntry]]

    @classmethod
    def of(cls, url: str, entries: Iterable[CacheEntry]) -> "Stored":
        """The same from a list."""
        by_key = {entry.key: entry for entry in entries}
        by_program: dict[str, list[CacheEntry]] = {}
        for entry in by_key.values():
            by_program.setdefault(entry.program, []).append(entry)
        return cls(url, by_key, by_program)

    def outcome(self, session: Session, item: WarmItem) -> WarmOutcome:
        """Whether it has the entry that an item asks for, and if not the nearest by its toolchain."""
        prepared = prepare_item(session, Stores(), item)
        if isinstance(prepared, WarmOutcome):
            return prepared
        if prepared.refusal is not None:
            return item.outcome(WarmResult.FAILED, reason=prepared.refusal, verdict=Verdict.UNCACHEABLE)
        found = next(filter(None, map(self.by_key.get, map(str, prepared.keys()))), None)
        if found is not None:
            told = item.outcome(WarmResult.HIT)
            size, took = found.size_bytes, found.compile_ns
            return replace(told, key=found.key, compile_ns=took, size_bytes=size, remote=True)
        toolchain = prepared.compilation.inputs.toolchain
        wanted = [KeyField(*pair) for pair in toolchain.fields]
        others = (
            difference([KeyField(*pair) for pair in entry.fields], wanted)
            for entry in self.by_program.get(item.program, ())
        )
        nearest = min(others, key=weight, default=None)
        verdict, why = Verdict.KEY_CHANGED, "; ".join(phrases(nearest or ())) or _SOURCE_CHANGED
        if nearest is None:
            verdict, why = Verdict.NEVER_BUILT, f"nothing of {item.program} is in {self.url}"
        elif any(one.label in toolchain.identity for one in nearest):
            verdict = Verdict.NEVER_BUILT
        told = item.outcome(
            WarmResult.MISSING, prepared=prepared, reason=f"{verdict}: {why}", verdict=verdict
        )
        return replace(told, differences=nearest or ())


def check_fleet(
    run: Warming,
    folders: Sequence[Path],
    profiles: Sequence[Path],
    targets: Sequence[str],
    words: Sequence[str],
    stored: Stored | None = None,
    send_to: str | None = None,
) -> tuple[list[FleetOutcome], FleetSummary]:
    """The builds that the machines of some profiles ask for, and the commands that make the missing ones.

    They are looked up in ``stored``, or else where programs of this user look. A recording or a profile that
    cannot be read is a failure next to the others. ``words`` end each command, and ``send_to`` is the store
    to which the builds are then pushed. Raises UsageError if nothing can be read.
    """
    if stored is None:
        run.require_root()
    recordings, failed = read_recordings(run, folders)
    machines, unread = _read_machines(profiles)
    with scratch("replay") as place:
        builds = _builds(recordings, place if targets else None)
        asked = _asked(machines, builds, targets, run.backends)
        lookups = list(_look_up(run, asked, builds, stored))
    outcomes = [FleetOutcome(one, ()) for one in (*failed, *unread)]
    outcomes += [FleetOutcome(one.outcome, _names(one.machines), _cause(one)) for one in lookups]
    nowhere = {*range(len(builds))}.difference(*(one.numbers for one in asked.values()))
    for recorded in (builds[number].replayed[0].build for number in sorted(nowhere) if machines):
        skipped = WarmOutcome(
            recorded.program, recorded.target, WarmResult.SKIPPED, recorded.short, reason=_NOWHERE
        )
        outcomes.append(FleetOutcome(skipped, _names(machines), _NOWHERE))
    missing = [one for one in lookups if one.outcome.result is WarmResult.MISSING]
    possible = [one for one in missing if any(builds[number].folders for number in one.numbers)]
    return outcomes, FleetSummary(
        summarise_warm(one.outcome for one in outcomes),
        len(missing),
        len(missing) - len(possible),
        summarise_machines(outcomes, _names(machines)),
        tuple(_commands(possible, machines, builds, run.backends, words)),
        shlex.join(("gpucache", "push", send_to, *words)) if send_to and possible else None,
    )


def _read_machines(profiles: Sequence[Path]) -> tuple[list[_Machines], list[WarmOutcome]]:
    """The machines, those that agree together; and a failure for each profile that cannot be read."""
    found: dict[object, _Machines] = {}
    unread: list[WarmOutcome] = []
    for place, profile in enumerate(dict.fromkeys(profiles)):
        try:
            devices, environment, _ = find_machine(profile)
        except UsageError as error:
            if len(profiles) == 1:
                raise
            unread.append(WarmOutcome(str(profile), "", WarmResult.FAILED, reason=str(error)))
            continue
        rows = tuple((one.target, one.toolchain, one.present, one.available) for one in devices)
        same = rows, tuple(sorted(environment.items()))
        found.setdefault(same, _Machines(devices, environment)).names[str(profile)] = place
    return list(found.values()), unread


def _names(machines: Iterable[_Machines]) -> tuple[str, ...]:
    places = {name: place for some in machines for name, place in some.names.items()}
    return tuple(sorted(places, key=places.__getitem__))


def _builds(recordings: Sequence[RecordingFolder], place: Path | None) -> list[_Build]:
    """Every recorded build; with a place its files are laid out below it, for targets of another kind."""
    found: dict[tuple[object, ...], _Build] = {}
    for number, recording in enumerate(recordings):
        for one in as_recorded(recording) if place is None else replay(recording, place / str(number)):
            build = found.setdefault(one.build.what, _Build())
            build.replayed.append(one)
            if recording.has_sources(one.build) and recording.folder not in build.folders:
                build.folders.append(recording.folder)
    return list(found.values())


def _asked(
    machines: Sequence[_Machines], builds: Sequence[_Build], targets: Sequence[str], backends: Backends
) -> dict[_Kind, _Asked]:
    """The builds that machines ask for, by kind; raises TargetError for a target that is on no machine."""
    found: dict[_Kind, _Asked] = {}
    for some, selected in zip(machines, _selected(machines, targets), strict=True):
        meant: dict[tuple[object, ...], list[_Kind]] = {}
        for number, build in enumerate(builds):
            for one in build.replayed:
                recorded_for = _recorded_for(one.build)
                if recorded_for not in meant:
                    devices = _devices(one.build, some.devices, selected if targets else None)
                    meant[recorded_for] = [_kind(device, some, backends) for device in devices]
                    for kind, device in zip(meant[recorded_for], devices, strict=True):
                        found.setdefault(kind, _Asked(device))
                for kind in meant[recorded_for]:
                    some.asks.setdefault(kind, set()).add(number)
        for kind, numbers in some.asks.items():
            found[kind].machines.append(some)
            found[kind].numbers |= dict.fromkeys(sorted(numbers))
    return found


def _selected(machines: Sequence[_Machines], targets: Sequence[str]) -> list[list[Device]]:
    """The devices of each machine that targets name; raises TargetError for one that is on no machine."""
    found: list[list[Device]] = [[] for _ in machines]
    for target in targets:
        wrong: list[GpucacheError] = []
        for devices, some in zip(found, machines, strict=True):
            try:
                devices.append(select_target(target, some.devices))
            except (TargetError, NoDeviceError) as error:
                wrong.append(error)
        if wrong and len(wrong) == len(machines):
            raise wrong[0]
    return found


def _recorded_for(build: RecordedBuild) -> tuple[object, ...]:
    return build.implementation, build.target, build.toolchain, build.identity


def _devices(
    build: RecordedBuild, devices: Sequence[Device], selected: Sequence[Device] | None
) -> Sequence[Device]:
    if selected is None:
        return devices_there(build, devices)
    return [device for device in selected if device.backend == Target.parse(build.target).backend]


def _kind(device: Device, machines: _Machines, backends: Backends) -> _Kind:
    toolchain, environment = device.toolchain, machines.environment
    reaching = () if toolchain is None else backends[device.backend].environment(toolchain, environment)
    return _Kind(device.backend, toolchain, reaching, device.available)


def _look_up(
    run: Warming, asked: Mapping[_Kind, _Asked], builds: Sequence[_Build], stored: Stored | None
) -> Iterator[_Lookup]:
    """Each key once, in a run of warm for each kind."""
    stores = run.open_stores(run.settings)
    unasked = [Snapshot(store.root) for store in stores.unasked()]
    stores = stores._replace(
        user=stores.user and Snapshot(stores.user.root),
        systems=tuple(Snapshot(store.root) for store in stores.systems),
        unasked=lambda: unasked,
    )
    stopped = False
    for kind, one in asked.items():
        environment = one.machines[0].environment
        session = replace(run.session(Machine((one.device,), environment)), opened=lambda: stores)
        numbers = {builds[number].replayed[0].build.what: number for number in one.numbers}
        replayed = (each for number in one.numbers for each in builds[number].replayed)
        items = recorded_items(replayed, [one.device], [one.device], run.backends, environment)
        wanted = list(items.values())
        if stored is not None:
            outcomes = [stored.outcome(session, item) for item in wanted]
        else:
            outcomes = interrupted(wanted, (), ()) if stopped else session.outcomes(wanted)
        stopped = any(outcome.result is WarmResult.INTERRUPTED for outcome in outcomes)
        found: dict[object, _Lookup] = {}
        for (what, _, artifact_kind), outcome in zip(items, outcomes, strict=True):
            same = outcome.key or (what, artifact_kind)
            found.setdefault(same, _Lookup(kind, outcome, set())).numbers.add(numbers[what])
        for lookup in found.values():
            asking = (some for some in one.machines if not lookup.numbers.isdisjoint(some.asks[kind]))
            lookup.machines = tuple(asking)
            yield lookup


def _cause(found: _Lookup) -> str:
    """Why it would miss, without the names and instants that differ from program to program.

    A difference in the device itself is in the target, so its values are left out.
    """
    outcome, toolchain = found.outcome, found.kind.toolchain
    if outcome.verdict is None:
        return outcome.reason
    identity = () if toolchain is None else toolchain.identity
    others = [item.label for item in outcome.differences if item.label in identity]
    told = [f"another {label.removesuffix(' name')}" for label in others]
    rest = phrases([item for item in outcome.differences if item.label not in others])
    told += [phrase for phrase in rest if not (others and _NAMES_TARGET.match(phrase))]
    if not told:
        return str(outcome.verdict) if outcome.verdict in ALIKE else outcome.reason
    more = f"; and {len(told) - _PHRASES} more" if len(told) > _PHRASES else ""
    return f"{outcome.verdict}: {'; '.join(told[:_PHRASES])}{more}"


def _commands(
    missing: Sequence[_Lookup],
    machines: Sequence[_Machines],
    builds: Sequence[_Build],
    backends: Backends,
    words: Sequence[str],
) -> Iterator[FleetCommand]:
    """Commands that make all the missing builds, each on the machine that can make most of what is left."""
    left: dict[_Kind, list[_Lookup]] = {}
    for one in missing:
        left.setdefault(one.kind, []).append(one)
    able = [_able(some, left, backends) for some in machines]
    while left:
        makes = [{kind: target for kind, target in kinds.items() if kind in left} for kinds in able]
        counts = [sum(len(left[kind]) for kind in kinds) for kinds in makes]
        best = counts.index(max(counts))
        made = [one for kind in makes[best] for one in left.pop(kind)]
        same = [some for some, kinds in zip(machines, makes, strict=True) if kinds == makes[best]]
        on_targets = dict.fromkeys(makes[best].values())
        numbers = (number for one in made for number in one.numbers)
        folders = list(dict.fromkeys(folder for number in numbers for folder in builds[number].folders))
        if all(_is_as_recorded(made, machines, some, builds, folders, backends) for some in same):
            on_targets = {}
        else:
            folders = _folders(made, builds)
        options = [word for folder in folders for word in ("--recording", str(folder))]
        options += [word for target in on_targets for word in ("--target", target)]
        yield FleetCommand(
            ("gpucache", "warm", *options, *words),
            len(made),
            _names(same),
            len(_names({id(some): some for one in made for some in one.machines}.values())),
        )


def _able(some: _Machines, kinds: Iterable[_Kind], backends: Backends) -> dict[_Kind, str]:
    """The targets by which some machines build for kinds that they or others have."""
    found: dict[_Kind, str] = {}
    rows = {_kind(device, some, backends): str(device.target) for device in some.devices}
    for kind in kinds:
        with suppress(GpucacheError):  # an architecture with a suffix, of which a probe has no row
            fields = {} if kind.toolchain is None else dict(kind.toolchain.fields)
            if kind not in rows and "architecture" in fields:
                device = select_target(f"{kind.backend}:{fields['architecture']}", some.devices)
                rows[_kind(device, some, backends)] = str(device.target)
        if kind in rows:
            found[kind] = rows[kind]
    return found


def _folders(made: Sequence[_Lookup], builds: Sequence[_Build]) -> list[Path]:
    """Recordings that together contain the sources of some builds."""
    chosen: dict[Path, None] = {}
    for one in made:
        own = next(builds[number].folders for number in one.numbers if builds[number].folders)
        if not any(folder in chosen for folder in own):
            chosen[own[0]] = None
    return list(chosen)


def _is_as_recorded(
    made: Sequence[_Lookup],
    machines: Sequence[_Machines],
    some: _Machines,
    builds: Sequence[_Build],
    folders: Sequence[Path],
    backends: Backends,
) -> bool:
    """Whether warm without a target makes all these builds on a machine, and no others."""
    kinds: dict[tuple[object, ...], _Kind | None] = {}
    would: dict[_Kind, set[int]] = {}
    for number, build in enumerate(builds):
        for one in build.replayed if any(folder in folders for folder in build.folders) else ():
            recorded_for = _recorded_for(one.build)
            if recorded_for not in kinds:
                device = recorded_device(one.build, some.devices)
                kinds[recorded_for] = None if device is None else _kind(device, some, backends)
            kind = kinds[recorded_for]
            if kind is not None:
                would.setdefault(kind, set()).add(number)
    return all(
        numbers <= set().union(*(each.asks.get(kind, ()) for each in machines))
        for kind, numbers in would.items()
    ) and all(not one.numbers.isdisjoint(would.get(one.kind, ())) for one in made)
