"""A program that prints the lines of its log that name a file or the options: ``HOW WHERE OPTION...``.

``HOW`` is ``nvrtc``, ``plain``, ``library`` or ``link``;
``WHERE`` is the beginning of an OpenCL platform's name.
"""

import sys
import warnings

how, where, *options = sys.argv[1:]
if how == "nvrtc":
    from cuda.bindings import nvrtc

    source = b'#include "warns.h"\nextern "C" __global__ void k(int *o) { *o = VALUE; }'
    _, program = nvrtc.nvrtcCreateProgram(source, b"k.cu", 0, [], [])
    given = [b"-arch=sm_90", *(option.encode() for option in options)]
    nvrtc.nvrtcCompileProgram(program, len(given), given)
    data = bytes(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, data)
    log = data.decode()
else:
    import pyopencl as cl

    warnings.simplefilter("ignore")
    text = '#include "warns.h"\nkernel void k(global int *o) { *o = VALUE; }'
    platform = next(each for each in cl.get_platforms() if each.name.startswith(where))
    context = cl.Context(platform.get_devices()[:1])
    if how == "library":
        from gpucache.opencl import build_program

        built = build_program(context, text, options=options)
    elif how == "link":
        built = cl.link_program(context, [cl.Program(context, text).compile(options)])
    else:
        built = cl.Program(context, text).build(options)
    log = built.get_build_info(context.devices[0], cl.program_build_info.LOG)
for line in dict.fromkeys(log.splitlines()):
    if "warns" in line or "Options" in line:
        sys.stdout.write(f"{line}\n")
