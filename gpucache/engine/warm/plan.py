"""The builds of ``warm``: programs that were named, requests that missed, or recorded builds. Pure.

Owns the items of a run, and the plain values that describe it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gpucache.answers.lookup import Built, Hit, Miss
from gpucache.answers.warm import WarmOutcome, WarmResult
from gpucache.backends.interface import Backend
from gpucache.checks import include_dirs
from gpucache.engine.machine import default_devices, select_target
from gpucache.engine.prepare import Known, Prepared, lacks_kernels
from gpucache.errors import GpucacheError
from gpucache.keys import Closure
from gpucache.manifest import ProgramSpec
from gpucache.model import (
    GIVEN_WITH,
    ArtifactKind,
    AsAsked,
    BuildRequest,
    Device,
    Program,
    Target,
    Toolchain,
)
from gpucache.store.interface import REMOTE, MissedRequest

if TYPE_CHECKING:
    from gpucache.recording.builds import RecordedBuild
    from gpucache.recording.reading import Replayed

Backends = Mapping[str, Backend]
Named = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class WarmItem:
    """One build to make, or the reason why it cannot be tried."""

    program: str
    target: str
    variant: str = ""
    request: BuildRequest | None = None
    toolchain: Toolchain | None = None
    skipped: str = ""
    known: Known | None = None
    """The recorded facts on source and headers; None if there is no recording by the same rules."""
    moved: bool = False
    """Whether it was recorded elsewhere, so that an artifact with paths would never be hit."""
    unread: bool = False
    """Whether it cannot be tried as its source was not read, which is a failure."""
    absent: bool = False
    """Whether its source is not on this machine: it can be looked up, and not be built."""

    @property
    def name(self) -> Named:
        return self.program, self.target, self.variant

    def is_of(self, part: int, parts: int) -> bool:
        """Whether it belongs to a part, from 1; every machine divides the items alike."""
        from hashlib import sha256

        digest = sha256("\0".join(self.name).encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:8], "big") % parts == part - 1

    def outcome(self, result: WarmResult, prepared: Prepared | None = None, **facts: Any) -> WarmOutcome:
        """The outcome of the item, with more fields by name; with ``prepared`` it has a key."""
        key = None if prepared is None else str(prepared.key)
        return WarmOutcome(self.program, self.target, result, self.variant, **{"key": key, **facts})

    def missing(self, prepared: Prepared, miss: Miss) -> WarmOutcome:
        """The outcome if there is no entry and none is to be built."""
        reason = f"{miss.verdict}: {miss.detail}"
        facts = {"reason": reason, "verdict": miss.verdict, "differences": miss.differences}
        return self.outcome(WarmResult.MISSING, prepared, **facts)

    def hit(self, prepared: Prepared, hit: Hit) -> WarmOutcome:
        return self.outcome(
            WarmResult.HIT,
            key=str(hit.key),
            compile_ns=hit.head.compile_ns,
            lacks_kernels=lacks_kernels(prepared, hit.payload),
            remote=hit.store == REMOTE,
        )


@dataclass(frozen=True, slots=True)
class Job:
    """The input of a worker: plain values."""

    request: BuildRequest
    toolchain: Toolchain
    wait_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, for a live display."""

    done: int
    total: int
    running: tuple[Named, ...]


Build = Callable[[Job], Hit | Built]


def plan_warm(
    specs: Iterable[ProgramSpec], devices: Sequence[Device], targets: Sequence[str], backends: Backends
) -> list[WarmItem]:
    """Every build of every program; ``targets`` of the command line replace those of the manifest.

    Raises TargetError or NoDeviceError for a target that is not on this machine.
    """
    return [item for spec in specs for item in _items(spec, devices, targets or spec.targets, backends)]


def plan_missed(
    missed: Sequence[MissedRequest],
    devices: Sequence[Device],
    backends: Backends,
    environ: Mapping[str, str],
    local_sizes: Sequence[tuple[int, ...]] = (),
) -> list[WarmItem]:
    """Every request that missed, with some more local sizes; its variant is its key."""
    return [_missed_item(one, devices, backends, environ, tuple(local_sizes)) for one in missed]


