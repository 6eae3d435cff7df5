"""Fill the cache before it is needed: every program for every target and variant.

Owns the plan (pure), and the run: what is there is a hit in this process, the rest is compiled in
workers, retried once when a worker dies, then kept on the poison list.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from time import time_ns

from gpucache.backends.interface import Backend
from gpucache.checks import include_dirs
from gpucache.engine.explain import explain, is_poisoned, process_record
from gpucache.engine.layers import Layers
from gpucache.engine.lookup import LOG_LIMIT, check_required, find
from gpucache.engine.pool import Bounds, Died, Done, Failed, run_isolated
from gpucache.engine.prepare import Prepared, lacks_kernels, prepare
from gpucache.engine.targets import default_devices, select_target
from gpucache.errors import CompileError, GpucacheError
from gpucache.manifest import ProgramSpec
from gpucache.model import BuildRequest, CacheKey, Device, Toolchain
from gpucache.outcomes import Built, Hit, Verdict, WarmOutcome, WarmResult
from gpucache.store.interface import Event

Backends = Mapping[str, Backend]


@dataclass(frozen=True, slots=True)
class WarmItem:
    """One build to be made, or the reason why it cannot be tried."""

    program: str
    target: str
    variant: str = ""
    request: BuildRequest | None = None
    toolchain: Toolchain | None = None
    skipped: str = ""

    @property
    def name(self) -> "Named":
        """What tells it from the others."""
        return self.program, self.target, self.variant


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is handed: plain values."""

    request: BuildRequest
    toolchain: Toolchain
    wait_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands: for a live display."""

    done: int
    total: int
    running: tuple["Named", ...]


Build = Callable[[Job], Hit | Built]
Named = tuple[str, str, str]
"""An item by program, target and variant."""


def needed_backends(specs: Sequence[ProgramSpec], targets: Sequence[str], backends: Backends) -> list[str]:
    """The backends whose devices a plan needs to know, so that no other driver is asked."""
    languages = {_backend(spec.program.language, backends).name for spec in specs}
    named = (text.partition(":")[0] for spec in specs for text in targets or spec.targets)
    return sorted(languages | {name for name in named if name in backends})


def interrupted(
    items: Sequence[WarmItem], outcomes: Sequence[WarmOutcome], running: Collection["Named"]
) -> list[WarmOutcome]:
    """An outcome for every item that a run was stopped before, or at."""
    settled = {(one.program, one.target, one.variant) for one in outcomes}
    told = {True: "it was being compiled", False: "it was not reached"}
    return [
        WarmOutcome(*item.name[:2], WarmResult.INTERRUPTED, item.variant, reason=told[item.name in running])
        for item in items
        if item.name not in settled
    ]


def count(layers: Layers, outcomes: Sequence[WarmOutcome]) -> None:
    """Write down how many items of a run were hits and how many had to be built."""
    hits = sum(outcome.result is WarmResult.HIT for outcome in outcomes)
    misses = sum(outcome.result in (WarmResult.BUILT, WarmResult.FAILED) for outcome in outcomes)
    if layers.target is not None and hits + misses:
        layers.target.journal(process_record(layers, hits, misses, time_ns()))


def settled(layers: Layers, outcomes: Iterable[WarmOutcome]) -> Iterator[WarmOutcome]:
    """The outcomes as the cache holds them at the end of a run.

    Each hit and each build has the size of its entry on disk; what is not there any more is missing.
    """
    for outcome in outcomes:
        if outcome.key is None or outcome.result not in (WarmResult.HIT, WarmResult.BUILT):
            yield outcome
            continue
        key = CacheKey(outcome.key)
        found = next(filter(None, (store.look_at(key) for store in layers.on_disk())), None)
        if found is not None:
            yield replace(outcome, size_bytes=found.allocated_bytes)
            continue
        was = "built" if outcome.result is WarmResult.BUILT else "there"
        bounded = layers.trim is not None
        why = (
            "removed again to keep the cache under its limit; raise GPUCACHE_MAX_SIZE"
            if bounded
            else "removed by somebody else before this run ended; warm again"
        )
        yield replace(
            outcome,
            result=WarmResult.MISSING,
            size_bytes=None,
            reason=f"it was {was}, and {why}",
            verdict=Verdict.EVICTED,
        )


def plan_warm(
    specs: Iterable[ProgramSpec], devices: Sequence[Device], targets: Sequence[str], backends: Backends
) -> list[WarmItem]:
    """Every build of every program; ``targets`` from the command line win over the manifest's.

    Raises TargetError or NoDeviceError for a target that cannot be meant.
    """
    return [item for spec in specs for item in _items(spec, devices, targets or spec.targets, backends)]


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
    return next(backend for backend in backends.values() if backend.language is language)


def _item(
    spec: ProgramSpec, device: Device, defines: Sequence[tuple[str, str]], backend: Backend
) -> WarmItem:
    if device.target is None or device.toolchain is None:
        return WarmItem(spec.program.name, device.name, skipped=device.detail)
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
        return f"none of the targets asked for is {backend}'s; add --target {backend}:..."
    if backend == "cuda":
        return (
            "no CUDA device is here; name an architecture, such as --target cuda:sm_90, to build without one"
        )
    reasons = "; ".join(device.detail for device in devices if device.backend == backend)
    return (
        reasons or "no OpenCL device is here; 'pip install gpucache[embedded]' brings one that needs no GPU"
    )


def run_warm(
    items: Sequence[WarmItem],
    backends: Backends,
    layers: Layers,
    environ: Mapping[str, str],
    build: Build,
    bounds: Bounds,
    *,
    check: bool = False,
    retry_poisoned: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Generator[WarmOutcome]:
    """Each item's outcome as it is known: hits first, then what workers built."""
    pending: list[tuple[WarmItem, Prepared]] = []
    for item in items:
        outcome = _settle(
            item, backends, layers, environ, bounds.timeout_s, check=check, retry_poisoned=retry_poisoned
        )
        if isinstance(outcome, WarmOutcome):
            yield outcome
        else:
            pending.append((item, outcome))
    if pending:
        yield from _compile(pending, layers, build, bounds, progress)


