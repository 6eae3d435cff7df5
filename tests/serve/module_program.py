"""A program that builds SPIR-V modules in all ways, without any knowledge of gpucache: ``MODULE KHR``.

Each line is the result of a module's kernel, or the driver's error. With ``khr`` modules are made by the
function of the extension.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

il = Path(sys.argv[1]).read_bytes()
platform = next(each for each in cl.get_platforms() if each.name.startswith("Intel"))
context = cl.Context(platform.get_devices()[:1])
queue = cl.CommandQueue(context)


def _maker() -> Callable[[bytes], Any]:
    if "khr" not in sys.argv:
        return lambda data: cl._cl._create_program_with_il(context, data)
    loader = ctypes.CDLL(sys.argv[sys.argv.index("khr") + 1])
    find = loader.clGetExtensionFunctionAddressForPlatform
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
    kind = ctypes.CFUNCTYPE(*[ctypes.c_void_p] * 2, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p)
    make = kind(find(platform.int_ptr, b"clCreateProgramWithILKHR"))
    return lambda data: cl._cl._Program.from_int_ptr(make(context.int_ptr, data, len(data), None), False)


make = _maker()


def program(*constants: tuple[int, Any], data: bytes = il) -> Any:
    made = make(data)
    for number, value in constants:
        made.set_specialization_constant(number, value)
    return made


def built(made: Any, options: bytes = b"") -> Any:
    made._build(options=options, devices=None)
    return made


def result(made: Any) -> int:
    out = np.zeros(4, np.int64)
    buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=out)
    cl.Program(made).spec(queue, (4,), None, buffer)
    cl.enqueue_copy(queue, out, buffer)
    return int(out[3])


def results() -> Iterator[object]:
    two, six, one = (3, np.int32(2)), (3, np.int32(6)), (5, np.int64(1))
    yield result(built(program()))
    yield result(built(program(two)))
    yield result(built(program(one, six, two)))  # the last of a number counts, in any order
    yield result(built(program(two), b"-cl-opt-disable"))
    for options in (b"", b"-cl-opt-disable"):  # after a build, another constant and the same or other options
        made = built(program(two))
        made.set_specialization_constant(*six)
        yield result(built(made, options))
    made = built(program(two))
    yield result(made), result(built(made))
    yield made.get_info(cl.program_info.KERNEL_NAMES), cl.Program(made).spec.get_info(cl.kernel_info.NUM_ARGS)
    yield result(built(program(data=il + bytes(4))))  # a driver may take it
    made = program(two)
    made.compile(options=b"", devices=None, headers=[])
    yield result(cl._cl._Program.link(context, [made], b"", None))


for line in results():
    sys.stdout.write(f"{line}\n")
for wrong in ((99, np.int32(1)), (3, np.int64(1))):
    try:
        program(wrong)
    except cl.Error as error:
        sys.stdout.write(f"{error.code}\n")
