"""What a worker of ``warm`` does with one item: look for it once more, explain the miss, build, publish."""

import os
from collections.abc import Callable
from functools import partial

from gpucache.answers.lookup import Built, Hit
from gpucache.backends.interface import Backend
from gpucache.backends.registry import load_backend
from gpucache.engine.lookup import build, find
from gpucache.engine.prepare import Prepared, prepare
from gpucache.engine.store_layers import Layers
from gpucache.engine.warm.plan import Job
from gpucache.model import Artifact


def build_job(open_layers: Callable[[], Layers], job: Job) -> Hit | Built:
    """A hit, or what was built; ``open_layers`` opens the layers in the worker."""
    backend = load_backend(job.request.target.backend)
    layers = open_layers()
    prepared = prepare(backend, job.request, job.toolchain, os.environ, layers)
    found = find(layers, prepared, whole=True)
    if isinstance(found, Hit):
        return found
    from gpucache.engine.explain import explain  # this module is imported for hits as well

    miss = explain(layers, prepared, found)
    if found.incomplete is not None:
        sizes = (*found.incomplete.head.local_sizes, *job.request.local_sizes)  # those that were there stay
        prepared = prepare(
            backend, job.request._replace(local_sizes=sizes), job.toolchain, os.environ, layers
        )
    return build(layers, prepared, partial(_compile_watched, backend, prepared), miss, wait_s=job.wait_s)


def _compile_watched(backend: Backend, prepared: Prepared) -> Artifact:
    """Compile, and name the files that were read and that the key does not cover, if opens can be seen."""
    from gpucache.engine.uncovered_files import uncovered
    from gpucache.engine.workers.opened_files import OPENED_FILES

    compile_ = partial(backend.compile, prepared.request, prepared.compilation)
    artifact, opened = OPENED_FILES.watch(compile_)
    if opened is None:
        return artifact
    own = partial(backend.own_files, prepared.compilation.inputs.toolchain)
    return artifact._replace(uncovered=uncovered(opened, prepared.closure.files, own))