def _settle(
    item: WarmItem,
    backends: Backends,
    layers: Layers,
    environ: Mapping[str, str],
    timeout_s: float,
    *,
    check: bool,
    retry_poisoned: bool,
) -> WarmOutcome | Prepared:
    """What can be said without compiling; otherwise the item made ready for it."""
    if item.request is None or item.toolchain is None:
        return WarmOutcome(item.program, item.target, WarmResult.SKIPPED, item.variant, reason=item.skipped)
    try:
        backend, memos = backends[item.request.target.backend], replace(layers, read_only=check)
        prepared = prepare(backend, item.request, item.toolchain, environ, memos)
    except GpucacheError as error:
        return _outcome(item, WarmResult.FAILED, reason=str(error))
    found = find(layers, prepared, whole=True)
    if isinstance(found, Hit):
        return _hit(item, prepared, found)
    poisoned = not retry_poisoned and is_poisoned(layers, prepared, timeout_s)
    if not (check or poisoned or layers.require) and prepared.refusal is None:
        return prepared  # its worker builds it, and says why it had to
    miss = explain(layers, prepared, found)
    if miss.verdict is Verdict.UNCACHEABLE:
        return _outcome(item, WarmResult.FAILED, reason=miss.detail, verdict=miss.verdict)
    if poisoned and miss.verdict is Verdict.POISONED:
        return _outcome(
            item, WarmResult.POISONED, prepared=prepared, reason=miss.detail, verdict=miss.verdict
        )
    if check:
        reason = f"{miss.verdict}: {miss.detail}"
        return _outcome(item, WarmResult.MISSING, prepared=prepared, reason=reason, verdict=miss.verdict)
    check_required(layers, prepared, miss)
    return prepared


class _Tally:
    """How far a run is, told to whoever watches."""

    def __init__(self, total: int, progress: Callable[[Progress], None]) -> None:
        self.done, self._total, self._progress = 0, total, progress

    def running(self, now: "Sequence[_Numbered]") -> None:
        """Tell what is being compiled."""
        self._progress(Progress(self.done, self._total, tuple(numbered.name for numbered in now)))


def _compile(
    pending: Sequence[tuple[WarmItem, Prepared]],
    layers: Layers,
    build: Build,
    bounds: Bounds,
    progress: Callable[[Progress], None],
) -> Iterator[WarmOutcome]:
    """Compile in workers; what a worker died of is tried once more, then given up."""
    tally = _Tally(len(pending), progress)
    again: list[tuple[WarmItem, Prepared]] = []
    for item, prepared, answer in _round(pending, build, bounds, tally):
        if isinstance(answer, Died):
            again.append((item, prepared))
        else:
            tally.done += 1
            yield _answered(item, prepared, layers, answer)
    for item, prepared, answer in _round(again, build, bounds, tally):
        tally.done += 1
        yield _answered(item, prepared, layers, answer)


