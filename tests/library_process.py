"""A program that uses gpucache's library, run as a child process so that it begins with nothing in memory.

Its argument is ``opencl`` or ``cuda``. It writes ``ready`` once everything is imported, reads a JSON
list of jobs from stdin, and writes a JSON list with one outcome for each job. A job has:

    source, arguments       the library's arguments, by keyword
    platform                of OpenCL: the platform's name begins with it
    launches                of OpenCL: [global size, local size] of launches of ``show(global int *)``
    environment             variables to set, or with null to remove, from this job on
    cwd, remove_cwd         the directory to go to, and whether to remove it then
    compiling               false: calling the compiler raises
    hurried                 true: the next job begins before this one's artifact is published
    threads, forked         how many threads do it at once; whether a forked child does

An outcome has ``error``, ``log`` and ``compiled`` (the number of the compiler's calls), then ``code``
(SHA-256) and ``names`` of CUDA, or ``values`` and ``shared_objects`` of OpenCL: the values that each
launch wrote, and how many files PoCL had made after the build and after each launch; ``source`` and
``argument`` of OpenCL are the information of the program and its kernel.
"""

import hashlib
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpucache.library.missing import flush

Outcome = dict[str, Any]
Job = Mapping[str, Any]


class Compiler:
    """Wraps a compiler and counts its calls."""

    def __init__(self) -> None:
        self.asked = 0
        self.allowed = True
        self._lock = threading.Lock()

    def ask(self) -> None:
        with self._lock:
            self.asked += 1
        if not self.allowed:
            raise RuntimeError("the compiler was asked")


class Lines(logging.Handler):
    """The library's log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname}: {record.getMessage()}")


def _cuda(compiler: Compiler) -> Callable[[Job], Outcome]:
    from cuda.bindings import nvrtc

    from gpucache.cuda import compile_program

    real = nvrtc.nvrtcCompileProgram

    def watched(*arguments: Any) -> Any:
        compiler.ask()
        return real(*arguments)

    nvrtc.nvrtcCompileProgram = watched

    def build(job: Job) -> Outcome:
        built = compile_program(job["source"], **job.get("arguments", {}))
        return {
            "code": hashlib.sha256(built.code).hexdigest(),
            "names": {name: lowered.decode() for name, lowered in built.symbol_mapping.items()},
        }

    return build


def _opencl(compiler: Compiler) -> Callable[[Job], Outcome]:
    import numpy as np
    import pyopencl as cl

    from gpucache.opencl import build_program

    class Watched(cl._cl._Program):  # type: ignore[misc] # PyOpenCL's binding has no types
        def __init__(self, *arguments: Any) -> None:
            if len(arguments) == 2:  # context and source
                compiler.ask()
            super().__init__(*arguments)

    cl._cl._Program = Watched

    def build(job: Job) -> Outcome:
        platform = next(each for each in cl.get_platforms() if each.name.startswith(job["platform"]))
        context = cl.Context(platform.get_devices())
        program = build_program(context, job["source"], **job.get("arguments", {}))
        kernel = cl.Kernel(program, "show")
        counts, values = [_shared_objects()], []
        for device in context.devices:
            queue = cl.CommandQueue(context, device)
            for size, local in job.get("launches", [[1, 1]]):
                out = np.full(size, -1, np.int32)
                buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=out)
                kernel.set_arg(0, buffer)  # PyOpenCL's calls of kernels need their own cache
                cl.enqueue_nd_range_kernel(queue, kernel, (size,), (local,))
                cl.enqueue_copy(queue, out, buffer)
                values.append(sorted({int(value) for value in out}))
                counts.append(_shared_objects())
        return {
            "values": values,
            "shared_objects": counts,
            "source": program.source,
            "argument": _argument(kernel),
        }

    return build


def _argument(kernel: Any) -> str:
    """The name of the first argument, or the error of querying it."""
    import pyopencl as cl

    try:
        return str(kernel.get_arg_info(0, cl.kernel_arg_info.NAME))
    except cl.Error as error:
        return str(error)


def _shared_objects() -> int:
    place = os.environ.get("POCL_CACHE_DIR")
    return sum(1 for _ in Path(place).rglob("*.so")) if place else 0


def _forked(build: Callable[[Job], Outcome], job: Job) -> Outcome:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer = json.dumps(build(job)).encode()
        flush()
        os.write(writing, answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        outcome: Outcome = json.loads(stream.read())
    os.waitpid(child, 0)
    return outcome


def _done(build: Callable[[Job], Outcome], job: Job) -> Outcome:
    threads = job.get("threads", 1)
    if job.get("forked", False):
        return _forked(build, job)
    if threads == 1:
        return build(job)
    together = threading.Barrier(threads)

    def at_once(_: int) -> Outcome:
        together.wait()
        return build(job)

    with ThreadPoolExecutor(threads) as pool:
        outcomes = list(pool.map(at_once, range(threads)))
    results = [{name: outcome.get(name) for name in ("code", "names", "values")} for outcome in outcomes]
    if any(result != results[0] for result in results):
        raise RuntimeError(f"the threads disagree: {results}")
    return outcomes[0]


def _prepare(job: Job) -> None:
    for name, value in job.get("environment", {}).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if "cwd" in job:
        os.chdir(job["cwd"])
    if job.get("remove_cwd", False):
        Path(job["cwd"]).rmdir()


def main() -> None:
    compiler, log = Compiler(), Lines()
    logger = logging.getLogger("gpucache")
    logger.addHandler(log)
    logger.setLevel(logging.DEBUG)
    build = {"cuda": _cuda, "opencl": _opencl}[sys.argv[1]](compiler)
    print("ready", flush=True)  # noqa: T201 - the parent waits for it
    outcomes = []
    for job in json.load(sys.stdin):
        _prepare(job)
        compiler.asked, compiler.allowed = 0, job.get("compiling", True)
        log.lines = []
        outcome: Outcome = {"error": None}
        try:
            outcome |= _done(build, job)
        except Exception as error:
            outcome["error"] = f"{type(error).__name__}: {error}"
        if not job.get("hurried", False):
            flush()
        outcomes.append(outcome | {"compiled": compiler.asked, "log": log.lines})
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
