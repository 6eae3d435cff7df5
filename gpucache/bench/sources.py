"""Sources as what bench starts: built once, then started in fresh processes, one for each sample.

Owns what is prepared before anything is timed, and the folders and variables of a start's caches: the
drivers' own below every start, and a peer's below the starts of that peer. What happens in the process of
a start is in ``samples``.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from gpucache.answers.growth import growth
from gpucache.answers.lookup import Built, Hit
from gpucache.backends.interface import Backend
from gpucache.bench import peers
from gpucache.bench.cases import Measured
from gpucache.bench.plan import Begun, Planned, Say, start_folder
from gpucache.bench.samples import StartJob, build_once, launches_of, start_once
from gpucache.bench.sessions import Launch
from gpucache.caches.known_caches import KnownCaches
from gpucache.engine.warm.plan import WarmItem
from gpucache.engine.workers.pool import Bounds, Died, Done, run_isolated
from gpucache.outcomes.bench import BenchCase, BenchVerdict, Sample

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Workers:
    """The functions that run in fresh processes."""

    build: Callable[[StartJob], Hit | Built]
    launches: Callable[[StartJob], tuple[Launch, ...]]
    sample: Callable[[StartJob], Sample]


WORKERS = Workers(build_once, launches_of, start_once)


@dataclass(frozen=True, slots=True)
class Sources:
    """How sources are started, whichever they are."""

    bounds: Bounds
    """Of each process; only their limits count."""
    backends: Mapping[str, Backend]
    environ: Mapping[str, str]
    against: tuple[str, ...] = ()
    """Peers that are started beside the pair."""
    workers: Workers = WORKERS

    def plan(self, items: Sequence[WarmItem]) -> Iterator[Planned]:
        """A case for each item; one that the plan of warm skipped says why."""
        redirects = tuple(KnownCaches.of_drivers(self.environ).variables(Path("DIR")).items())
        for item in items:
            case = BenchCase(item.program, item.target, BenchVerdict.FAILED, variant=item.variant)
            if item.request is None or item.toolchain is None:
                yield Planned(replace(case, reason=item.skipped))
            else:
                job = StartJob(item.request, item.toolchain)
                yield Planned(replace(case, redirects=redirects), partial(self._begin, job))

    def _begin(self, job: StartJob, place: Path, say: Say) -> Begun | str:
        bounds = replace(self.bounds, fresh=True, jobs=1)
        job = replace(job, root=str(place / "root"))
        say("building once")
        began = time.perf_counter_ns()
        built = one(self.workers.build, job, bounds)
        warming_ns = time.perf_counter_ns() - began
        if isinstance(built, str):
            return built
        if isinstance(built, Built) and built.key is None:
            return f"nothing was kept: {built.note}"
        launches = one(self.workers.launches, job, bounds)
        caveats: tuple[str, ...] = ()
        if isinstance(launches, str):
            launches, caveats = (), (f"no first launch: {launches}",)
        target = job.request.target
        against = peers.taking_part(self.against, target)
        known = Measured(
            late=self.backends[target.backend].plan(job.request, job.toolchain, {}).late,
            warming_ns=warming_ns,
            against=against,
            caveats=(*caveats, *peers.caveats(self.against, target)),
        )
        job = replace(job, launches=launches, peers=peers.libraries(against, target))
        return Begun(partial(self._start, job, bounds, place), known, uncounted=1)

    def _start(self, job: StartJob, bounds: Bounds, place: Path, arm: str, number: int) -> Sample:
        around = KnownCaches.of_drivers(self.environ, arm)
        with start_folder(place, arm, number) as folder:
            moved = around.isolate(folder)
            environ = {**self.environ, **moved}
            job = replace(
                job,
                arm=arm,
                environment=(*moved.items(), *peers.switches(arm)),
                peer_folder=around.place_of(arm, environ) if arm in job.peers else "",
            )
            before = around.look(environ, private=False)
            sample = one(self.workers.sample, replace(job, asked_ns=time.time_ns()), bounds)
            added = growth(before, around.look(environ, private=False))
        return Sample(arm, error=sample) if isinstance(sample, str) else replace(sample, growth=added)


def one(function: Callable[[StartJob], R], job: StartJob, bounds: Bounds) -> R | str:
    """One job in a fresh process; a sentence where it failed."""
    for _, answer in run_isolated(function, [job], bounds):
        if isinstance(answer, Done):
            return answer.value
        return answer.reason if isinstance(answer, Died) else str(answer.error)
    return "the worker gave no answer"
