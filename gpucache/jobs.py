"""What worker processes of ``bench`` do: each assembles its parts from plain values.

Owns the functions that are handed to a pool. Must not be imported where nothing is compiled or loaded.
"""

import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpucache.assembly import open_layers
from gpucache.backends.interface import Launch
from gpucache.backends.registry import load_backend
from gpucache.engine.bench import Prepare, Timed, Workers
from gpucache.engine.checked import CheckedJob, Durations
from gpucache.engine.layers import Layers
from gpucache.engine.lookup import get_or_build
from gpucache.engine.prepare import prepare
from gpucache.engine.samples import take_sample
from gpucache.model import Checks
from gpucache.outcomes import Built, Hit, Sample
from gpucache.settings import Settings


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
