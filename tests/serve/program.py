"""A PyOpenCL program without any knowledge of gpucache: ``program.py PLATFORM [FACTOR...]``.

It builds one source once for each factor, launches it, and prints the sums. A factor that is not a number
does not compile, and the error is printed. ``kill`` as a factor kills the parent process there. After
``log`` errors come with the compiler's log, and after ``option`` builds have an option that is not served;
``header`` builds with a header that is removed as soon as the build returns. ``NAME=VALUE`` sets a variable;
an empty value removes it.
"""

import os
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyopencl as cl

SOURCE = "kernel void scale(global float *a) { a[get_global_id(0)] *= FACTOR; }\n"

warnings.simplefilter("ignore")  # of compilers' words
platform = next(each for each in cl.get_platforms() if each.name.startswith(sys.argv[1]))
context = cl.Context(platform.get_devices()[:1])
queue = cl.CommandQueue(context)
told, option = False, ""
for factor in sys.argv[2:] or ["2"]:
    if factor in ("log", "option"):
        told, option = told or factor == "log", " -save-temps" if factor == "option" else option
        continue
    if factor == "kill":
        os.kill(os.getppid(), signal.SIGKILL)
        continue
    name, sign, value = factor.partition("=")
    if sign:
        os.environ[name] = value
        if not value:
            del os.environ[name]
        continue
    try:
        program = cl.Program(context, SOURCE)
        if factor == "header":
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "factor.h").write_text("#define FACTOR 4\n")
                program = cl.Program(context, f'#include "factor.h"\n{SOURCE}').build(["-I", folder])
        else:
            program = program.build(f"-DFACTOR={factor}{option}")
    except cl.RuntimeError as error:
        sys.stdout.write(f"{type(error).__name__} {error.code}{f' {error}' if told else ''}\n")
        continue
    values = np.ones(64, np.float32)
    buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
    program.scale(queue, (64,), (16,), buffer)
    cl.enqueue_copy(queue, values, buffer)
    sys.stdout.write(f"{values.sum()}\n")
    sys.stdout.flush()