def plan_recorded(
    replayed: "Iterable[Replayed]",
    devices: Sequence[Device],
    targets: Sequence[str],
    backends: Backends,
    environ: Mapping[str, str],
) -> list[WarmItem]:
    """Every recorded build, for the device that it was recorded for or for the targets of the command line.

    A build that was recorded for several devices is built once for each target. Its variant is the first
    digits of the recorded build. Raises TargetError or NoDeviceError as ``plan_warm`` does.
    """
    selected = [select_target(text, devices) for text in targets]
    return list(recorded_items(replayed, devices, selected, backends, environ).values())


Wanted = tuple[tuple[object, ...], str, StrEnum | None]
"""A recorded build without its target, the target, and the kind of artifact."""


def recorded_items(
    replayed: "Iterable[Replayed]",
    devices: Sequence[Device],
    selected: Sequence[Device],
    backends: Backends,
    environ: Mapping[str, str],
) -> dict[Wanted, WarmItem]:
    """The items of recorded builds, for the selected devices or the recorded ones; one for each target."""
    items: dict[Wanted, WarmItem] = {}
    for one in replayed:
        for item in _replayed_items(one, devices, selected, backends, environ):
            for each in _all_kinds(item):
                wanted = one.build.what, each.target, each.request and each.request.artifact_kind
                before = items.get(wanted)
                items[wanted] = each if before is None else _either(before, each)
    return items


def devices_there(build: "RecordedBuild", devices: Sequence[Device]) -> Sequence[Device]:
    """The devices of another machine that a recorded program runs on.

    These are the device that it was recorded for, or else every present one with the same kind of compiler:
    a program that was recorded for sm_80 asks for sm_90 where the GPU is one. PTX is requested as recorded,
    as it runs on newer GPUs.
    """
    exact = recorded_device(build, devices)
    there = [
        device
        for device in default_devices(devices, Target.parse(build.target).backend)
        if device.toolchain is not None and device.toolchain.implementation == build.implementation
    ]
    if exact is None or not there:
        return there if exact is None else [exact]
    number = re.match(r"sm_\d+", Target.parse(build.target).name)
    if exact.present or number is None or any(one.target == Target("cuda", number[0]) for one in there):
        return [exact]
    return there


def _all_kinds(item: WarmItem) -> Iterator[WarmItem]:
    """For a program that calls its compiler itself, an item for each kind of artifact that it may request."""
    yield item
    request = item.request
    if request is not None and request.asked is not None:
        for kind in GIVEN_WITH.get(request.artifact_kind, ()):
            variant = f"{item.variant} {kind}"
            yield replace(item, variant=variant, request=request._replace(artifact_kind=kind))


def _replayed_items(
    one: "Replayed",
    devices: Sequence[Device],
    selected: Sequence[Device],
    backends: Backends,
    environ: Mapping[str, str],
) -> Iterator[WarmItem]:
    build = one.build
    backend = _backend(build.language, backends)
    if not selected and (device := recorded_device(build, devices)):
        yield replayed_item(one, device, backend, environ)
        return
    chosen = [device for device in selected if device.backend == backend.name]
    if not chosen:
        why = f"no target of {backend.name} was given; add --target {backend.name}:..."
        why = why if selected else _why_absent(backend.name, devices)
        yield WarmItem(build.program, build.target, build.short, skipped=why)
    for device in chosen:
        yield replayed_item(one, device, backend, environ)


def _why_absent(backend: str, devices: Sequence[Device]) -> str:
    """Why a recorded device is not among the devices; or which part its backend lacks to compile."""
    rows = [device for device in devices if device.backend == backend]
    if rows and not any(device.toolchain for device in rows):
        return "; ".join(device.detail for device in rows)
    return "its device is not on this machine; name one of this machine with --target"


