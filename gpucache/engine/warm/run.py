"""A run of ``warm``: hits are found in this process, the rest is built in workers.

Owns the ways to name the items (programs, missed requests, a recording), the outcome of each item, also
of one that an interrupted run did not reach, and the lines in the journal at the end. Must not know how a
program is compiled.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.answers.lookup import Hit, Verdict
from gpucache.answers.warm import WarmOutcome, WarmResult
from gpucache.engine.hits import find_all
from gpucache.engine.machine import find_machine, machine_for, select_target, told_choice
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.stores import NoEntry, Stores
from gpucache.engine.warm.plan import (
    Backends,
    Build,
    Named,
    Progress,
    WarmItem,
    in_vain,
    plan_missed,
    plan_recorded,
    plan_warm,
)
from gpucache.errors import CacheUnusableError, GpucacheError, SourceError
from gpucache.host.interrupts import disarm
from gpucache.model import CacheKey, Device, Entry, Target
from gpucache.store.interface import MissedRequest
from gpucache.units import format_count

if TYPE_CHECKING:
    from gpucache.engine.machine import Machine
    from gpucache.engine.workers.clusters import Cluster
    from gpucache.manifest import ProgramSpec
    from gpucache.recording.reading import RecordingFolder
    from gpucache.settings import Settings
    from gpucache.store.directory import DirectoryStore

_TOGETHER = 64
"""How many items are looked up at a time: a store on another machine is asked for all of them at once."""
_FOR_A_RUN = ("gpucache.engine.warm.rounds", "gpucache.answers.warm")
"""Modules that are imported while drivers are probed, as both take equally long."""
_ABSENT = "the recording keeps digests and no sources; ask with --check, or record without --digests-only"


@dataclass(frozen=True, slots=True)
class Session:
    """How a run treats its items."""

    opened: Callable[[], Stores]
    backends: Backends
    environ: Mapping[str, str]
    progress: Callable[[Progress], None]
    jobs: int | None = None
    """How many workers; None for as many as the machine has room for."""
    timeout_s: float = 300.0
    check: bool = False
    retry_poisoned: bool = False
    build: Build | None = None
    """The function that a worker runs; None to publish builds."""
    cluster: "Cluster | None" = None
    """Whose workers build; None for workers of this run on this machine."""

    def outcomes(self, items: Sequence[WarmItem]) -> list[WarmOutcome]:
        """The outcome of each item, in their order; an interrupt ends the run and loses none of them."""
        stores = self.opened()
        if self.check:
            stores = stores._replace(read_only=True)
        outcomes: list[WarmOutcome] = []
        running: list[Named] = []

        run = self.run(stores, items, running)
        try:
            for outcome in run:
                outcomes.append(outcome)
        except KeyboardInterrupt:
            disarm()
            run.close()
            outcomes += interrupted(items, outcomes, running)
        if not self.check:
            _send(stores, outcomes)
            if stores.trim is not None:
                stores.trim()
        order = {item.name: number for number, item in enumerate(items)}
        return sorted(as_kept(stores, outcomes), key=lambda one: order[one.program, one.target, one.variant])

    def run(self, stores: Stores, items: Sequence[WarmItem], running: list[Named]) -> Generator[WarmOutcome]:
        """The outcome of each item as soon as it is known: hits first, then the builds of workers.

        ``running`` has the names of those that are being built.
        """

        def progress(now: Progress) -> None:
            running[:] = now.running
            self.progress(now)

        pending: list[tuple[WarmItem, Prepared]] = []
        for begin in range(0, len(items), _TOGETHER):
            for item, outcome in _without_compiling(self, stores, items[begin : begin + _TOGETHER]):
                if isinstance(outcome, WarmOutcome):
                    yield outcome
                else:
                    pending.append((item, outcome))
        if not pending:
            return
        from gpucache.engine.warm.rounds import (
            Engine,
            build_job,
            in_workers,  # its pool takes time to import
            round_here,
        )
        from gpucache.engine.workers.capacity import memory_share, worker_count
        from gpucache.engine.workers.pool import Bounds

        workers = worker_count(len(pending)) if self.jobs is None else self.jobs
        bounds = Bounds(jobs=workers, timeout_s=self.timeout_s, memory_bytes=memory_share(workers))
        engine: Engine = partial(round_here, self.build or partial(build_job, self.opened))
        if self.cluster is not None:
            from gpucache.engine.warm.elsewhere import Elsewhere

            engine = Elsewhere(self.cluster, stores, self.jobs).round
        yield from in_workers(pending, stores, engine, bounds, progress)


@dataclass(frozen=True, slots=True)
class Warming:
    """The options of a run of any items."""

    settings: "Settings"
    open_store: "Callable[[Settings], DirectoryStore]"
    open_stores: "Callable[[Settings], Stores]"
    backends: Backends
    say: Callable[..., object]
    progress: Callable[[Progress], None]
    cluster: "Cluster | None" = None
    """Whose workers build; None for workers of this run on this machine."""
    jobs: int | None = None
    timeout_s: float = 300.0
    check: bool = False
    retry_poisoned: bool = False
    part: tuple[int, int] = (1, 1)
    """The part of all items that is built, and the number of parts."""

    def machine(self, here: "Callable[[], Machine]", targets: Sequence[str]) -> "Machine":
        """The machine to build for: that of the cluster's workers, if there is a cluster."""
        if self.cluster is None:
            return here()
        machine = self.cluster.machine
        chosen = filter(None, (told_choice(one, machine.devices) for one in targets))
        return machine._replace(notes=(*machine.notes, *chosen))

    def session(self, machine: "Machine", *, systems: bool = True) -> Session:
        """The run on a machine; without ``systems`` it has the user's root only."""
        self.say(*machine.notes if systems else ())
        settings = self.settings if systems else self.settings._replace(system_dirs=())
        how = (self.jobs, self.timeout_s, self.check, self.retry_poisoned)
        opened = partial(self.open_stores, settings)
        environ = machine.environment
        return Session(opened, self.backends, environ, self.progress, *how, cluster=self.cluster)

    def outcomes(self, session: Session, items: Sequence[WarmItem]) -> list[WarmOutcome]:
        """The outcomes of some items, after the root was tried if any of them may be built."""
        if not self.check and any(item.request is not None for item in items):
            self.open_store(self.settings).prepare()
        return session.outcomes([item for item in items if item.is_of(*self.part)])

    def require_root(self) -> None:
        """Raise CacheUnusableError for an unusable root, before anything else is said."""
        settings = self.settings
        if self.check and settings.root is None and settings.system_dirs:
            return  # a user without a home may still check a shared cache
        self.open_store(settings)
        stops = (("GPUCACHE_READ_ONLY", settings.read_only), ("GPUCACHE_DISABLE", settings.disabled))
        for name, stop in stops if not self.check else ():
            if stop:
                raise CacheUnusableError(
                    f"{name} is set, so nothing could be kept; unset it, or ask with --check"
                )


