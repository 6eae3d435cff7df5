"""A PyOpenCL program that knows nothing of gpucache: ``program.py PLATFORM [FACTOR...]``.

It builds one source once for each factor, launches it, and prints the sums. A factor that is no number does
not compile, and the error's name is printed. ``kill`` as a factor kills the parent process there.
"""

import os
import signal
import sys
import warnings

import numpy as np
import pyopencl as cl

SOURCE = "kernel void scale(global float *a) { a[get_global_id(0)] *= FACTOR; }\n"

warnings.simplefilter("ignore")  # of compilers' words
platform = next(each for each in cl.get_platforms() if each.name.startswith(sys.argv[1]))
context = cl.Context(platform.get_devices()[:1])
queue = cl.CommandQueue(context)
for factor in sys.argv[2:] or ["2"]:
    if factor == "kill":
        os.kill(os.getppid(), signal.SIGKILL)
        continue
    try:
        program = cl.Program(context, SOURCE).build(f"-DFACTOR={factor}")
    except cl.RuntimeError as error:
        sys.stdout.write(f"{type(error).__name__} {error.code}\n")
        continue
    values = np.ones(64, np.float32)
    buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
    program.scale(queue, (64,), (16,), buffer)
    cl.enqueue_copy(queue, values, buffer)
    sys.stdout.write(f"{values.sum()}\n")
    sys.stdout.flush()
