"""Launches checked kernels of several sources on one platform in one mode; run as a child process.

Its arguments are the prefix of the platform's name, the mode, and how the sources are built: ``batch``,
``hit`` for a batch that may neither compile nor number checks, or ``alone``. It reads a JSON object from
stdin, name and text of each source, whose first kernel takes a buffer of numbers. Writes one with ``apart``,
and with ``told``: for each source the message of its kernel when the number of item 3 is odd, and when it is
large, and its result for a 6; or why there is no such kernel.
"""

import json
import sys
from typing import Any, NoReturn

import numpy as np
import pyopencl as cl

from gpucache import opencl
from gpucache.errors import KernelCheckError, SourceError
from gpucache.opencl import pyopencl_builds

LOCAL = 16
ITEM = 3


def _told(checked: opencl.CheckedQueue, kernel: Any, value: int) -> str | int:
    """The message of a launch with a number, or else its result."""
    data = np.full(LOCAL, 6, np.int32)
    data[ITEM] = value
    buffer = cl.Buffer(checked.queue.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=data)
    try:
        checked.launch(kernel, (LOCAL,), (LOCAL,), buffer)
        checked.synchronise()
    except KernelCheckError as error:
        return str(error)
    cl.enqueue_copy(checked.queue, data, buffer)
    return int(data[ITEM])


def _kernel(routine: Any, way: str) -> Any:
    try:
        return routine.alone().all_kernels()[0] if way == "alone" else routine.kernel()
    except SourceError as error:
        return str(error)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise SystemExit("a hit did what it must not")


def main() -> None:
    platform, mode, way = sys.argv[1:]
    device = next(one for one in cl.get_platforms() if one.name.startswith(platform)).get_devices()[0]
    context = cl.Context([device])
    checked = opencl.CheckedQueue(cl.CommandQueue(context))
    batch = opencl.Batch(context, checks=mode, local_sizes=[LOCAL])
    if way == "hit":
        pyopencl_builds.build_plainly = pyopencl_builds.build_as_pyopencl = _refuse
        vars(opencl)["instrumented"] = _refuse
    routines = [batch.add(text, name=name) for name, text in json.load(sys.stdin).items()]
    told = []
    for kernel in [_kernel(routine, way) for routine in routines]:
        values = [] if isinstance(kernel, str) else [7, 600, 6]
        told.append([_told(checked, kernel, value) for value in values] or kernel)
    sys.stdout.write(json.dumps({"apart": [routine.apart for routine in routines], "told": told}))


if __name__ == "__main__":
    main()