def recorded_device(build: "RecordedBuild", devices: Sequence[Device]) -> Device | None:
    """The device that a build was recorded for, with any driver; None if it is not on this machine."""
    known = {label: value for label, value in build.toolchain if label in build.identity}
    with suppress(GpucacheError):  # an architecture with a suffix, of which a probe has no row
        devices = [*devices, select_target(build.target, devices)]
    alike = [
        device
        for device in devices
        if device.toolchain is not None
        and device.toolchain.implementation == build.implementation
        and dict(device.toolchain.identity_fields()) == known
    ]
    return min(alike, key=lambda one: (not one.available, str(one.target) != build.target), default=None)


def replayed_item(one: "Replayed", device: Device, backend: Backend, environ: Mapping[str, str]) -> WarmItem:
    build = one.build
    if device.target is None or device.toolchain is None or not device.available:
        return WarmItem(build.program, build.target, build.short, skipped=device.detail)
    name = build.program, str(device.target), build.short
    if one.problem:
        return WarmItem(*name, skipped=one.problem)
    alike = device.toolchain.implementation == build.implementation
    if alike and (changed := _changed_variables(backend, device.toolchain, environ, build.environment)):
        return WarmItem(*name, skipped=f"it was built with another {changed}; set it as the program has it")
    absent = one.source is None
    if absent and not alike:
        return WarmItem(*name, skipped="without its source its key for another kind of device is not known")
    request = BuildRequest(
        program=Program(build.program, build.language, one.source or b""),
        target=device.target,
        options=build.options,
        include_dirs=one.include_dirs,
        artifact_kind=backend.artifact_kind(device.target),
        name_expressions=build.name_expressions,
        local_sizes=one.local_sizes,
    )
    if build.file_name:
        request = _as_asked(request, one)
    known = Known(build.source, Closure(build.includes, build.resolution, files=one.files)) if alike else None
    moved = not one.directory if build.file_name else bool(build.folders) and not one.in_place
    return WarmItem(*name, request, device.toolchain, known=known, moved=moved, absent=absent)


def retargeted(option: str, before: str, after: str) -> str:
    """An option of NVRTC or hipRTC with one target replaced by another, if it names the first."""
    named = re.fullmatch(rf"(--gpu-architecture=|-arch=|--offload-arch=)?{re.escape(before)}", option)
    return f"{named[1] or ''}{after}" if named else option


def _as_asked(request: BuildRequest, one: "Replayed") -> BuildRequest:
    """The request as a program that calls its compiler itself makes it for this target."""
    build, target = one.build, request.target
    before = Target.parse(build.target).name
    options = tuple(retargeted(option, before, target.name) for option in build.options)
    linked = build.artifact_kind not in (ArtifactKind.CUBIN, ArtifactKind.PTX)
    if one.directory:
        request = request._replace(cwd=one.directory, searches_cwd=True)
    return request._replace(
        options=options,
        artifact_kind=build.artifact_kind if linked else request.artifact_kind,
        asked=AsAsked(build.file_name, build.made_up, one.memory_headers),
    )


def _either(one: WarmItem, other: WarmItem) -> WarmItem:
    """Of two items for one build, the one that can be built, with the local sizes of both."""
    if one.request is None or other.request is None:
        return other if one.request is None else one
    whole, rest = (other, one) if one.absent else (one, other)
    if whole.request is None or rest.request is None:
        return whole
    sizes = tuple(dict.fromkeys((*whole.request.local_sizes, *rest.request.local_sizes)))
    return replace(whole, request=whole.request._replace(local_sizes=sizes))


def _changed_variables(
    backend: Backend, toolchain: Toolchain, environ: Mapping[str, str], before: Iterable[tuple[str, str]]
) -> str:
    """The names of variables that reach a compiler and had another value before."""
    now = backend.environment(toolchain, environ)
    return ", ".join(sorted({label for label, _ in set(now) ^ set(before)}))


