"""Pull: the entries of a store that caches lack and a machine's programs would hit, checked and restored.

Nothing that a store says is used before it was held to its form: a record that no trusted key signed is not
followed, bytes that differ from the record are not passed on, and a restored entry is judged by the
format of its cache first. Must not know the kind of store, or which systems there are.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache as cached
from pathlib import Path

from gpucache.answers.transfer import Immovable, Moved, Pulled, PullResult, Unsound
from gpucache.caches.interface import Cache
from gpucache.caches.portable import PortableEntry, Restored
from gpucache.errors import FormatError
from gpucache.remote.catalogue import (
    not_believed,
    objects_of,
    read_catalogue,
    read_objects,
    require_store,
    whole,
)
from gpucache.remote.machine import Machine, backends_of
from gpucache.remote.objects import Objects, Progress
from gpucache.remote.records import Record, Signed
from gpucache.remote.signing import TrustedKeys

Outcome = Pulled | Immovable | Unsound


def pull(
    store: Objects,
    caches: Sequence[Cache],
    *,
    trusted: TrustedKeys,
    machine: Callable[[Sequence[str] | None], Machine],
    dry_run: bool,
    progress: Progress,
) -> Iterator[Outcome]:
    """The outcome of each entry of the caches' systems; raises RemoteError if the store cannot be read.

    ``machine`` is called once if the store has entries of the caches, with the backends that know their
    facts, or None for all.
    """
    catalogue = require_store(store, read_catalogue(store, trusted))
    yield from catalogue.findings
    by_system: dict[str, dict[str, list[Signed]]] = {}
    for one in catalogue.records.values():
        by_system.setdefault(one.record.system, {}).setdefault(one.record.key, []).append(one)
    total = sum(len(by_system.get(cache.name, ())) for cache in caches)
    done = 0
    # Drivers are only asked about entries that are not there.
    known = cached(lambda: machine(backends_of(one.record for one in catalogue.records.values())))
    for cache in caches:
        if cache.name not in by_system:
            continue
        if cache.moving.why_not:
            yield Immovable(cache.name, cache.moving.why_not)
            continue
        wanted: list[Signed] = []
        of_cache = cached(
            lambda cache=cache: known().with_cache(cache.facts_here)._replace(untold=cache.moving.untold)
        )
        for outcome in _chosen(cache, by_system[cache.name], trusted, of_cache):
            if isinstance(outcome, Signed) and not dry_run:
                wanted.append(outcome)
                continue
            if isinstance(outcome, Signed):
                outcome = _outcome(outcome, of_cache(), PullResult.WOULD_PULL)
            done += 1
            yield outcome
        left = not dry_run and Path(cache.location().root).exists()  # of a pull that was killed
        fits = of_cache() if wanted else Machine()
        for outcome in _restored(cache, store, wanted, fits, trusted) if wanted or left else ():
            done += 1
            progress(done, total, outcome.entry.program or outcome.entry.key[:12])
            yield outcome


def _chosen(
    cache: Cache, by_key: Mapping[str, list[Signed]], trusted: TrustedKeys, machine: Callable[[], Machine]
) -> Iterator[Signed | Pulled]:
    """For each key the newest believed record that fits the machine, or why none is pulled.

    The machine is only asked about entries that are not there.
    """
    having = cache.having(by_key)

    def has(one: Signed) -> bool:
        return having(one.record.key, [file.name for file in one.record.files])

    for variants in by_key.values():
        variants.sort(key=lambda one: one.record.made_ns, reverse=True)
        if all(map(has, variants)):  # whoever signed them
            yield _outcome(variants[0], Machine(), PullResult.PRESENT)
            continue
        believed = [one for one in variants if one.is_believed(trusted)]
        if not believed:
            why = not_believed(variants[0].signer)
            yield _outcome(variants[0], machine(), PullResult.UNSIGNED, why)
        elif all(map(has, believed)):
            yield _outcome(believed[0], Machine(), PullResult.PRESENT)
        elif fitting := [one for one in believed if not machine().differences(one.record)]:
            there = has(fitting[0])
            yield _outcome(fitting[0], machine(), PullResult.PRESENT) if there else fitting[0]
        else:
            nearest = min(believed, key=lambda one: len(machine().differences(one.record)))
            yield _outcome(nearest, machine(), PullResult.DIFFERS)


def _restored(
    cache: Cache, store: Objects, wanted: Sequence[Signed], machine: Machine, trusted: TrustedKeys
) -> Iterator[Pulled]:
    fetched: deque[tuple[Signed, int]] = deque()
    damaged: deque[Pulled] = deque()
    pulled = set[str]()

    def entries() -> Iterator[PortableEntry]:
        """The entries, fetched in batches; what is none goes to ``damaged``, and the bytes that were received
        for each other one to ``fetched``."""
        for batch, data in read_objects(store, wanted):
            seen: set[str] = set()
            for one in batch:
                names = {name for name, _ in objects_of(one)}
                received = sum(len(data.get(name) or b"") for name in names - seen)
                seen |= names
                try:
                    entry = whole(one, data, trusted)
                except FormatError as error:
                    why = f"{error}; run 'gpucache verify {store.url} --repair', and push it again"
                    damaged.append(_outcome(one, machine, PullResult.DAMAGED, why))
                    continue
                fetched.append((one, received))
                yield entry

    for done in cache.restore(entries()):
        yield from _drained(damaged)
        record, received = fetched.popleft()
        if done.done:
            pulled.add(record.record.key)
        yield _outcome(record, machine, _result(done), done.reason, received)
    yield from _drained(damaged)
    for key, seen in cache.seen_now(pulled) if pulled else ():
        cache.sound.note(key, seen)


def _result(done: Restored) -> PullResult:
    if done.done or done.present:
        return PullResult.PULLED if done.done else PullResult.PRESENT
    if done.damaged or done.failed:
        return PullResult.DAMAGED if done.damaged else PullResult.FAILED
    return PullResult.REFUSED


def _outcome(
    one: Signed, machine: Machine, result: PullResult, reason: str = "", received_bytes: int = 0
) -> Pulled:
    record: Record = one.record
    moved = Moved(record.system, record.key, record.program, record.target, record.size_bytes)
    differs = machine.differences(record) if result is PullResult.DIFFERS else ()
    unknown = () if result is PullResult.PRESENT else machine.unknown(record)
    return Pulled(moved, result, reason, differs, unknown, one.signer, received_bytes)


def _drained(outcomes: deque[Pulled]) -> Iterator[Pulled]:
    while outcomes:
        yield outcomes.popleft()
