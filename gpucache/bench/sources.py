"""Starts sources: built once, then started in fresh processes, one for each sample.

Owns the preparation before anything is timed, the directories and variables of a start's caches (the
drivers' own below every start, and a peer's below the starts of that peer), and the order of a start, which
is timed phase by phase in its own process. A cold start works like a program without any cache: build from
source, create kernels, launch. A warm start uses the cache: key, lookup, load, create kernels, launch; if the
cache misses it says so and builds, storing nothing, so that every warm start finds the prepared entries.
Peers build like a program that uses their cache.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from gpucache.answers.bench import Arm, BenchCase, BenchVerdict, Sample
from gpucache.answers.entries import growth
from gpucache.answers.lookup import Built, Hit, Verdict
from gpucache.assembly import open_stores
from gpucache.backends.interface import Backend, Compilation, load_backend
from gpucache.bench.check_costs import CheckedJob, Durations
from gpucache.bench.compare import Measured
from gpucache.bench.run import Begun, Planned, Say, start_folder
from gpucache.bench.sessions import (
    Launch,
    Plain,
    Session,
    peers_caveats,
    peers_libraries,
    peers_switches,
    taking_part,
)
from gpucache.caches.known_caches import KnownCaches
from gpucache.engine.lookup import get_or_build, look_up
from gpucache.engine.prepare import prepare
from gpucache.engine.stores import Stores
from gpucache.engine.warm.plan import WarmItem
from gpucache.engine.workers.pool import Bounds, Died, Done, run_isolated
from gpucache.errors import CompileError, GpucacheError
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Checks, Target, Toolchain
from gpucache.settings import Settings

R = TypeVar("R")


def open_session(
    backend: Backend, target: Target, peers: Sequence[str] = (), folder: str | None = None
) -> Session:
    """A context on the target's device, with the libraries of some peers loaded.

    With a ``folder`` the peer's cache is used, in that directory if no variable moves it. Raises TargetError
    or NoDeviceError.
    """
    if backend.name == "opencl":
        from gpucache.bench.opencl import OpenCLSession

        return OpenCLSession(target, through_peer=folder is not None)
    if backend.name == "cuda":
        from gpucache.bench.cuda import CUDASession

        return CUDASession(target, peers, folder)
    return Plain(backend, target)


def find_launches(backend: Backend, request: BuildRequest, compilation: Compilation) -> tuple[Launch, ...]:
    """First launches at the declared local sizes; empty if none can be made on zeros."""
    if backend.name != "opencl":  # the signature of a CUDA kernel is not in its cubin
        return ()
    from gpucache.bench.opencl import launches

    return launches(request, compilation)


@dataclass(frozen=True, slots=True)
class StartJob:
    """The program to build or start: plain values, passed to a fresh process."""

    request: BuildRequest
    toolchain: Toolchain
    root: str = ""
    launches: tuple[Launch, ...] = ()
    arm: str = Arm.COLD
    environment: tuple[tuple[str, str | None], ...] = ()
    """Variables set, or unset, before any driver is loaded: they move caches to separate directories."""
    peers: tuple[str, ...] = ()
    """Peers of the run whose library every start loads, as programs that use it do."""
    peer_folder: str = ""
    """The directory of a peer's cache that no variable moves."""
    asked_ns: int = 0
    """When the process was requested, by the system's clock, which two processes share."""


@dataclass(slots=True)
class _Timer:
    phases: list[tuple[str, int]] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.perf_counter_ns()
        yield
        self.phases.append((name, time.perf_counter_ns() - started))

    def drop_last(self) -> None:
        self.phases.pop()


def build_once(job: StartJob) -> Hit | Built:
    backend = load_backend(job.request.target.backend)
    stores = _stores(job)
    prepared = prepare(backend, job.request, job.toolchain, os.environ, stores)
    return get_or_build(stores, prepared, lambda: backend.compile(job.request, prepared.compilation))


def launches_of(job: StartJob) -> tuple[Launch, ...]:
    backend = load_backend(job.request.target.backend)
    return find_launches(backend, job.request, backend.plan(job.request, job.toolchain, os.environ))


def start_once(job: StartJob) -> Sample:
    began_ns = time.time_ns()
    for name, value in job.environment:
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    backend = load_backend(job.request.target.backend)
    return take_sample(job, backend, _stores(job), os.environ, began_ns)


def time_checks(job: CheckedJob) -> Durations:
    """Time the suite of ``bench --checks`` on one OpenCL device, in every mode."""
    from gpucache.bench import opencl

    backend = load_backend(job.request.target.backend)
    requests = [job.request._replace(checks=mode) for mode in Checks]
    builds = [(request, backend.plan(request, job.toolchain, os.environ)) for request in requests]
    return opencl.measure(job.request.target, builds, job.runs)


def _stores(job: StartJob) -> Stores:
    return open_stores(Settings(root=Path(job.root), root_origin="bench"))


