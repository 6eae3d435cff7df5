"""Builds through PyOpenCL without its cache, and prints its information and results. Usage: PLATFORM."""

import sys

import numpy as np
import pyopencl as cl

SOURCE = """
kernel void scale(global float *out, const float by) { out[get_global_id(0)] *= by * N; }
kernel void shift(global float *out) { out[get_global_id(0)] += N; }
"""


def main(name: str) -> None:
    platform = next(each for each in cl.get_platforms() if each.name == name)
    facts: list[object] = []
    context = cl.Context(platform.get_devices()[:1])
    [device] = context.devices
    queue = cl.CommandQueue(context)
    for number in (2, 3):
        handle = cl._cl._Program(context, SOURCE)
        handle._build(options=b"-DN=%d" % number, devices=[device])
        program = cl.Program(handle)
        facts += [program.get_info(cl.program_info.KERNEL_NAMES), program.num_kernels]
        facts.append(program.get_build_info(device, cl.program_build_info.OPTIONS))
        facts.append(repr(program.get_build_info(device, cl.program_build_info.LOG)))
        kernels = sorted(program.all_kernels(), key=lambda kernel: str(kernel.function_name))
        facts.append([(kernel.function_name, kernel.num_args, kernel.attributes) for kernel in kernels])
        facts.append([kernel.get_info(cl.kernel_info.PROGRAM) == handle for kernel in kernels])
        values = np.arange(64, dtype=np.float32)
        buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
        kernels[0](queue, (64,), (8,), buffer, np.float32(0.5))
        kernels[1](queue, (64,), None, buffer)
        cl.enqueue_copy(queue, values, buffer)
        facts.append(values.tolist())
    sys.stdout.write("\n".join(map(str, facts)))


main(sys.argv[1])