def warm_programs(
    run: Warming, specs: "Sequence[ProgramSpec]", targets: Sequence[str], profile: Path | None
) -> tuple[list[WarmOutcome], "Machine"]:
    """Warm programs that were read; and the machine that they were warmed for."""
    run.require_root()

    def meanwhile() -> None:
        for name in _FOR_A_RUN if not run.check else ():
            import_module(name)

    store = run.open_store(run.settings)
    here = run.machine(lambda: machine_for(specs, targets, profile, (), meanwhile, store), targets)
    session = run.session(here)
    return run.outcomes(session, plan_warm(specs, here.devices, targets, run.backends)), here


def warm_recordings(
    run: Warming, folders: Sequence[Path], targets: Sequence[str]
) -> "tuple[list[WarmOutcome], list[RecordingFolder], Sequence[Device]]":
    """Warm recordings, whose headers are laid out for the time of the run.

    Also returns those that could be read, and the devices that they were warmed for.
    """
    from gpucache.host.scratch import scratch
    from gpucache.recording.kernels import united
    from gpucache.recording.reading import replay

    run.require_root()
    recordings, failed = read_recordings(run, folders)
    rows = [row for one in recordings for row in one.recording.rows()]
    if any(one.kernels.anything for one in recordings):
        from gpucache.engine.warm.kernels import warm_kernels

        failed += warm_kernels(run, united(one.kernels for one in recordings), targets)
        others = [text for text in targets if Target.parse(text).backend in run.backends]
        rows, targets = ([] if targets and not others else rows), others
    if not rows:
        return failed, recordings, ()
    wanted = {Target.parse(text).backend for text in (*targets, *(build.target for build, _ in rows))}
    asked = sorted(wanted & run.backends.keys())
    here = run.machine(lambda: find_machine(None, asked, targets=targets), targets)
    session = run.session(here)
    with scratch("replay") as place:
        replayed = (
            one for number, found in enumerate(recordings) for one in replay(found, place / str(number))
        )
        items = plan_recorded(replayed, here.devices, targets, run.backends, here.environment)
        outcomes = run.outcomes(session, items)
    return failed + outcomes, recordings, here.devices


