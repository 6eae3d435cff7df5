"""Compiles and loads with our OpenCL backend on one platform, and prints the results; run as a child process.

Its argument is ``pocl`` or ``intel``. Reads a JSON list of jobs from stdin: ``source`` and optionally
``options``, ``include_dirs``, ``local_sizes``, ``name``. Writes one outcome each: ``kernels`` of the
loaded binary, ``log``, ``error``.
"""

import json
import os
import sys
from typing import Any

from gpucache.backends.opencl import BACKEND, platforms
from gpucache.errors import CompileError
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Language, Program


def _compiled(job: dict[str, Any]) -> dict[str, Any]:
    target = next(each.target for each in platforms.devices() if each.target.name.startswith(sys.argv[1]))
    if "payload" in job:
        artifact = Artifact(ArtifactKind.OPENCL_BINARY, job["payload"].encode())
    else:
        request = BuildRequest(
            program=Program(
                job.get("name", "show.cl"), Language.OPENCL_C, job["source"].encode(errors="surrogateescape")
            ),
            target=target,
            options=tuple(job.get("options", ())),
            include_dirs=tuple(job.get("include_dirs", ())),
            local_sizes=tuple(map(tuple, job.get("local_sizes", ()))),
        )
        artifact = BACKEND.compile(request, BACKEND.plan(request, BACKEND.toolchain(target), os.environ))
    return {"kernels": sorted(BACKEND.load(artifact, target)), "log": artifact.build_log, "error": None}


def main() -> None:
    outcomes = []
    for job in json.load(sys.stdin):
        before = dict(os.environ)
        try:
            outcome = _compiled(job)
        except CompileError as error:
            outcome = {"error": str(error), "log": error.log}
        outcomes.append(outcome | {"environment_kept": before == dict(os.environ)})
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
