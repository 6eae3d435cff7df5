"""Programs that are built already: one for all requests of a key in a context, if none can tell."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_python
from tests.pocl import PLATFORM, need_pocl

pytestmark = pytest.mark.slow
_BEGIN = """
import gc, json, sys, threading, weakref
import pyopencl as cl
from gpucache.opencl import pyopencl_builds
from gpucache.library.missing import flush
from gpucache.opencl import build_program
platform = next(each for each in cl.get_platforms() if each.name.startswith(sys.argv[1]))
context = cl.Context(platform.get_devices()[:1])
PLAIN = "kernel void k(global int *a) { a[0] = V; }"
COUNTER = "global int n; kernel void k(global int *a) { a[0] = n++; }"
def build(source=PLAIN, options="-DV=1", where=context, reuse=True):
    return build_program(where, source, options=options, reuse=reuse)
"""


@pytest.fixture(params=["Intel", PLATFORM], ids=["intel", "pocl"])
def told(request: pytest.FixtureRequest, opencl_environment: Mapping[str, str], tmp_path: Path) -> Any:
    """Run a script, and return the JSON that it prints."""
    if request.param == PLATFORM:
        need_pocl()
    environ = {**opencl_environment, "GPUCACHE_DIR": str(tmp_path / "root"), "POCL_CACHE_DIR": str(tmp_path)}

    def run(script: str) -> Any:
        return json.loads(run_python("-c", _BEGIN + script, request.param, env=environ))

    return run


def test_an_equal_request_gets_the_same_program(told: Any) -> None:
    """In the same context, if it asks for that; any other gets one of its own."""
    same = """
first = build()
others = [build(), build(options="-DV=2"), build(PLAIN + " "), build(where=cl.Context(context.devices))]
print(json.dumps([*(one is first for one in others), build(reuse=False) is first]))
"""
    assert told(same) == [True, False, False, False, False]


def test_a_program_with_variables_is_built_for_each_request(told: Any) -> None:
    """Its callers would share them."""
    assert (
        told('print(json.dumps(build(COUNTER, "-cl-std=CL2.0") is build(COUNTER, "-cl-std=CL2.0")))') is False
    )


def test_a_device_of_the_same_model_has_a_program_of_its_own(told: Any) -> None:
    """Both have one key, and a program is for the devices that it was built for."""
    halves = """
try:
    parts = context.devices[0].create_sub_devices([cl.device_partition_property.EQUALLY, 1])[:2]
except cl.Error:
    parts = []
both = cl.Context(parts) if len(parts) > 1 else None
found = both and [build_program(both, PLAIN, options="-DV=1", devices=[one], reuse=True) for one in parts]
status = cl.program_build_info.STATUS
built = [one.get_build_info(part, status) == 0 for one, part in zip(found or (), parts)]
print(json.dumps(found and [found[0] is found[1], *built]))
"""
    found = told(halves)
    if found is None:
        pytest.skip("this device has no parts")
    assert found == [False, True, True]


def test_a_program_that_is_reused_reports_its_own_checks(told: Any) -> None:
    """The numbers of failures belong to the program, whoever asked for it first."""
    checked = """
import numpy
from gpucache.opencl import CheckedQueue
CHECKED = '''#include "gpucache/check.h"
kernel void k(GPUCACHE_CHECKED global int *a) { GPUCACHE_BEGIN; GPUCACHE_CHECK(a[0] == 3, "a is %d", a[0]); }
'''
def failure():
    program = build_program(context, CHECKED, checks="sync", reuse=True)
    queue = CheckedQueue(cl.CommandQueue(context))
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    try:
        queue.launch(program.k, (1,), (1,), cl.Buffer(context, flags, hostbuf=numpy.zeros(4, numpy.int32)))
        queue.finish()
    except Exception as error:
        return str(error)
print(json.dumps([failure(), failure()]))
"""
    first, second = told(checked)
    assert "a is 0" in first and first == second


def test_programs_go_with_their_context(told: Any) -> None:
    """And a context keeps a number of them."""
    ends = """
build()
gone = weakref.ref(context)
first = build(options="-DV=0")
for number in range(1, 129): build(PLAIN + " " * number, "-DV=0")
again = build(options="-DV=0") is first
del first, context
build.__defaults__ = None
gc.collect()
print(json.dumps([again, gone() is None]))
"""
    assert told(ends) == [False, True]


def test_threads_share_one_build_or_one_error(told: Any) -> None:
    """The first builds while the others wait; after a retry all have the same error."""
    threads = """
asked, real = [], pyopencl_builds._BUILD
def count(*given, **named):
    asked.append(1)
    return real(*given, **named)
pyopencl_builds._BUILD = count
barrier = threading.Barrier(8)
def ask(given, found):
    barrier.wait()
    try:
        found.append(build(options=given))
    except cl.RuntimeError as error:
        found.append(str(error))
def all_of(given):
    found = []
    started = [threading.Thread(target=ask, args=(given, found)) for _ in range(8)]
    for one in started: one.start()
    for one in started: one.join()
    return len({*map(id, found)}), len(found), len(asked)
good = all_of("-DV=5")
asked.clear()
print(json.dumps([good, all_of("-DV=nothing")[1:]]))
"""
    assert told(threads) == [[1, 8, 1], [8, 2]]
