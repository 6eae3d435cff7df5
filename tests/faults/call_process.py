"""A process that forks a child for each build by the library, so that a tracer can make one's calls fail.

Its arguments are ``cuda`` or ``opencl`` and the prefix of a platform's name. For each JSON line
``{"environment": {...}, "source": ...}`` on stdin it forks a child, which waits for SIGUSR1, and writes the
child's process id. The child builds the source, and its outcome follows as a second line: ``error``, ``code``
(SHA-256 of the binary, or the values that a kernel wrote), ``warned`` (the library's warnings) and ``said``
(all its log lines).
"""

import atexit
import hashlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

Job = Mapping[str, Any]


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def _cuda(job: Job) -> str:
    from gpucache.cuda import compile_program

    return hashlib.sha256(compile_program(job["source"], target="sm_90", name="k.cu").code).hexdigest()


def _opencl(job: Job) -> str:
    import numpy as np
    import pyopencl as cl

    from gpucache.opencl import build_program

    platform = next(each for each in cl.get_platforms() if each.name.startswith(sys.argv[2]))
    context = cl.Context(platform.get_devices())
    kernel = cl.Kernel(build_program(context, job["source"], name="k.cl", local_sizes=[(1,)]), "show")
    queue, out = cl.CommandQueue(context), np.zeros(1, np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, out.nbytes)
    kernel.set_arg(0, buffer)
    cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
    cl.enqueue_copy(queue, out, buffer)
    return str(out[0])


def _child(build: Callable[[Job], str], job: Job, answer: int) -> None:
    lines = _Lines()
    logger = logging.getLogger("gpucache")
    logger.handlers = [lines]
    logger.setLevel(logging.DEBUG)
    os.environ.update(job["environment"])
    outcome: dict[str, Any] = {"error": "", "code": ""}
    signal.sigwait([signal.SIGUSR1])
    sys.unraisablehook = lambda unraisable: outcome.update(error=f"at the end: {unraisable.exc_value!r}")
    try:
        outcome["code"] = build(job)
        threading._shutdown()  # type: ignore[attr-defined] # an exit waits for the thread that publishes
        atexit._run_exitfuncs()
    except BaseException as error:
        outcome["error"] = f"{type(error).__name__}: {error}"
    outcome["said"] = [record.getMessage() for record in lines.records]
    outcome["warned"] = [line.getMessage() for line in lines.records if line.levelno >= logging.WARNING]
    with os.fdopen(answer, "w", encoding="utf-8") as stream:
        json.dump(outcome, stream)
    os._exit(0)


def main() -> None:
    build = {"cuda": _cuda, "opencl": _opencl}[sys.argv[1]]
    __import__(f"gpucache.{sys.argv[1]}")
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _child(build, json.loads(line), writing)
        os.close(writing)
        print(child, flush=True)  # noqa: T201 - the parent reads it
        with os.fdopen(reading, encoding="utf-8") as stream:
            answer = stream.read()
        os.waitpid(child, 0)
        print(answer or json.dumps({"error": "it died"}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
