"""A run of ``warm``: hits are found in this process, the rest is built in workers.

Owns the outcome of each item, also of one that an interrupted run did not reach, and what is written to the
journal at the end. Must not know how anything is compiled.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpucache.answers.lookup import Hit, Verdict
from gpucache.answers.warm import WarmOutcome, WarmResult
from gpucache.closures import Closure
from gpucache.engine.journal import note_process
from gpucache.engine.lookup import find, require_hit
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.store_layers import Layers
from gpucache.engine.warm.plan import Backends, Build, Named, Progress, WarmItem
from gpucache.errors import GpucacheError
from gpucache.model import CacheKey
from gpucache.store.interface import MissedRequest

if TYPE_CHECKING:
    from gpucache.engine.workers.pool import Bounds
    from gpucache.store.directory import DirectoryStore

_ABSENT = "the recording keeps digests and no sources; ask with --check, or record without --digests-only"


def run_warm(
    items: Sequence[WarmItem],
    backends: Backends,
    layers: Layers,
    environ: Mapping[str, str],
    build: Build,
    bounds: "Callable[[int], Bounds]",
    timeout_s: float,
    *,
    check: bool = False,
    retry_poisoned: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Generator[WarmOutcome]:
    """The outcome of each item as soon as it is known: hits first, then what workers build.

    ``bounds`` returns what workers may use for a number of items.
    """
    pending: list[tuple[WarmItem, Prepared]] = []
    for item in items:
        outcome = _without_compiling(
            item, backends, layers, environ, timeout_s, check=check, retry_poisoned=retry_poisoned
        )
        if isinstance(outcome, WarmOutcome):
            yield outcome
        else:
            pending.append((item, outcome))
    if pending:
        from gpucache.engine.warm.rounds import in_workers  # its pool takes time to import

        yield from in_workers(pending, layers, build, bounds(len(pending)), progress)


def _without_compiling(
    item: WarmItem,
    backends: Backends,
    layers: Layers,
    environ: Mapping[str, str],
    timeout_s: float,
    *,
    check: bool,
    retry_poisoned: bool,
) -> WarmOutcome | Prepared:
    """The outcome of an item that needs no compiling; else the item prepared for it."""
    if item.request is None or item.toolchain is None:
        result = WarmResult.FAILED if item.unread else WarmResult.SKIPPED
        return item.outcome(result, reason=item.skipped)
    try:
        backend, memos = backends[item.request.target.backend], layers._replace(read_only=check)
        known = item.known if item.absent else None
        prepared = prepare(backend, item.request, item.toolchain, environ, memos, known)
    except GpucacheError as error:
        return item.outcome(WarmResult.FAILED, reason=str(error))
    if item.known is not None and (why := _in_vain(item, prepared, item.known.closure)):
        return item.outcome(WarmResult.FAILED, reason=why)
    found = find(layers, prepared, whole=True)
    if isinstance(found, Hit):
        return item.hit(prepared, found)
    from gpucache.engine.explain import explain, is_poisoned  # which no hit needs

    poisoned = not retry_poisoned and is_poisoned(layers, prepared, timeout_s)
    if item.absent and not check:
        return item.outcome(WarmResult.SKIPPED, reason=_ABSENT)
    if not (check or poisoned or layers.require) and prepared.refusal is None:
        return prepared  # its worker explains the miss and builds it
    miss = explain(layers, prepared, found)
    if miss.verdict is Verdict.UNCACHEABLE:
        return item.outcome(WarmResult.FAILED, reason=miss.detail, verdict=miss.verdict)
    if poisoned and miss.verdict is Verdict.POISONED:
        return item.outcome(WarmResult.POISONED, prepared=prepared, reason=miss.detail, verdict=miss.verdict)
    if check:
        reason = f"{miss.verdict}: {miss.detail}"
        return item.outcome(WarmResult.MISSING, prepared=prepared, reason=reason, verdict=miss.verdict)
    require_hit(layers, prepared, miss)
    return prepared


def _in_vain(item: WarmItem, prepared: Prepared, recorded: Closure) -> str:
    """Why what was recorded would be built here under a key that nobody asks for; empty if it would not."""
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
    return f"{which} not found here as where it was recorded; warm it from its own sources"


def interrupted(
    items: Sequence[WarmItem], outcomes: Sequence[WarmOutcome], running: Collection[Named]
) -> list[WarmOutcome]:
    """An outcome for every item that was being built or was not reached when a run was stopped."""
    answered = {(one.program, one.target, one.variant) for one in outcomes}
    told = {True: "it was being compiled", False: "it was not reached"}
    return [
        item.outcome(WarmResult.INTERRUPTED, reason=told[item.name in running])
        for item in items
        if item.name not in answered
    ]


def count(layers: Layers, outcomes: Sequence[WarmOutcome]) -> None:
    """Write down how many items of a run were hits and how many had to be built."""
    hits = sum(outcome.result is WarmResult.HIT for outcome in outcomes)
    misses = sum(outcome.result in (WarmResult.BUILT, WarmResult.FAILED) for outcome in outcomes)
    if hits + misses:
        note_process(layers, hits, misses)


def as_kept(layers: Layers, outcomes: Iterable[WarmOutcome]) -> Iterator[WarmOutcome]:
    """The outcomes, compared with the cache at the end of a run.

    A hit or a build gets the size of its entry on disk; if the entry is gone, its outcome becomes missing.
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


def forget_built(
    store: "DirectoryStore", missed: Sequence[MissedRequest], outcomes: Sequence[WarmOutcome]
) -> None:
    """Remove the missed requests that have an entry now."""
    there = {
        (outcome.program, outcome.target, outcome.variant)
        for outcome in outcomes
        if outcome.result in (WarmResult.BUILT, WarmResult.HIT)
    }
    for one in missed:
        if (one.request.program.name, str(one.request.target), one.key.short) in there:
            store.forget_missed(one.key)
