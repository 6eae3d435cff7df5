"""Compiles sources with one real compiler and prints the value of the macro V; run as a child process.

Reads ``{"compiler": "pocl" | "intel" | "nvrtc", "jobs": [{"source", "options", "cwd"}]}`` from stdin,
writes one value per job to stdout: the integer, or the compiler's message if it refused.
"""

import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from gpucache.backends.cuda.options import FILE_NAME

Compile = Callable[[str, list[str]], int | str]
_PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}


def _opencl(platform_name: str) -> Compile:
    import pyopencl as cl
    from pyopencl import _cl

    platform = next(each for each in cl.get_platforms() if each.name.startswith(platform_name))
    device = platform.get_devices()[0]
    context = cl.Context([device])
    queue = cl.CommandQueue(context)

    def run(source: str, options: list[str]) -> int | str:
        program = _cl._Program(context, source)
        try:
            program.build(" ".join(options).encode(), [device])
        except cl.Error as error:
            return str(error)
        out = np.full(1, -1, np.int32)
        buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY | cl.mem_flags.COPY_HOST_PTR, hostbuf=out)
        kernel = cl.Kernel(program, "show")
        kernel.set_args(buffer)
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), None)
        cl.enqueue_copy(queue, out, buffer)
        return int(out[0])

    return run


def _nvrtc() -> Compile:
    from cuda.bindings import nvrtc

    def run(source: str, options: list[str]) -> int | str:
        _, program = nvrtc.nvrtcCreateProgram(source.encode(), FILE_NAME.encode(), 0, [], [])
        words = [b"-arch=compute_80", *(word.encode() for word in options)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(words), words)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            _, size = nvrtc.nvrtcGetProgramLogSize(program)
            log = b" " * size
            nvrtc.nvrtcGetProgramLog(program, log)
            return bytes(log).decode(errors="replace")
        _, size = nvrtc.nvrtcGetPTXSize(program)
        ptx = b" " * size
        nvrtc.nvrtcGetPTX(program, ptx)
        stored = re.search(rb"(?:mov|st)\.[\w.]+\s+[^;]*, (\d+);", ptx)
        return int(stored[1]) if stored else 0

    return run


@cache
def compiler(name: str) -> Compile:
    """One that is loaded once in a process."""
    return _nvrtc() if name == "nvrtc" else _opencl(_PLATFORMS[name])


def main() -> None:
    warnings.simplefilter("ignore")
    request: dict[str, Any] = json.load(sys.stdin)
    run = compiler(request["compiler"])
    answers = []
    for job in request["jobs"]:
        os.chdir(job["cwd"])
        answers.append(run(job["source"], job["options"]))
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
