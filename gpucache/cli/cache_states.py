"""The states of caches: of the named ones, or of everything on this machine at a glance."""

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpucache.caches.registry import OWN, load_system
from gpucache.cli.caches import Opened, OwnOpened, finish, open_named, open_others, open_unused
from gpucache.cli.globals import given
from gpucache.cli.machines import toolchains_for
from gpucache.errors import CacheUnusableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpucache.answers.grid import Block
    from gpucache.answers.inspect import Advice, CacheState
    from gpucache.answers.schema import CachesSummary
    from gpucache.caches.interface import Cache
    from gpucache.engine.inspect import Record
    from gpucache.engine.staleness import Origins

MISSES_SHOWN = 10
MISSES_KEPT = 4096


def show_states(opened: Opened) -> None:
    """The state of every cache that was named, each with how it is moved and traced."""
    from gpucache.answers import inspect as text
    from gpucache.engine.inspect import foreign_state, own_state

    own = opened.own
    ours = None if own is None else _ours(own)
    rest = [cache for cache in opened.caches if own is None or cache is not own.cache]
    # A cache named by its place is shown alone; unused places are shown for named systems.
    rest += open_unused({one.name for one in rest if one.location().decided_by != "--cache"})
    owns = {id(one.cache): one.cache for one in opened.owns}
    states = [own_state(owns[id(one)], one.scan()) if id(one) in owns else foreign_state(one) for one in rest]
    named: CachesSummary = {"caches": states, "unread": opened.unread}
    told = {**(ours.document(ours.state) if ours else {}), **named}
    given().answer("inspect", (), told, text.state(ours.state) if ours else [])
    for one in states:
        if one.location.cache == OWN:
            given().show(["", *text.state(one)])
    given().show(ours.records if ours else [])
    for cache, one in zip(rest, states, strict=True):
        if cache.name != OWN:
            _show_foreign(cache, one)


def show_everything() -> None:
    """Our own cache and all other caches at a glance; the others also if ours has no usable place."""
    from gpucache.answers import inspect as text
    from gpucache.engine.inspect import foreign_state, own_state
    from gpucache.engine.staleness import Origins

    others = open_others()
    try:
        opened = open_named(())
    except CacheUnusableError:
        with suppress(BrokenPipeError):  # a reader that closed the pipe early still gets the error
            given().show(text.overview([foreign_state(cache) for cache in [*others, *open_unused()]]))
        raise
    own = opened.own
    assert own is not None, "open_named names our own cache or raises"
    ours = _ours(own)
    roots = [own_state(one.cache, one.cache.scan()) for one in opened.owns if one is not own]
    origins = [Origins() for _ in others]
    found = [(foreign_state(cache, own), own) for cache, own in zip(others, origins, strict=True)]
    unused = [foreign_state(cache) for cache in open_unused()]
    # As for --cache all in evict: no system root, and no place from which programs are redirected.
    its, *judged = _judged([(ours.state, Origins() if own.system else ours.origins), *found])
    states = [*roots, *judged, *unused]
    size_bytes = sum(one.size_bytes for one in (its, *states))
    stale_bytes = sum(one.stale.size_bytes for one in (its, *states) if one.stale)
    sums = {"total_bytes": size_bytes, "total_stale_bytes": stale_bytes, "unread": opened.unread}
    told = {**ours.document(its), "caches": states, **sums}
    given().answer("inspect", (), told, text.state(its))
    for one in roots:
        given().show(["", *text.state(one)])
    given().show(ours.records)
    given().show(["", *text.overview([its, *states])])
    finish(opened, 0)


def _judged(found: "Sequence[tuple[CacheState, Origins]]") -> "list[CacheState]":
    """The states, each with its stale entries.

    Drivers are queried only about devices that two toolchains built for, as a child process for each takes a
    second: the entries of an old driver are reported once something was built with the new one.
    """
    toolchains = toolchains_for(entry for _, origins in found for entry in origins.rebuilt())
    now_ns = time.time_ns()
    return [one._replace(stale=origins.summary(origins.stale(toolchains, now_ns))) for one, origins in found]


class _Ours(NamedTuple):
    """Our own cache: its state, who made its entries, and the advice on it."""

    state: "CacheState"
    origins: "Origins"
    advice: "Iterable[Advice]"
    """Read once, as there is one for nearly every program."""
    misses: "Sequence[Record]"
    processes: "Sequence[Record]"
    noted: int
    """How many builds wait for ``warm --misses``."""

    def document(self, state: "CacheState") -> dict[str, Any]:
        """The same for machines, with the state as judged so far."""
        if not given().json:
            return {}
        from gpucache.answers.document import json_of

        misses, processes = self.misses[: _shown()], self.processes[: _shown()]
        return {**json_of(state), "advice": list(self.advice), "misses": misses, "processes": processes}

    @property
    def records(self) -> "Iterator[Block]":
        """The advice and the records, for people."""
        from gpucache.answers import inspect as text

        now_ns = time.time_ns()
        yield from text.advice(self.advice)
        yield ""
        brief = not given().verbose
        yield from text.misses(self.misses, now_ns, noted=self.noted, most=_shown(), brief=brief)
        yield from text.processes(self.processes[: _shown()], now_ns)


def _shown() -> int | None:
    return None if given().verbose else MISSES_SHOWN


def _ours(own: OwnOpened) -> _Ours:
    from gpucache.engine.advice import Traces, advise_on
    from gpucache.engine.inspect import key_fields_of, own_state, processes, recent_misses
    from gpucache.engine.staleness import Origins

    traces, origins = Traces(), Origins()
    found = own_state(own.cache, origins.of(traces.of(own.cache.scan())))
    advice = advise_on(traces, key_fields_of(own.cache))
    records = own.store.journal_tail(MISSES_KEPT)
    noted = own.store.missed_count()
    return _Ours(found, origins, advice, recent_misses(records), processes(records), noted)


def _show_foreign(cache: "Cache", one: "CacheState") -> None:
    from gpucache.answers import inspect as text

    system = load_system(cache.name)
    isolation = system.isolation(Path("DIR"))
    given().show(text.foreign_state(one, isolation.environment, system.tracing, isolation.lacking))
