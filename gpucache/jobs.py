"""What worker processes of ``warm``, ``verify`` and ``bench`` do: each assembles its parts from plain values.

Owns the functions that are handed to a pool. Must not be imported where nothing is compiled or loaded.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpucache.assembly import backends, open_layers
from gpucache.backends.interface import Backend, Launch
from gpucache.backends.registry import load_backend
from gpucache.caches.interface import Rebuildable
from gpucache.engine.bench import Prepare, Timed, Workers
from gpucache.engine.checked import CheckedJob, Durations
from gpucache.engine.explain import explain
from gpucache.engine.layers import Layers
from gpucache.engine.lookup import build, find, get_or_build
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.samples import take_sample
from gpucache.engine.trials import try_load, try_rebuild
from gpucache.engine.uncovered import uncovered
from gpucache.engine.verify import Try
from gpucache.engine.warm import Build, Job
from gpucache.engine.witness import WITNESS
from gpucache.model import Artifact, BuildRequest, Checks, Device, Language, Program, Target
from gpucache.outcomes import Built, Hit, Sample
from gpucache.settings import Settings


def worker_build(settings: Settings, *, shared: bool) -> Build:
    """The function that ``warm`` runs in workers."""
    return partial(_build_job, settings, shared)


def bench_workers() -> Workers:
    """The functions that ``bench`` runs in fresh processes."""
    return Workers(_build_once, _launches, _sample)


def time_checks(job: CheckedJob) -> Durations:
    """What ``bench --checks`` does in a worker: the suite on one OpenCL device, in every mode."""
    from gpucache.backends.opencl import suite

    backend = load_backend(job.request.target.backend)
    requests = [replace(job.request, checks=mode) for mode in Checks]
    builds = [(request, backend.plan(request, job.toolchain, os.environ)) for request in requests]
    return suite.measure(job.request.target, builds, job.runs)


def load_trial(cache: Rebuildable) -> Try:
    """What ``verify --load`` does with an entry."""
    return partial(try_load, cache, _load, _load_other)


def rebuild_trial(cache: Rebuildable, devices: Sequence[Device]) -> Try:
    """What ``verify --rebuild`` does with an entry."""
    return partial(try_rebuild, cache, devices, backends(), os.environ, _rebuild)


def _build_job(settings: Settings, shared: bool, job: Job) -> Hit | Built:
    backend = load_backend(job.request.target.backend)
    layers = open_layers(settings, shared=shared, command="gpucache warm")
    prepared = prepare(backend, job.request, job.toolchain, os.environ, layers)
    found = find(layers, prepared, whole=True)
    if isinstance(found, Hit):
        return found
    miss = explain(layers, prepared, found)
    if found.incomplete is not None:
        sizes = (*found.incomplete.head.local_sizes, *job.request.local_sizes)  # those that were there stay
        prepared = prepare(
            backend, replace(job.request, local_sizes=sizes), job.toolchain, os.environ, layers
        )
    return build(layers, prepared, partial(_compile_watched, backend, prepared), miss, wait_s=job.wait_s)


def _compile_watched(backend: Backend, prepared: Prepared) -> Artifact:
    """Compile, and say what of the files that were read the key does not cover, where somebody looks."""
    compile_ = partial(backend.compile, prepared.request, prepared.compilation)
    artifact, opened = WITNESS.watch(compile_)
    if opened is None:
        return artifact
    own = partial(backend.own_files, prepared.compilation.inputs.toolchain)
    return replace(artifact, uncovered=uncovered(opened, prepared.closure.files, own))


def _load(item: tuple[Artifact, Target]) -> tuple[str, ...]:
    artifact, target = item
    return load_backend(target.backend).load(artifact, target)


def _load_other(target: Target) -> tuple[str, ...]:
    """Build and load a program that does nothing."""
    backend = load_backend(target.backend)
    kind = 'extern "C" __global__' if backend.language is Language.CUDA_CPP else "kernel"
    program = Program("empty", backend.language, f"{kind} void empty() {{}}\n".encode())
    request = BuildRequest(program, target, artifact_kind=backend.artifact_kind(target))
    compilation = backend.plan(request, backend.toolchain(target), os.environ)
    return backend.load(backend.compile(request, compilation), target)


def _rebuild(job: Job) -> Artifact:
    backend = load_backend(job.request.target.backend)
    return backend.compile(job.request, backend.plan(job.request, job.toolchain, os.environ))


def _at(root: str) -> Layers:
    """A benchmark's own cache, without a memory layer."""
    return open_layers(Settings(root=Path(root), root_origin="bench"))


def _build_once(wanted: Prepare) -> Hit | Built:
    backend = load_backend(wanted.job.request.target.backend)
    layers = _at(wanted.root)
    prepared = prepare(backend, wanted.job.request, wanted.job.toolchain, os.environ, layers)
    compile_ = partial(backend.compile, wanted.job.request, prepared.compilation)
    return get_or_build(layers, prepared, compile_)


def _launches(wanted: Prepare) -> tuple[Launch, ...]:
    request = wanted.job.request
    backend = load_backend(request.target.backend)
    return backend.launches(request, backend.plan(request, wanted.job.toolchain, os.environ))


def _sample(timed: Timed) -> Sample:
    began_ns = time.time_ns()
    for name, value in timed.job.environment:
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    backend = load_backend(timed.job.request.target.backend)
    return take_sample(timed.job, backend, _at(timed.root), os.environ, began_ns)
