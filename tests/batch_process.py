"""A program with batches, run as a child process so that it begins with nothing in memory.

Its argument is ``opencl`` or ``cuda``. It reads a JSON list of jobs from stdin, and writes a JSON list with
one outcome for each. A job has:

    sources, arguments      name and text of each source; the keyword arguments of ``Batch``
    platform, contexts      of OpenCL: the platform's name begins with it; ``sub-devices`` for a context of
                            two, else how many contexts on one device get a batch each (1)
    threads                 how many threads request every kernel at once (1)
    kernels                 of CUDA: the kernel that is requested of each source, if any
    forked                  of CUDA: a child is forked while a thread builds the batch, and requests it too

An outcome has ``values`` of OpenCL (the result of each kernel on each device, or the error of a missing one)
or ``codes`` of CUDA (how many programs there are), ``apart``, ``log``, and ``calls``: the calls of the
loader of OpenCL, or the number of NVRTC's, before the first kernel was requested, while all were, and while
all were once more.
"""

import json
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Outcome = dict[str, Any]
Job = Mapping[str, Any]


class Lines(logging.Handler):
    """The library's log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname}: {record.getMessage()}")


def _opencl(job: Job) -> Outcome:
    import numpy as np
    import pyopencl as cl

    from gpucache.opencl import Batch

    calls = Path(os.environ["CALLS"])

    def called() -> dict[str, int]:
        names = calls.read_text(encoding="ascii").split()
        calls.write_text("", encoding="ascii")
        return dict(Counter(names))

    def value(context: Any, device: Any, kernel: Any) -> int:
        out = np.full(1, -1, np.int32)
        queue = cl.CommandQueue(context, device)
        buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=out)
        kernel.set_arg(0, buffer)
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        cl.enqueue_copy(queue, out, buffer)
        return int(out[0])

    def ask(context: Any, routine: Any) -> list[int] | str:
        try:
            return [value(context, device, routine.kernel()) for device in context.devices]
        except cl.Error as error:
            return str(error)

    platform = next(each for each in cl.get_platforms() if each.name.startswith(job["platform"]))
    device = platform.get_devices()[0]
    wanted = job.get("contexts", 1)
    if wanted == "sub-devices":
        halves = device.create_sub_devices([cl.device_partition_property.EQUALLY, 1])
        contexts = [cl.Context(halves[:2])]
    else:
        contexts = [cl.Context([device]) for _ in range(wanted)]
    calls.write_text("", encoding="ascii")
    batches = [Batch(context, **job.get("arguments", {})) for context in contexts]
    routines = [
        (context, batch.add(text, name=name))
        for context, batch in zip(contexts, batches, strict=True)
        for name, text in job["sources"]
    ]
    told, values = [called()], []
    for _ in range(2):
        values = _at_once(job, routines, lambda pair: ask(*pair))
        told.append(called())
    return {"calls": told, "values": values, "apart": [routine.apart for _, routine in routines]}


def _at_once(job: Job, routines: Any, ask: Callable[[Any], Any]) -> list[Any]:
    """Every routine's result, the same in all threads."""
    threads = job.get("threads", 1)
    together = threading.Barrier(threads)

    def run(_: int) -> list[Any]:
        together.wait()
        return [ask(routine) for routine in routines]

    with ThreadPoolExecutor(threads) as pool:
        answers = list(pool.map(run, range(threads)))
    if any(answer != answers[0] for answer in answers):
        raise RuntimeError(f"the threads disagree: {answers}")
    return answers[0]


def _cuda(job: Job) -> Outcome:
    from cuda.bindings import nvrtc

    from gpucache.cuda import Batch

    real, asked = nvrtc.nvrtcCompileProgram, 0
    building, go_on = threading.Event(), threading.Event()

    def watched(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        building.set()
        if job.get("forked") and threading.current_thread() is not threading.main_thread():
            go_on.wait()
        return real(*arguments)

    nvrtc.nvrtcCompileProgram = watched
    try:
        batch = Batch(**job.get("arguments", {}))
        routines = [batch.add(text, name=name) for name, text in job["sources"]]
        told = [asked]
        if job.get("forked"):
            return {"values": _forked(routines, building, go_on)}
        for _ in range(2):
            codes = _at_once(job, routines, lambda routine: id(routine.program))
            told.append(asked - sum(told))
        names = job.get("kernels", ())
        kernels = [
            type(routine.kernel(name)).__name__ for routine, name in zip(routines, names, strict=False)
        ]
        return {
            "calls": told,
            "codes": len(set(codes)),
            "kernels": kernels,
            "apart": [routine.apart for routine in routines],
        }
    finally:
        nvrtc.nvrtcCompileProgram = real


def _forked(routines: Any, building: threading.Event, go_on: threading.Event) -> list[str]:
    """The results of a child that is forked in the middle of a build, and of its parent after it."""
    builder = threading.Thread(target=lambda: routines[0].program)
    builder.start()
    building.wait()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, type(routines[-1].program).__name__.encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as answer:  # noqa: PTH123 - a descriptor
        said = answer.read().decode()
    os.waitpid(child, 0)
    go_on.set()
    builder.join()
    return [said, type(routines[-1].program).__name__]


def main() -> None:
    log = Lines()
    logger = logging.getLogger("gpucache")
    logger.addHandler(log)
    logger.setLevel(logging.DEBUG)
    outcomes = []
    for job in json.load(sys.stdin):
        log.lines = []
        outcomes.append({"opencl": _opencl, "cuda": _cuda}[sys.argv[1]](job) | {"log": log.lines})
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
