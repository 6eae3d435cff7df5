"""Builds and runs a source with PyOpenCL on Intel's CPU runtime, as any program does; run as a child process.

Reads a JSON object from stdin: ``source``, ``options`` (a list). Writes ``value`` that the kernel ``show``
wrote, ``cached`` (what PyOpenCL says of its cache), and ``device``, the texts that the key holds.
"""

import json
import sys
import warnings

import numpy as np
import pyopencl as cl

warnings.simplefilter("ignore")


def main() -> None:
    job = json.load(sys.stdin)
    platform = next(one for one in cl.get_platforms() if one.name.startswith("Intel"))
    device = platform.get_devices()[0]
    context = cl.Context([device])
    program = cl.Program(context, job["source"]).build(options=job["options"])
    kernel, out = cl.Kernel(program, "show"), np.full(1, -1, np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=out)
    kernel.set_arg(0, buffer)
    queue = cl.CommandQueue(context)
    cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
    cl.enqueue_copy(queue, out, buffer)
    own = (device.vendor, device.name, device.version, device.driver_version)
    answer = {
        "value": int(out[0]),
        "cached": program._build_duration_info[1],
        "device": [platform.name, platform.vendor, platform.version, *own],
        "version": cl.VERSION_TEXT,
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
