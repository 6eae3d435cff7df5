"""The arguments of kernels with checks: numbers arrive as they are passed, and quickly."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_python

pytestmark = pytest.mark.slow

_SCRIPT = """
import json
import numpy as np
import pyopencl as cl
from gpucache import opencl
from gpucache.backends.opencl.checked import CheckedKernel

SOURCE = '''
#include <gpucache/check.h>
kernel void keep(GPUCACHE_CHECKED global long *out, int a, float b, char c, int2 d, local int *e) {
    GPUCACHE_BEGIN;
    out[0] = a; out[1] = (long)(b * 8); out[2] = c; out[3] = d.y;
}
'''
device = next(one for one in cl.get_platforms() if one.name.startswith("Intel")).get_devices()[0]
context = cl.Context([device])
queue = opencl.CheckedQueue(cl.CommandQueue(context))
program = opencl.build_program(context, SOURCE, checks="async")
out = cl.Buffer(context, cl.mem_flags.READ_WRITE, 32)
found = np.empty(4, np.int64)
def launch(kernel, *args):
    queue.launch(kernel, (1,), (1,), out, *args, pair, cl.LocalMemory(4))
    queue.synchronise()
    cl.enqueue_copy(queue.queue, found, out)
    return found.tolist()
pair, kernel = cl.cltypes.make_int2(3, 4), program.keep
slow = []
def spy(self, args):
    slow.extend(type(arg).__name__ for arg in args if isinstance(arg, np.number))
    cl.Kernel._set_arg_multi(self, args)
CheckedKernel._set_arg_multi = spy
told = [launch(kernel, np.int32(-2), np.float32(0.5), np.int8(-1))]
told.append(launch(kernel, np.uint32(0xFFFFFFFF), np.float32(2), np.uint8(255)))
own = program.all_kernels()[0]
own.set_scalar_arg_dtypes([None, np.int32, None, np.int32, np.float32, np.int8, None, None])
told.append(launch(own, 7, 1.5, 3))
print(json.dumps([told, slow]))
"""


def test_numbers_arrive_as_they_are_passed(opencl_environment: Mapping[str, str], tmp_path: Path) -> None:
    """Of the types that they have, or that the user gave the kernel, and not by PyOpenCL's slow way."""
    environ = {**opencl_environment, "GPUCACHE_DIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    told: list[Any] = json.loads(run_python("-c", _SCRIPT, env=environ))
    assert told == [[[-2, 4, -1, 4], [-1, 16, -1, 4], [7, 12, 3, 4]], []]
