"""Which machines would miss, from recordings and profiles alone: ``warm --check`` for a fleet elsewhere.

Owns which programs each machine asks for, and the smallest set of builds that would serve all. A machine is
its profile: what agrees in everything that a key contains is looked up once. Probes and compiles nothing.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry
from gpucache.answers.lookup import Miss, Verdict
from gpucache.answers.warm import (
    ALIKE,
    FleetCommand,
    FleetOutcome,
    FleetSummary,
    WarmOutcome,
    WarmResult,
    summarise_fleet,
)
from gpucache.engine.explain import phrases, record_of, weight
from gpucache.engine.machine import Machine, find_machine, select_target
from gpucache.engine.stores import Stores
from gpucache.engine.warm.kernels import check_fleet_kernels
from gpucache.engine.warm.plan import Backends, WarmItem, devices_there, recorded_device, recorded_items
from gpucache.engine.warm.run import Session, Warming, interrupted, prepare_item, read_recordings
from gpucache.errors import GpucacheError, NoDeviceError, TargetError, UsageError
from gpucache.host.scratch import scratch
from gpucache.keys import difference
from gpucache.model import Device, KeyField, Target, Toolchain
from gpucache.recording.builds import RecordedBuild
from gpucache.recording.kernels import united
from gpucache.recording.reading import RecordingFolder, Replayed, as_recorded, replay
from gpucache.store.directory import Snapshot

_PHRASES = 4
_NAMES_TARGET = re.compile("the option (-arch|--gpu-architecture)=")
_SOURCE_CHANGED = "its source, headers or options differ, of which a store keeps no record"
_NOWHERE = "no machine has a device for it; name a target of theirs with --target"


class _Kind(NamedTuple):
    backend: str
    toolchain: Toolchain | None
    environment: tuple[tuple[str, str], ...]
    available: bool


@dataclass(slots=True)
class _Build:
    replayed: list[Replayed] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)


@dataclass(slots=True)
class _Asked:
    device: Device
    environment: Mapping[str, str]
    numbers: dict[str, set[int]] = field(default_factory=dict)


class _Lookup(NamedTuple):
    """The lookup of a key, for all machines with one kind of device that ask for it."""

    kind: _Kind
    numbers: set[int]
    told: FleetOutcome


@dataclass(frozen=True, slots=True)
class Stored:
    """The entries of a store on another machine, by key and by program."""

    url: str
    by_key: Mapping[str, CacheEntry]
    by_program: Mapping[str, Sequence[CacheEntry]]

    @classmethod
    def of(cls, url: str, entries: Iterable[CacheEntry]) -> "Stored":
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
        if nearest is None:
            why = f"nothing of {item.program} is in {self.url}"
            return item.missing(prepared, Miss(Verdict.NEVER_BUILT, why))
        another = any(one.label in toolchain.identity for one in nearest)
        verdict = Verdict.NEVER_BUILT if another else Verdict.KEY_CHANGED
        return item.missing(prepared, Miss(verdict, "; ".join(phrases(nearest)) or _SOURCE_CHANGED, nearest))


def check_fleet(
    run: Warming,
    folders: Sequence[Path],
    profiles: Sequence[Path],
    targets: Sequence[str],
    words: Sequence[str],
    stored: Stored | None = None,
    push: Sequence[str] = (),
) -> tuple[list[FleetOutcome], FleetSummary]:
    """The builds that the machines of some profiles ask for, and the commands that make the missing ones.

    They are looked up in ``stored``, or else where programs of this user look. A recording or a profile that
    cannot be read is a failure next to the others. ``words`` end each command, and ``push`` are those of the
    one that then sends the builds. Raises UsageError if nothing can be read.
    """
    if stored is None:
        run.require_root()
    recordings, failed = read_recordings(run, folders)
    machines: dict[str, Machine] = {}
    for profile in dict.fromkeys(profiles):
        try:
            machines[str(profile)] = find_machine(profile)
        except UsageError as error:
            if len(profiles) == 1:
                raise
            failed.append(WarmOutcome(str(profile), "", WarmResult.FAILED, reason=str(error)))
    with scratch("replay") as place:
        builds = _builds(recordings, place if targets else None)
        asked = _asked(machines, builds, targets, run.backends)
        lookups = list(_look_up(run, asked, builds, stored))
    outcomes = [FleetOutcome(one, ()) for one in failed] + [one.told for one in lookups]
    somewhere = {number for one in asked.values() for numbers in one.numbers.values() for number in numbers}
    for recorded in (one.replayed[0].build for number, one in enumerate(builds) if number not in somewhere):
        result = WarmResult.SKIPPED
        skipped = WarmOutcome(recorded.program, recorded.target, result, recorded.short, reason=_NOWHERE)
        outcomes += [FleetOutcome(skipped, tuple(machines), _NOWHERE)] if machines else []
    missing = [one for one in lookups if one.told.outcome.result is WarmResult.MISSING]
    left: dict[_Kind, list[_Lookup]] = {}
    for one in missing:
        if any(builds[number].folders for number in one.numbers):
            left.setdefault(one.kind, []).append(one)
    send = shlex.join(("gpucache", *push, *words)) if push and left else None
    commands = [*_commands(left, machines, asked, builds, run.backends, words)]
    if stored is None and any(one.kernels.anything for one in recordings):
        told, more = check_fleet_kernels(
            run, united(one.kernels for one in recordings), machines, [one.folder for one in recordings]
        )
        outcomes, commands = outcomes + told, commands + more
    return outcomes, summarise_fleet(outcomes, machines, tuple(commands), send)


def _builds(recordings: Sequence[RecordingFolder], place: Path | None) -> list[_Build]:
    """Every recorded build; with ``place``, its files are written below it, for targets of other kinds."""
    found: dict[tuple[object, ...], _Build] = {}
    for number, recording in enumerate(recordings):
        for one in as_recorded(recording) if place is None else replay(recording, place / str(number)):
            build = found.setdefault(one.build.what, _Build())
            build.replayed.append(one)
            if recording.has_sources(one.build) and recording.folder not in build.folders:
                build.folders.append(recording.folder)
    return list(found.values())


def _asked(
    machines: Mapping[str, Machine], builds: Sequence[_Build], targets: Sequence[str], backends: Backends
) -> dict[_Kind, _Asked]:
    """The builds that machines ask for, by kind; raises TargetError for a target that is on no machine."""
    alike: dict[object, tuple[RecordedBuild, set[int]]] = {}
    for number, build in enumerate(builds):
        for one in build.replayed:
            alike.setdefault(_recorded_for(one.build), (one.build, set()))[1].add(number)
    selected = _selected(machines, targets)
    found: dict[_Kind, _Asked] = {}
    for name, machine in machines.items():
        for recorded, numbers in alike.values():
            backend = Target.parse(recorded.target).backend
            devices = [device for device in selected[name] if device.backend == backend]
            for device in devices if targets else devices_there(recorded, machine.devices):
                kind = _kind(device, machine, backends)
                asked = found.setdefault(kind, _Asked(device, machine.environment))
                asked.numbers.setdefault(name, set()).update(numbers)
    return found


def _recorded_for(build: RecordedBuild) -> object:
    return build.implementation, build.target, build.toolchain, build.identity


def _selected(machines: Mapping[str, Machine], targets: Sequence[str]) -> dict[str, list[Device]]:
    """The devices of each machine that targets name; raises TargetError for one that is on no machine."""
    found: dict[str, list[Device]] = {name: [] for name in machines}
    for target in targets:
        wrong: list[GpucacheError] = []
        for name, machine in machines.items():
            try:
                found[name].append(select_target(target, machine.devices))
            except (TargetError, NoDeviceError) as error:
                wrong.append(error)
        if wrong and len(wrong) == len(machines):
            raise wrong[0]
    return found


def _kind(device: Device, machine: Machine, backends: Backends) -> _Kind:
    toolchain, environment = device.toolchain, machine.environment
    reaching = () if toolchain is None else backends[device.backend].environment(toolchain, environment)
    return _Kind(device.backend, toolchain, reaching, device.available)


def _look_up(
    run: Warming, asked: Mapping[_Kind, _Asked], builds: Sequence[_Build], stored: Stored | None
) -> Iterator[_Lookup]:
    stores = run.open_stores(run.settings)
    unasked = [Snapshot(store.root) for store in stores.unasked()]
    stores = stores._replace(
        user=stores.user and Snapshot(stores.user.root),
        systems=tuple(Snapshot(store.root) for store in stores.systems),
        unasked=lambda: unasked,
        recorded=cache(record_of),
    )
    stopped = False
    for kind, one in asked.items():
        session = replace(run.session(Machine((one.device,), one.environment)), opened=lambda: stores)
        numbers = {
            builds[number].replayed[0].build.what: number
            for number in sorted(set().union(*one.numbers.values()))
        }
        replayed = (each for number in numbers.values() for each in builds[number].replayed)
        items = recorded_items(replayed, [one.device], [one.device], run.backends, one.environment)
        wanted = list(items.values())
        if stored is not None:
            outcomes = [stored.outcome(session, item) for item in wanted]
        else:
            outcomes = interrupted(wanted, (), ()) if stopped else session.outcomes(wanted)
        stopped = any(outcome.result is WarmResult.INTERRUPTED for outcome in outcomes)
        found: dict[object, tuple[WarmOutcome, set[int]]] = {}
        for (what, _, artifact_kind), outcome in zip(items, outcomes, strict=True):
            same = outcome.key or (what, artifact_kind)
            found.setdefault(same, (outcome, set()))[1].add(numbers[what])
        for outcome, some in found.values():
            names = tuple(name for name, own in one.numbers.items() if not own.isdisjoint(some))
            yield _Lookup(kind, some, FleetOutcome(outcome, names, _cause(outcome, kind)))


def _cause(outcome: WarmOutcome, kind: _Kind) -> str:
    """Why it would miss, without the names and instants that differ from program to program.

    A difference in the device itself is in the target, so its values are left out.
    """
    if outcome.verdict is None:
        return outcome.reason
    identity = () if kind.toolchain is None else kind.toolchain.identity
    others = [item.label for item in outcome.differences if item.label in identity]
    told = [f"another {label.removesuffix(' name')}" for label in others]
    rest = phrases([item for item in outcome.differences if item.label not in others])
    told += [phrase for phrase in rest if not (others and _NAMES_TARGET.match(phrase))]
    if not told:
        return str(outcome.verdict) if outcome.verdict in ALIKE else outcome.reason
    more = f"; and {len(told) - _PHRASES} more" if len(told) > _PHRASES else ""
    return f"{outcome.verdict}: {'; '.join(told[:_PHRASES])}{more}"


def _commands(
    left: dict[_Kind, list[_Lookup]],
    machines: Mapping[str, Machine],
    asked: Mapping[_Kind, _Asked],
    builds: Sequence[_Build],
    backends: Backends,
    words: Sequence[str],
) -> Iterator[FleetCommand]:
    """Commands that make all the missing builds, each on the machine that can make most of what is left."""
    able = {name: _able(machine, left, backends) for name, machine in machines.items()}
    while left:
        able = {name: {one: kinds[one] for one in kinds if one in left} for name, kinds in able.items()}
        best = max(able.values(), key=lambda kinds: sum(len(left[kind]) for kind in kinds))
        same = [name for name, kinds in able.items() if kinds == best]
        made = [one for kind in best for one in left.pop(kind)]
        folders = [folder for one in made for number in one.numbers for folder in builds[number].folders]
        given, on = list(dict.fromkeys(folders)), []
        if not all(_is_as_recorded(made, machines[name], asked, builds, given, backends) for name in same):
            given, on = _folders(made, builds), list(dict.fromkeys(best.values()))
        options = [word for folder in given for word in ("--recording", str(folder))]
        options += [word for target in on for word in ("--target", target)]
        serves = {name for one in made for name in one.told.machines}
        command = ("gpucache", "warm", *options, *words)
        yield FleetCommand(command, len(made), tuple(same), len(serves))


def _able(machine: Machine, kinds: Iterable[_Kind], backends: Backends) -> dict[_Kind, str]:
    """The targets that a machine can build for."""
    rows = {_kind(device, machine, backends): str(device.target) for device in machine.devices}
    for kind in kinds:
        name = dict(kind.toolchain.fields).get("architecture", "") if kind.toolchain is not None else ""
        if name.endswith(("a", "f")):  # of which a probe has no row
            with suppress(GpucacheError):
                device = select_target(f"{kind.backend}:{name}", machine.devices)
                rows.setdefault(_kind(device, machine, backends), str(device.target))
    return {kind: rows[kind] for kind in kinds if kind in rows}


def _folders(made: Sequence[_Lookup], builds: Sequence[_Build]) -> list[Path]:
    chosen: list[Path] = []
    for one in made:
        own = next(builds[number].folders for number in one.numbers if builds[number].folders)
        if not any(folder in chosen for folder in own):
            chosen.append(own[0])
    return chosen


def _is_as_recorded(
    made: Sequence[_Lookup],
    machine: Machine,
    asked: Mapping[_Kind, _Asked],
    builds: Sequence[_Build],
    folders: Sequence[Path],
    backends: Backends,
) -> bool:
    """Whether warm without a target makes all these builds on a machine, and no others."""
    kinds: dict[object, _Kind | None] = {}
    would: dict[_Kind, set[int]] = {}
    for number, build in enumerate(builds):
        for one in build.replayed if any(folder in folders for folder in build.folders) else ():
            recorded_for = _recorded_for(one.build)
            if recorded_for not in kinds:
                device = recorded_device(one.build, machine.devices)
                kinds[recorded_for] = None if device is None else _kind(device, machine, backends)
            if (kind := kinds[recorded_for]) is not None:
                would.setdefault(kind, set()).add(number)
    return all(
        kind in asked and numbers <= set().union(*asked[kind].numbers.values())
        for kind, numbers in would.items()
    ) and all(not one.numbers.isdisjoint(would.get(one.kind, ())) for one in made)
