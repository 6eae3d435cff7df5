"""A PyOpenCL program that compiles and links separately: ``linking_program.py PLATFORM STEP...``.

``header=N`` writes the header of ``main``, in the current directory; a name of ``SOURCES`` compiles that
part, with options after a ``:``; ``link=main+lib`` links parts, with options after a ``:``, and prints the
result; ``NAME==VALUE`` sets a variable.
"""

import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pyopencl as cl

SOURCES = {
    "main": '#include "it.h"\nint twice(int a);\nkernel void show(global int *o) { *o = twice(HEADER); }\n',
    "lib": "#ifndef F\n#define F 2\n#endif\n__attribute__((weak)) int twice(int a) { return F * a; }\n",
    "other": "__attribute__((weak)) int twice(int a) { return 100 * a; }\n",
    "timed": "int twice(int a) { return sizeof(__TIME__) * a; }\n",
}

warnings.simplefilter("ignore")  # of compilers' words
platform = next(each for each in cl.get_platforms() if each.name.startswith(sys.argv[1]))
context = cl.Context(platform.get_devices()[:1])
queue = cl.CommandQueue(context)
parts: dict[str, cl.Program] = {}
for step in sys.argv[2:]:
    name, sign, value = step.partition("==")
    if sign:
        os.environ[name] = value
        continue
    name, _, options = step.partition(":")
    if name.startswith("header="):
        Path("it.h").write_text(f"#define HEADER {name.removeprefix('header=')}\n")
    elif name.startswith("link="):
        given = [parts[part] for part in name.removeprefix("link=").split("+")]
        try:
            linked = cl.link_program(context, given, options.split())
        except cl.RuntimeError as error:
            sys.stdout.write(f"{error.code}\n")
            continue
        if "-create-library" in options:
            parts["library"] = linked
            continue
        out = np.zeros(1, np.int32)
        buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=out)
        cl.Kernel(linked, "show")(queue, (1,), None, buffer)
        cl.enqueue_copy(queue, out, buffer)
        sys.stdout.write(f"{out[0]}\n")
    else:
        parts[name] = cl.Program(context, SOURCES[name]).compile(options.split())
