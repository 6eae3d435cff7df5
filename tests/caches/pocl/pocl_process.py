"""Builds and launches two kernels with a PoCL and says what came out; run as a child process.

Its arguments are the beginning of the driver's version and what ``vecadd`` adds. Writes one JSON object:
for each kernel whether its result is right.
"""

import json
import sys
import warnings
from array import array
from typing import Any

import pyopencl as cl

_COUNT = 64
_SOURCE = """
kernel void vecadd(global int *out, global const int *in) {
    out[get_global_id(0)] = in[get_global_id(0)] + %s;
}
kernel void twice(global int *out, global const int *in) {
    out[get_global_id(0)] = in[get_global_id(0)] * 2;
}
"""


def main(version: str, addend: int) -> None:
    """Build, launch both kernels with local size 16, and compare."""
    found = (one for platform in cl.get_platforms() for one in platform.get_devices())
    device = next(one for one in found if one.driver_version.startswith(version))
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    # PyOpenCL keeps none of its own for PoCL, and is told so.
    program = cl.Program(context, _SOURCE % addend).build(cache_dir=False)
    given = array("i", range(_COUNT))
    flags = cl.mem_flags
    into = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=given)
    out = cl.Buffer(context, flags.WRITE_ONLY, size=given.itemsize * _COUNT)
    expected = {"vecadd": [one + addend for one in given], "twice": [one * 2 for one in given]}
    right: dict[str, Any] = {}
    for name, wanted in expected.items():
        cl.Kernel(program, name)(queue, (_COUNT,), (16,), out, into)
        result = array("i", bytes(given.itemsize * _COUNT))
        cl.enqueue_copy(queue, result, out)
        queue.finish()
        right[name] = result.tolist() == wanted
    json.dump(right, sys.stdout)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], int(sys.argv[2]))
