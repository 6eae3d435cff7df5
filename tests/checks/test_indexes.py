"""Checks of an index that know the size of their buffer, without a number in the source."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpucache.checks.calls import instrument
from gpucache.checks.failures import MAX_SIZES, UNKNOWN_SIZE, sizes_of
from gpucache.errors import SourceError
from gpucache.model import Checks
from tests.children import run_python
from tests.pocl import PLATFORM, need_pocl

_KERNEL = "kernel void pick(GPUCACHE_CHECKED global const int *from, global double *restrict to, int n) {"
_SCRIPT = """
import json, sys
import numpy as np
import pyopencl as cl
from gpucache import opencl
from gpucache.errors import KernelCheckError

SOURCE = '''
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#include <gpucache/check.h>
kernel void pick(GPUCACHE_CHECKED global const int *from, global double *restrict to, int at) {
    GPUCACHE_BEGIN;
    GPUCACHE_CHECK_INDEX(from, at);
    GPUCACHE_CHECK_INDEX(to, from[at]);
    to[from[at]] = 1;
}
kernel void total(GPUCACHE_CHECKED global int *a, local int *part, int n) {
    GPUCACHE_BEGIN_SYNC;
    GPUCACHE_CHECK_INDEX_SYNC(done, a, n - 1);  // once for the loop
    for (int i = 0; i < n; i++) part[0] = a[i];
    GPUCACHE_END_SYNC(done);
}
'''
platform, mode = sys.argv[1:]
device = next(one for one in cl.get_platforms() if one.name.startswith(platform)).get_devices()[0]
context = cl.Context([device])
queue = opencl.CheckedQueue(cl.CommandQueue(context))
program = opencl.build_program(context, SOURCE, checks=mode, name="k.cl", local_sizes=[1])
kernels = {one.function_name: one for one in program.all_kernels()}
def buffer(values, kind=np.int32):
    return cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.asarray(values, kind))
def launch(name, *args):
    try:
        queue.launch(kernels[name], (1,), (1,), *args)
        queue.synchronise()
    except KernelCheckError as error:
        return str(error).partition(": ")[2].partition(" (")[0]
four, two, large = buffer([0, 1, 2, -1]), buffer([0, 0], np.float64), buffer([9] * 100)
told = [launch("pick", four, two, np.int32(at)) for at in (0, 1, 2, 3, 4, -1)]
told += [launch("pick", large, two, np.int32(at)) for at in (99, 100)]
told.append(launch("pick", four, two, np.int32(0)))
told += [launch("total", four, cl.LocalMemory(4), np.int32(n)) for n in (4, 5)]
print(json.dumps(told))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async", "none"])
@pytest.mark.parametrize("platform", ["Intel", PLATFORM], ids=["intel", "pocl"])
def test_each_buffer_has_its_size(
    platform: str, mode: str, opencl_environment: Mapping[str, str], tmp_path: Path
) -> None:
    """As it is at each launch, for elements of any type, with barriers and without."""
    if platform == PLATFORM:
        need_pocl()
    environ = {**opencl_environment, "GPUCACHE_DIR": str(tmp_path / "root"), "POCL_CACHE_DIR": str(tmp_path)}
    if mode == "none":
        script = _SCRIPT.replace("for at in (0, 1, 2, 3, 4, -1)", "for at in (0, 1)")
        script = script.replace("for at in (99, 100)", "for at in ()").replace(
            "for n in (4, 5)", "for n in (4,)"
        )
        assert json.loads(run_python("-c", script, platform, mode, env=environ)) == [None] * 4
        return
    told: Any = json.loads(run_python("-c", _SCRIPT, platform, mode, env=environ))
    outside = "index {} is outside of {}, which has {} elements".format
    assert told == [
        *(None, None, outside(2, "to", 2), outside(-1, "to", 2)),
        *(outside(4, "from", 4), outside(-1, "from", 4)),
        *(outside(9, "to", 2), outside(100, "from", 100)),
        *(None, None, outside(4, "a", 4)),
    ]


def test_a_buffer_is_named_by_its_place() -> None:
    """Among the kernel's own parameters."""
    done = instrument(f"{_KERNEL} GPUCACHE_CHECK_INDEX(to, n + 1); }}".encode(), Checks.SYNC)
    assert b"GPUCACHE_CHECK_INDEX_N(0, 1, to, n + 1);" in done.source
    [check] = done.table
    assert (check.function, check.message) == ("pick", "index %d is outside of to, which has %d elements")


@pytest.mark.parametrize("call", ["other, 1", "to + 1, 1", "to", "to, 1, 2", "", "from[0], 1"])
def test_what_is_no_parameter_of_the_kernel_is_refused(call: str) -> None:
    """Its size is not known."""
    with pytest.raises(SourceError, match="GPUCACHE_CHECK_INDEX"):
        instrument(f"{_KERNEL} GPUCACHE_CHECK_INDEX({call}); }}".encode(), Checks.SYNC)


def test_sizes_that_are_not_known_are_the_largest() -> None:
    """Then every index is inside."""
    words = memoryview(sizes_of([4, None, *[8] * 100])).cast("Q")
    assert (len(words), *words[:3]) == (MAX_SIZES, 4, UNKNOWN_SIZE, 8)