def _items(
    spec: ProgramSpec, devices: Sequence[Device], targets: Sequence[str], backends: Backends
) -> Iterator[WarmItem]:
    backend = _backend(spec.program.language, backends)
    selected = [select_target(text, devices) for text in targets]
    chosen = [device for device in selected if device.backend == backend.name]
    if not targets:
        chosen = default_devices(devices, backend.name)
    if not chosen:
        yield WarmItem(spec.program.name, "", skipped=_why_none(backend.name, devices, targets))
    for device in chosen:
        for defines in spec.variants:
            yield _item(spec, device, defines, backend)


def _backend(language: StrEnum, backends: Backends) -> Backend:
    return next(backend for backend in backends.values() if language in backend.languages)


def _item(
    spec: ProgramSpec, device: Device, defines: Sequence[tuple[str, str]], backend: Backend
) -> WarmItem:
    if device.target is None or device.toolchain is None:
        return WarmItem(spec.program.name, device.name, skipped=device.detail)
    if spec.problem:
        return WarmItem(
            spec.program.name,
            str(device.target),
            spec.variant(defines),
            skipped=spec.problem,
            unread=True,
        )
    written = tuple(f"-D{name}={value}" if value else f"-D{name}" for name, value in defines)
    variant = spec.variant(defines)
    request = BuildRequest(
        program=spec.program,
        target=device.target,
        options=(*spec.options, *written),
        include_dirs=(*spec.include_dirs, *include_dirs(spec.program.source, spec.checks)),
        artifact_kind=backend.artifact_kind(device.target),
        name_expressions=spec.name_expressions,
        local_sizes=spec.local_sizes,
        headers=spec.headers,
        cwd=spec.directory,
        variant=variant,
        checks=spec.checks,
    )
    return WarmItem(spec.program.name, str(device.target), variant, request, device.toolchain)


def _why_none(backend: str, devices: Sequence[Device], targets: Sequence[str]) -> str:
    if targets:
        return f"no target of {backend} was given; add --target {backend}:..."
    if backend == "cuda":
        return "this machine has no CUDA device; name an architecture, such as --target cuda:sm_90"
    if backend == "hip" and any(device.target for device in devices if device.backend == backend):
        return "HIP programs are built for named architectures; name one, such as --target hip:gfx90a"
    reasons = "; ".join(device.detail for device in devices if device.backend == backend)
    return reasons or "this machine has no OpenCL device; run 'gpucache devices'"


def _missed_item(
    one: MissedRequest,
    devices: Sequence[Device],
    backends: Backends,
    environ: Mapping[str, str],
    local_sizes: tuple[tuple[int, ...], ...],
) -> WarmItem:
    request, variant = one.request, one.key.short
    name, target = request.program.name, str(request.target)
    device = next((row for row in devices if row.target == request.target and row.toolchain), None)
    if device is None or device.toolchain is None:
        return WarmItem(name, target, variant, skipped="its target is not on this machine")
    backend = backends[request.target.backend]
    if changed := _changed_variables(backend, device.toolchain, environ, one.environment):
        return WarmItem(
            name,
            target,
            variant,
            skipped=f"it was wanted with another {changed}; set it as the program has it",
        )
    request = request._replace(local_sizes=tuple(dict.fromkeys((*request.local_sizes, *local_sizes))))
    return WarmItem(name, target, variant, request, device.toolchain)


def in_vain(item: WarmItem, prepared: Prepared, recorded: Closure) -> str:
    """Why this machine would build a recorded request under a key that no program uses; empty if not."""
    now = prepared.closure
    if prepared.compilation.holds_paths and item.moved and prepared.is_bound:
        return (
            "its build options put the places of its files into the artifact, so it would hit nowhere else; "
            "warm it where it runs"
        )
    if (now.includes, now.resolution) == (recorded.includes, recorded.resolution):
        return ""
    names = sorted({include.name for include in {*now.includes} ^ {*recorded.includes}})
    which = f"the header {names[0]!r} is" if names else "its headers are"
    return f"{which} not found as where it was recorded; warm it from its own sources"
