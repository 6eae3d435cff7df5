"""A run of ``warm``: what is there is a hit in this process, the rest is compiled in workers.

Owns what becomes of each item: a worker that dies is tried once more, and its item is then kept on the
poison list; an interrupted run says what it did not reach. Must not know how anything is compiled.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import time_ns

from gpucache.engine.explain import explain, is_poisoned, process_record
from gpucache.engine.layers import Layers
from gpucache.engine.lookup import LOG_LIMIT, check_required, find
from gpucache.engine.pool import Bounds, Died, Done, Failed, run_isolated
from gpucache.engine.prepare import Prepared, lacks_kernels, prepare
from gpucache.engine.warm.plan import Backends, Job, Named, WarmItem
from gpucache.errors import CompileError, GpucacheError
from gpucache.model import CacheKey
from gpucache.outcomes import Built, Hit, Verdict, WarmOutcome, WarmResult
from gpucache.store.interface import EntryStore, Event, MissedRequest


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands: for a live display."""

    done: int
    total: int
    running: tuple[Named, ...]


Build = Callable[[Job], Hit | Built]


def interrupted(
    items: Sequence[WarmItem], outcomes: Sequence[WarmOutcome], running: Collection[Named]
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


def forget_built(store: EntryStore, missed: Sequence[MissedRequest], outcomes: Sequence[WarmOutcome]) -> None:
    """Remove the notes of what is in the cache now."""
    there = {
        (outcome.program, outcome.target, outcome.variant)
        for outcome in outcomes
        if outcome.result in (WarmResult.BUILT, WarmResult.HIT)
    }
    for one in missed:
        if (one.request.program.name, str(one.request.target), one.key.short) in there:
            store.forget_missed(one.key)