def read_recordings(
    run: Warming, folders: Sequence[Path]
) -> "tuple[list[RecordingFolder], list[WarmOutcome]]":
    """The recordings that can be read, and a failure for each part that cannot, as it cannot be looked up.

    Raises SourceError if a single one is named and is not a recording.
    """
    from gpucache.recording.reading import read_recording

    found: list[RecordingFolder] = []
    outcomes = []
    for folder in dict.fromkeys(folders):
        try:
            found.append(read_recording(folder))
        except SourceError as error:
            if len(folders) == 1:
                raise
            outcomes.append(WarmOutcome(str(folder), "", WarmResult.FAILED, reason=str(error)))
            continue
        damage, rows = found[-1].damage, found[-1].recording.rows()
        for one in damage:
            place = one.place if len(folders) == 1 else f"{folder}: {one.place}"
            outcomes.append(WarmOutcome(place, "", WarmResult.FAILED, reason=one.why))
        if not rows and not damage and not found[-1].kernels.anything:
            run.say(f"The recording {folder} is empty, so there is nothing to build.")
        if failed := sum(seen.failed for _, seen in rows):
            told = format_count(failed, "recorded build", "recorded builds")
            told += " failed in the program itself, and is left out; 'inspect --recording' shows which."
            run.say(told)
    return found, outcomes


def warm_missed(
    run: Warming,
    targets: Sequence[str] = (),
    local_sizes: Sequence[tuple[int, ...]] = (),
    keys: Collection[CacheKey] | None = None,
) -> tuple[list[WarmOutcome], list[MissedRequest], Sequence[Device]]:
    """Warm the requests that programs noted, or only those with some keys; also returns the requests
    and the devices."""
    run.require_root()
    store = run.open_store(run.settings)
    missed = store.missed.all()
    if not missed:
        run.say(f"No miss is noted in {store.root}.")
        return [], [], ()
    asked = sorted({one.request.target.backend for one in missed})
    here = run.machine(lambda: find_machine(None, asked, targets=targets), targets)
    chosen = [select_target(target, here.devices).target for target in targets]
    session, alone = run.session(here), run.session(here, systems=False)
    outcomes = build_missed(session, alone, store, here.devices, chosen, local_sizes, keys)
    return outcomes, missed, here.devices


def build_missed(
    session: Session,
    alone: Session,
    store: "DirectoryStore",
    devices: Sequence[Device],
    targets: Collection[Target | None] = (),
    local_sizes: Sequence[tuple[int, ...]] = (),
    keys: Collection[CacheKey] | None = None,
) -> list[WarmOutcome]:
    """Build the requests that missed, as the only process that does, and forget those that have an entry.

    With ``keys`` or ``targets`` nothing else is built. A request that is noted meanwhile is built too: a
    program that ends meanwhile starts no other process for it. An entry of a system root that the driver
    rejected would be found there again, so its request is built with ``alone``, which has the user's root
    only. Raises CacheUnusableError if another process builds.
    """
    tried: set[CacheKey] = set()

    def fresh() -> list[MissedRequest]:
        wanted = (one for one in store.missed.all() if one.request.target in targets or not targets)
        return [one for one in wanted if one.key not in tried and (keys is None or one.key in keys)]

    def outcomes_of(missed: Sequence[MissedRequest]) -> list[WarmOutcome]:
        outcomes: list[WarmOutcome] = []
        for rejected, how in ((False, session), (True, alone)):
            some = [one for one in missed if one.rejected is rejected]
            items = plan_missed(some, devices, how.backends, how.environ, local_sizes)
            outcomes += how.outcomes(items) if items else []
        return outcomes

    if session.check:
        return outcomes_of(fresh())
    outcomes: list[WarmOutcome] = []
    with store.build_missed() as first:
        if not first:
            raise CacheUnusableError(
                f"another process builds the misses of {store.root} now; run this again when it has ended"
            )
        while (missed := fresh()) and not any(one.result is WarmResult.INTERRUPTED for one in outcomes):
            tried |= {one.key for one in missed}
            done = outcomes_of(missed)
            forget_built(store, missed, done)
            outcomes += done
    return outcomes


