"""Whether a program would hit now, and if not why: answered without compiling anything.

Owns the three questions in their order: was the cache queried, which field differs, what was written
instead; and which of the caches between a program and its compiler serves it first. A foreign cache itself
says whether it is one of them and how it would respond. Must not know how a result is shown, or any single
foreign cache.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gpucache.answers.entries import CacheEntry, EntryReport
from gpucache.answers.lookup import Hit, Miss, Verdict
from gpucache.answers.why import Answer, Build, Reach, Reply, ReplyState, Served
from gpucache.caches.interface import Cache, OwnRoot
from gpucache.caches.places import Places
from gpucache.engine.explain import Record, phrases, record_of
from gpucache.engine.lookup import look_up
from gpucache.engine.machine import device_of
from gpucache.engine.prepare import prepare, request_of
from gpucache.engine.selection import matches_target, select
from gpucache.engine.stores import Stores
from gpucache.engine.warm.plan import Backends, WarmItem, plan_warm
from gpucache.errors import GpucacheError, UsageError
from gpucache.keys import SOURCE_NAME, difference
from gpucache.manifest import ProgramSpec
from gpucache.model import BuildRequest, CacheKey, Device, Toolchain
from gpucache.store.interface import MADE

_UNDER_RUN = (
    "'gpucache run --report FILE' shows whether the program hits, 'gpucache inspect --misses' why it missed"
)
Caches = Callable[[str], Sequence[Cache]]
"""The caches of one system that are on this machine; none if it has none."""
_WRITTEN_TOLD = 3
_ENTRIES_READ = 32
_MISSES_READ = 1000
"""The most entries that are read to find out how they were requested."""


def why(
    items: Sequence[WarmItem],
    backends: Backends,
    stores: Stores,
    environ: Mapping[str, str],
    directory: str | None = None,
) -> Iterator[Answer]:
    """The answer for each item; only reads.

    ``directory`` is the current directory of programs that do not name one, as some compilers search it.
    """
    consulted = tuple(str(store.root) for store in stores.on_disk())
    asked = stores._replace(memory=None)
    for item in items:
        if item.request is None or item.toolchain is None:
            yield _unasked(item, Miss(Verdict.NOT_CONSULTED, item.skipped))
            continue
        try:
            backend = backends[item.request.target.backend]
            anywhere = prepare(backend, item.request, item.toolchain, environ)
            running = _running(item.request, directory)
            prepared = anywhere
            if anywhere.compilation.rule.searches_cwd and running is not None:
                prepared = prepare(backend, running, item.toolchain, environ)
        except GpucacheError as error:
            yield _unasked(item, Miss(Verdict.UNCACHEABLE, str(error)))
            continue
        records = [record_of(store, prepared.request.program) for store in stores.on_disk()]
        built = sorted(
            {
                (Build(event.when_ns, event.key), record)
                for record in records
                for event in record.builds
                if event.target == item.target
            },
            key=lambda pair: pair[0],
            reverse=True,
        )
        yield Answer(
            item.program,
            item.target,
            item.variant,
            consulted,
            look_up(asked, prepared, whole=True),
            _newest(build for build, _ in built),
            _under_run(built),
            not_asked=stores.not_asked,
            directory=prepared.request.cwd if prepared.key != anywhere.key else None,
            elsewhere=look_up(asked, anywhere, whole=True) if prepared.key != anywhere.key else None,
        )


def _under_run(built: Sequence[tuple[Build, Record]]) -> tuple[Build, ...]:
    """The newest builds that a program requested from its compiler itself and whose entries still exist."""
    found = []
    for build, record in built[:_ENTRIES_READ]:
        detail = record.store.detail(CacheKey(build.key))
        if detail is not None and any(item.label == SOURCE_NAME for item in detail.key_fields):
            found.append(build)
    return _newest(found)


def _newest(builds: Iterable[Build]) -> tuple[Build, ...]:
    """The newest build of each of so many keys: a key can be built again after an eviction or damage."""
    by_key: dict[str, Build] = {}
    for build in builds:
        by_key.setdefault(build.key, build)
    return tuple(by_key.values())[:_WRITTEN_TOLD]


def plan_why(
    meant: Sequence[tuple[Sequence[ProgramSpec], Sequence[CacheEntry]]],
    devices: Sequence[Device],
    targets: Sequence[str],
    backends: Backends,
    own: OwnRoot | None,
) -> list[WarmItem]:
    """The requests of some programs, and of some entries of our own cache again."""
    items: list[WarmItem] = []
    for specs, entries in meant:
        items += plan_warm(specs, devices, targets, backends)
        if own is not None:
            items += items_of(entries, own.report, devices)
    return items


def entries_of(own: OwnRoot, word: str, targets: Sequence[str]) -> list[CacheEntry]:
    """The entries of our own cache that a word means, for any of some targets; raises UsageError for none."""
    known = {event.key for event in own.store.history.events(word) if event.what in MADE}
    recorded = [entry for key in sorted(known) for entry in own.find(key)]
    if targets:
        recorded = [one for one in recorded if any(matches_target(one, target) for target in targets)]
    if recorded:  # the record of a program names its entries, so the cache need not be searched
        return recorded
    try:
        [(_, entries)] = select([own], [word], targets)
        return list(entries)
    except UsageError as error:
        from gpucache.engine.inspect import recent_misses  # a word that names something needs none

        for miss in recent_misses(own.store.journal_tail(_MISSES_READ)):
            if miss["program"] == word:  # such as one that did not compile, or kills its compiler
                last = f"{miss['verdict']}: {miss['detail']}; 'gpucache inspect --misses' lists it"
                raise UsageError(f"no entry is of a program {word!r}, whose last miss is: {last}") from None
        raise UsageError(f"there is no source {word!r}, and {error}") from None


def items_of(
    entries: Sequence[CacheEntry], report: Callable[[CacheEntry], EntryReport], devices: Sequence[Device]
) -> list[WarmItem]:
    """The present requests of a program in place of its newest entries, from its own source file."""
    alike: dict[tuple[str, str, str], list[CacheEntry]] = {}
    for entry in sorted(entries, key=lambda one: one.created_ns):
        alike.setdefault((entry.program, entry.target, entry.variant), []).append(entry)
    return [_item(of[-1], len(of), report, devices) for of in alike.values()]


def compare(left: EntryReport, right: EntryReport) -> list[str]:
    """The differences of two entries in words; empty if their key fields are the same."""
    return phrases(difference(left.compared, right.compared))


def _running(request: BuildRequest, directory: str | None) -> BuildRequest | None:
    """The request of a program that runs in the directory of its relative paths, or in ``directory``."""
    place = request.cwd if request.cwd != "/" else directory
    return None if request.searches_cwd or place is None else request._replace(cwd=place, searches_cwd=True)


def _unasked(item: WarmItem, miss: Miss) -> Answer:
    return Answer(item.program, item.target, item.variant, (), miss)


def _item(
    entry: CacheEntry, alike: int, report: Callable[[CacheEntry], EntryReport], devices: Sequence[Device]
) -> WarmItem:
    device = device_of(entry, devices)
    if device is None or device.target is None or device.toolchain is None:
        return WarmItem(
            entry.program, entry.target, entry.variant, skipped="its target is not on this machine"
        )
    how = "with GPUCACHE_LOG=info the program says whether it hits"
    try:
        found = report(entry)
        if any(item.label == SOURCE_NAME for item in found.key_fields):
            how = _UNDER_RUN
        request = request_of(found, device.target, changed=True)
    except (GpucacheError, ValueError) as error:
        exist = f"{entry.key[:12]} exists" if alike == 1 else f"{entry.key[:12]} is the newest of {alike}"
        told = f"it cannot be looked up: {error}; its entry {exist}, and {how}"
        return WarmItem(entry.program, entry.target, entry.variant, skipped=told)
    return WarmItem(entry.program, entry.target, entry.variant, request, device.toolchain)


def replies(answer: Answer, item: WarmItem, systems: Sequence[Places], caches: Caches) -> tuple[Reply, ...]:
    """Our own reply and those of the caches below ours, in the order in which a program queries them."""
    hit = isinstance(answer.found, Hit)
    said = f"hit: {answer.found.key.short}" if isinstance(answer.found, Hit) else str(answer.found.verdict)
    first = Reply("gpucache", ReplyState.ANSWERS if hit else ReplyState.MISSES, said)
    if item.request is None or item.toolchain is None:
        return (first,)
    return (first, *_below(item.request, item.toolchain, systems, caches, answered=hit))


def _below(
    request: BuildRequest,
    toolchain: Toolchain,
    systems: Sequence[Places],
    caches: Caches,
    *,
    answered: bool,
) -> Iterator[Reply]:
    for system in systems:
        why_not = system.below.get(toolchain.implementation)
        if why_not is None:
            continue
        if why_not:
            yield Reply(system.name, ReplyState.NOT_ASKED, why_not)
            continue
        found = _ask(system, request, toolchain, caches(system.name))
        state = found.state
        if answered and state is ReplyState.ANSWERS:
            state = ReplyState.NOT_ASKED
        answered = answered or found.state is ReplyState.ANSWERS
        yield Reply(system.name, state, found.detail)


def _ask(system: Places, request: BuildRequest, toolchain: Toolchain, caches: Sequence[Cache]) -> Reply:
    reaches: list[Reach] = []
    try:
        wanted = system.question(request, toolchain)
        reaches = [reach for cache in caches for reach in cache.explain(wanted)]
    except GpucacheError as error:
        return Reply(system.name, ReplyState.UNKNOWN, str(error))
    if not reaches:
        return Reply(
            system.name, ReplyState.MISSES, "nothing of it is on this machine; run the program to fill it"
        )
    served = [reach for reach in reaches if isinstance(reach.verdict, Served)]
    best = (served or reaches)[0]
    state = ReplyState.ANSWERS if served else _STATES.get(str(best.verdict), ReplyState.MISSES)
    return Reply(system.name, state, f"{best.verdict}: {best.detail}")


_STATES = {
    "opaque-key": ReplyState.UNKNOWN,
    "not-recorded": ReplyState.UNKNOWN,
    "not-consulted": ReplyState.NOT_ASKED,
}