def take_sample(
    job: StartJob, backend: Backend, stores: Stores, environ: Mapping[str, str], began_ns: int
) -> Sample:
    """Start the program once; a failure is the sample's error. ``began_ns`` is when this process began."""
    # A clock that was set back meanwhile does not make a start shorter.
    timer = _Timer([("process start", max(0, began_ns - job.asked_ns))])
    missed = ""
    try:
        with timer.phase("context"):
            folder = job.peer_folder if job.arm in job.peers else None
            session = open_session(backend, job.request.target, job.peers, folder)
        if job.arm == Arm.WARM:
            missed = _from_cache(job, backend, stores, environ, session, timer)
        else:
            with timer.phase("compile"):
                session.build(job.request, backend.plan(job.request, job.toolchain, environ))
        _finish(session, job.launches, timer)
    except GpucacheError as error:
        return Sample(job.arm, tuple(timer.phases), missed=missed, error=error.message)
    return Sample(job.arm, tuple(timer.phases), hit=job.arm == Arm.WARM and not missed, missed=missed)


def _from_cache(
    job: StartJob,
    backend: Backend,
    stores: Stores,
    environ: Mapping[str, str],
    session: Session,
    timer: _Timer,
) -> str:
    """Load the cached artifact, or build; returns why it missed, or an empty text."""
    with timer.phase("key"):
        toolchain = backend.toolchain(job.request.target)
        prepared = prepare(backend, job.request, toolchain, environ, stores)
    with timer.phase("lookup"):
        found = look_up(stores, prepared)
    if isinstance(found, Hit):
        missed = _load(session, found, timer)
        if not missed:
            return ""
    else:
        missed = f"{found.verdict}: {found.detail}"
    with timer.phase("compile"):
        session.build(job.request, prepared.compilation)
    return missed


def _load(session: Session, found: Hit, timer: _Timer) -> str:
    """Load a hit; returns why the driver rejected it, or an empty text."""
    try:
        with timer.phase("load"):
            loaded = session.load(Artifact(ArtifactKind(found.head.artifact_kind), found.payload))
    except CompileError as error:
        return f"{Verdict.REJECTED}: {error}"
    if not loaded:
        timer.drop_last()
    return ""


def _finish(session: Session, launches: Sequence[Launch], timer: _Timer) -> None:
    with timer.phase("kernels"):
        created = session.create_kernels()
    if not created:
        timer.drop_last()
        return
    session.set_arguments(launches)
    with timer.phase("first launch"):
        launched = session.launch()
    if not launched:
        timer.drop_last()


@dataclass(frozen=True, slots=True)
class Workers:
    """The functions that run in fresh processes."""

    build: Callable[[StartJob], Hit | Built]
    launches: Callable[[StartJob], tuple[Launch, ...]]
    sample: Callable[[StartJob], Sample]


WORKERS = Workers(build_once, launches_of, start_once)


@dataclass(frozen=True, slots=True)
class Sources:
    """Starts any sources."""

    bounds: Bounds
    """The bounds of each process; only their limits count."""
    backends: Mapping[str, Backend]
    environ: Mapping[str, str]
    against: tuple[str, ...] = ()
    workers: Workers = WORKERS

    def plan(self, items: Sequence[WarmItem]) -> Iterator[Planned]:
        """A case for each item; an item that the plan of warm skipped has the reason."""
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
            return f"nothing was cached: {built.note}"
        launches = one(self.workers.launches, job, bounds)
        caveats: tuple[str, ...] = ()
        if isinstance(launches, str):
            launches, caveats = (), (f"no first launch: {launches}",)
        target = job.request.target
        against = taking_part(self.against, target)
        known = Measured(
            late=self.backends[target.backend].plan(job.request, job.toolchain, {}).late,
            warming_ns=warming_ns,
            against=against,
            caveats=(*caveats, *peers_caveats(self.against, target)),
        )
        job = replace(job, launches=launches, peers=peers_libraries(against, target))
        return Begun(partial(self._start, job, bounds, place), known, uncounted=1)

    def _start(self, job: StartJob, bounds: Bounds, place: Path, arm: str, number: int) -> Sample:
        around = KnownCaches.of_drivers(self.environ, arm)
        with start_folder(place, arm, number) as folder:
            moved = around.isolate(folder)
            environ = {**self.environ, **moved}
            job = replace(
                job,
                arm=arm,
                environment=(*moved.items(), *peers_switches(arm)),
                peer_folder=around.place_of(arm, environ) if arm in job.peers else "",
            )
            before = around.look(environ, private=False)
            sample = one(self.workers.sample, replace(job, asked_ns=time.time_ns()), bounds)
            added = growth(before, around.look(environ, private=False))
        return Sample(arm, error=sample) if isinstance(sample, str) else replace(sample, growth=added)


def one(function: Callable[[StartJob], R], job: StartJob, bounds: Bounds) -> R | str:
    """Run one job in a fresh process; returns a sentence if it failed."""
    ((_, answer),) = run_isolated(function, [job], bounds)  # to its end, so that an interrupt is not lost
    if isinstance(answer, Done):
        return answer.value
    return answer.reason if isinstance(answer, Died) else str(answer.error)