def _send(stores: Stores, outcomes: Iterable[WarmOutcome]) -> None:
    """Send the builds to the store on another machine, if it takes anything."""
    if stores.remote is None or stores.target is None or not stores.remote().writes:
        return
    remote = stores.remote()
    for outcome in outcomes:
        if outcome.result is WarmResult.BUILT and outcome.key is not None:
            scanned = stores.target.look_at(CacheKey(outcome.key))
            entry = scanned and stores.target.check(scanned)
            if isinstance(entry, Entry):
                remote.send(entry)
    remote.flush()


def _without_compiling(
    session: Session, stores: Stores, items: Sequence[WarmItem]
) -> Iterator[tuple[WarmItem, WarmOutcome | Prepared]]:
    """For each item its outcome if nothing has to be compiled, else the prepared item."""
    asked: list[tuple[WarmItem, Prepared]] = []
    for item in items:
        prepared = prepare_item(session, stores, item)
        if isinstance(prepared, WarmOutcome):
            yield item, prepared
        else:
            asked.append((item, prepared))
    for (item, prepared), found in zip(
        asked, find_all(stores, [one for _, one in asked], whole=True), strict=True
    ):
        yield (
            item,
            item.hit(prepared, found)
            if isinstance(found, Hit)
            else _missed(session, stores, item, prepared, found),
        )


def prepare_item(session: Session, stores: Stores, item: WarmItem) -> WarmOutcome | Prepared:
    """An item prepared for a lookup, or the outcome of one that cannot be looked up."""
    if item.request is None or item.toolchain is None:
        result = WarmResult.FAILED if item.unread else WarmResult.SKIPPED
        return item.outcome(result, reason=item.skipped)
    try:
        backend = session.backends[item.request.target.backend]
        known = item.known if item.absent else None
        prepared = prepare(backend, item.request, item.toolchain, session.environ, stores, known)
    except GpucacheError as error:
        return item.outcome(WarmResult.FAILED, reason=str(error))
    if item.known is not None and (why := in_vain(item, prepared, item.known.closure)):
        return item.outcome(WarmResult.FAILED, reason=why)
    return prepared


def _missed(
    session: Session, stores: Stores, item: WarmItem, prepared: Prepared, found: NoEntry
) -> WarmOutcome | Prepared:
    """For an item without an entry: its outcome if it must not be built, else the item."""
    from gpucache.engine.explain import explain, is_poisoned  # which no hit needs
    from gpucache.engine.lookup import require_hit

    def poisoned() -> bool:
        return not session.retry_poisoned and is_poisoned(stores, prepared, session.timeout_s)

    if item.absent and not session.check:
        return item.outcome(WarmResult.SKIPPED, reason=_ABSENT)
    if not (session.check or stores.require or poisoned()) and prepared.refusal is None:
        return prepared  # its worker explains the miss and builds it
    miss = explain(stores, prepared, found)
    if miss.verdict is Verdict.UNCACHEABLE:
        return item.outcome(WarmResult.FAILED, reason=miss.detail, verdict=miss.verdict)
    if miss.verdict is Verdict.POISONED and poisoned():
        return item.outcome(WarmResult.POISONED, prepared, reason=miss.detail, verdict=miss.verdict)
    if session.check:
        return item.missing(prepared, miss)
    require_hit(stores, prepared, miss)
    return prepared


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


def as_kept(stores: Stores, outcomes: Iterable[WarmOutcome]) -> Iterator[WarmOutcome]:
    """The outcomes, compared with the cache at the end of a run.

    A hit or a build gets the size of its entry on disk; if the entry is gone, its outcome becomes missing.
    """
    for outcome in outcomes:
        if outcome.key is None or outcome.result not in (WarmResult.HIT, WarmResult.BUILT):
            yield outcome
            continue
        key = CacheKey(outcome.key)
        found = next(filter(None, (store.look_at(key) for store in stores.on_disk())), None)
        if found is not None:
            yield replace(outcome, size_bytes=found.allocated_bytes)
            continue
        if outcome.remote:
            yield outcome  # and nothing is kept
            continue
        was = "built" if outcome.result is WarmResult.BUILT else "there"
        bounded = stores.trim is not None
        why = (
            "removed again to keep the cache under its limit; raise GPUCACHE_MAX_SIZE"
            if bounded
            else "removed by another process before this run ended; warm again"
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
    there = {
        (outcome.program, outcome.target, outcome.variant)
        for outcome in outcomes
        if outcome.result in (WarmResult.BUILT, WarmResult.HIT)
    }
    for one in missed:
        if (one.request.program.name, str(one.request.target), one.key.short) in there:
            store.missed.forget(one.key)