def _round(
    pending: Sequence[tuple[WarmItem, Prepared]], build: Build, bounds: Bounds, tally: _Tally
) -> "Iterator[tuple[WarmItem, Prepared, Done[Hit | Built] | Failed | Died]]":
    bounds = replace(bounds, watched=True, queued=True)
    # A compiler that builds late is told the local sizes through a variable that PoCL reads once in a
    # process, so each of its programs gets a process of its own.
    for late, own in ((False, bounds), (True, replace(bounds, fresh=True))):
        some = [pair for pair in pending if pair[1].compilation.late is late]
        jobs = [_Numbered(index, item.name, _job(item, own)) for index, (item, _) in enumerate(some)]
        if jobs:
            for numbered, answer in run_isolated(_Call(build), jobs, own, tally.running):
                yield *some[numbered.index], answer


@dataclass(frozen=True, slots=True)
class _Numbered:
    index: int
    name: Named
    job: Job


@dataclass(frozen=True, slots=True)
class _Call:
    """The build function over numbered jobs, picklable."""

    build: Build

    def __call__(self, numbered: _Numbered) -> Hit | Built:
        return self.build(numbered.job)


def _answered(
    item: WarmItem, prepared: Prepared, layers: Layers, answer: Done[Hit | Built] | Failed | Died
) -> WarmOutcome:
    if isinstance(answer, Died):
        retry = "--retry or a longer --timeout" if answer.limit_s else "--retry"
        reason = (
            f"{answer.reason}, twice; it is left out for a week, until its key changes, or {retry} is given"
        )
        _record_poison(layers, prepared, answer)
        return _outcome(item, WarmResult.FAILED, prepared=prepared, reason=reason)
    if isinstance(answer, Failed):
        error = answer.error
        log = error.log[:LOG_LIMIT] if isinstance(error, CompileError) else ""
        reason = str(error) if isinstance(error, OSError) else f"unexpected {error}"
        reason = error.message if isinstance(error, GpucacheError) else reason
        return _outcome(item, WarmResult.FAILED, prepared=prepared, reason=reason, log=log)
    if isinstance(answer.value, Hit):
        return _hit(item, prepared, answer.value)
    built = answer.value
    if built.key is None:
        uncacheable = built.miss.verdict is Verdict.UNCACHEABLE
        reason = built.note if uncacheable else f"it compiled, but {built.note}"
        verdict = built.miss.verdict if uncacheable else None
        return _outcome(item, WarmResult.FAILED, prepared=prepared, reason=reason, verdict=verdict)
    return WarmOutcome(
        item.program,
        item.target,
        WarmResult.BUILT,
        item.variant,
        key=str(built.key),
        compile_ns=built.artifact.compile_ns,
        reason=built.miss.detail if built.miss.verdict is not Verdict.NEVER_BUILT else "",
        log=built.artifact.build_log[:LOG_LIMIT],
        verdict=built.miss.verdict,
        lacks_kernels=lacks_kernels(prepared, built.artifact.payload),
    )


def _record_poison(layers: Layers, prepared: Prepared, death: Died) -> None:
    if layers.target is not None:
        where = (str(prepared.key), str(prepared.request.target))
        event = Event(time_ns(), "poisoned", *where, why=death.reason, limit_s=death.limit_s)
        layers.target.record(prepared.request.program.name, event)


def _hit(item: WarmItem, prepared: Prepared, hit: Hit) -> WarmOutcome:
    return WarmOutcome(
        item.program,
        item.target,
        WarmResult.HIT,
        item.variant,
        key=str(hit.key),
        compile_ns=hit.head.compile_ns,
        lacks_kernels=lacks_kernels(prepared, hit.payload),
    )


def _outcome(
    item: WarmItem,
    result: WarmResult,
    *,
    reason: str,
    prepared: Prepared | None = None,
    log: str = "",
    verdict: Verdict | None = None,
) -> WarmOutcome:
    key = str(prepared.key) if prepared is not None else None
    return WarmOutcome(item.program, item.target, result, item.variant, key, None, None, reason, log, verdict)


def _job(item: WarmItem, bounds: Bounds) -> Job:
    if item.request is None or item.toolchain is None:
        raise ValueError("an item that is skipped has no job")
    # Half of the time may go by waiting for whoever builds the same, half is for building it here.
    return Job(item.request, item.toolchain, bounds.timeout_s / 2)
