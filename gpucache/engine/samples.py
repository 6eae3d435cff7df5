"""One start of a program, timed phase by phase, in the process that it is called in.

Owns the order of a start. Cold is what a program without any cache does: build from source, create
kernels, launch. Warm asks the cache: key, lookup, load, create kernels, launch. Bench calls it in a
fresh process for every sample.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpucache.backends.interface import Backend, Launch, Session
from gpucache.engine.layers import Layers
from gpucache.engine.lookup import find
from gpucache.engine.prepare import prepare
from gpucache.errors import GpucacheError
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Toolchain
from gpucache.outcomes import Miss, Sample, Temperature

PHASES = ("context", "key", "lookup", "compile", "load", "kernels", "first launch")


@dataclass(frozen=True, slots=True)
class SampleJob:
    """What a sample is of: plain values, handed to a fresh process."""

    request: BuildRequest
    toolchain: Toolchain
    launches: tuple[Launch, ...]
    temperature: Temperature
    environment: tuple[tuple[str, str], ...] = ()
    """Variables set before any driver is loaded, which give driver caches a place of their own."""


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


def take_sample(job: SampleJob, backend: Backend, layers: Layers, environ: Mapping[str, str]) -> Sample:
    """Start the program once; what goes wrong is the sample's error."""
    timer = _Timer()
    try:
        with timer.phase("context"):
            session = backend.open_session(job.request.target)
        if job.temperature is Temperature.COLD:
            with timer.phase("compile"):
                session.build(job.request, backend.plan(job.request, job.toolchain, environ))
        else:
            _from_cache(job, backend, layers, environ, session, timer)
        _finish(session, job.launches, timer)
    except GpucacheError as error:
        return Sample(job.temperature, tuple(timer.phases), error=str(error))
    return Sample(job.temperature, tuple(timer.phases), hit=job.temperature is Temperature.WARM)


def _from_cache(
    job: SampleJob,
    backend: Backend,
    layers: Layers,
    environ: Mapping[str, str],
    session: Session,
    timer: _Timer,
) -> None:
    with timer.phase("key"):
        toolchain = backend.toolchain(job.request.target)
        prepared = prepare(backend, job.request, toolchain, environ)
    with timer.phase("lookup"):
        found = find(layers, prepared)
    if isinstance(found, Miss):
        raise GpucacheError(f"the warm start missed: {found.verdict}: {found.detail}")
    with timer.phase("load"):
        loaded = session.load(Artifact(ArtifactKind(found.head.artifact_kind), found.payload))
    if not loaded:
        timer.drop_last()


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
