"""A program of ``build_program`` next to PyOpenCL's own: its information, and its warnings."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_python, warm_misses
from tests.pocl import need_pocl

pytestmark = pytest.mark.slow

_PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}
_BEGINNING = """
import contextlib, io, json, os, sys, warnings
import numpy as np
import pyopencl as cl
from gpucache.opencl import build_program

SOURCE = '''#warning "beware"
__attribute__((reqd_work_group_size(4, 1, 1)))
kernel void fixed(global int *out) { out[get_global_id(0)] = A; }
kernel void show(global int *out) { *out = A; }
'''
name = sys.argv[1]
device = next(each for each in cl.get_platforms() if each.name.startswith(name)).get_devices()[0]
context = cl.Context([device])

def theirs(source=SOURCE, options="-DA=3", **more):
    return cl.Program(context, source).build(options, **more)

def ours(source=SOURCE, options="-DA=3", **more):
    return build_program(context, source, options=options, **more)

def error(build, *arguments, **more):
    '''The class and first line of what a build raises.'''
    try:
        build(*arguments, **more)
    except Exception as error:
        return [type(error).__name__, str(error).splitlines()[0]]
"""
_SAYING = """
def said(build):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = build()
    log = program.get_build_info(device, cl.program_build_info.LOG)
    fixed, out = cl.Kernel(program, "fixed"), cl.Buffer(context, cl.mem_flags.READ_WRITE, 64)
    queue, captured = cl.CommandQueue(context), io.StringIO()
    program.show.capture_call(captured, queue, (1,), (1,), out)
    fixed.set_arg(0, out)
    return {
        "sources": [program.source, program.get_info(cl.program_info.SOURCE)],
        "kernels": [program.kernel_names, program.num_kernels, len(program.all_kernels())],
        "options": program.get_build_info(device, cl.program_build_info.OPTIONS),
        "log": sum("beware" in line for line in log.splitlines()),  # PoCL's names a file of its own
        "warnings": [[each.category.__name__, str(each.message), each.filename] for each in caught],
        "captured": SOURCE in captured.getvalue(),
        "size": fixed.get_work_group_info(cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, device),
        "wrong size": error(cl.enqueue_nd_range_kernel, queue, fixed, (8,), (2,)),
        "no kernel": error(cl.Kernel, program, "none"),
        "no attribute": error(getattr, program, "none"),
        "of its context": program.context == context,
    }

def listened(build):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build()
    return ["beware" in str(each.message) for each in caught if each.category is cl.CompilerWarning]
"""

Run = Callable[..., Any]


@pytest.fixture
def environment(opencl_environment: Mapping[str, str], tmp_path: Path) -> dict[str, str]:
    """A cache of this test alone, and PoCL with two devices; PyOpenCL's own cache is off."""
    (tmp_path / "pocl").mkdir()
    own = {
        "GPUCACHE_DIR": str(tmp_path / "cache"),
        "POCL_CACHE_DIR": str(tmp_path / "pocl"),
        "POCL_DEVICES": "pthread basic",
        "PYOPENCL_NO_CACHE": "1",
    }
    return {**opencl_environment, **own}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """The output of a script that may build one program both ways on a platform."""

    def run(platform: str, script: str, **settings: str) -> Any:
        if platform == "pocl":
            need_pocl()
        return json.loads(
            run_python("-c", _BEGINNING + script, _PLATFORMS[platform], env={**environment, **settings})
        )

    return run


@pytest.fixture
def warm(environment: dict[str, str]) -> Callable[[], None]:
    """Build the programs left for later, as on a compiler that builds late."""

    return lambda: warm_misses(environment)


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_a_program_says_of_itself_what_pyopencls_does(
    run: Run, warm: Callable[[], None], platform: str
) -> None:
    """Source, log, options, kernels, warnings and errors are the same after a miss and after any hit."""
    plain, miss = run(platform, f"{_SAYING}print(json.dumps([said(theirs), said(ours)]))")
    warm()
    script = f"{_SAYING}print(json.dumps([said(ours), said(ours)]))"
    disk, memory = run(platform, script, GPUCACHE_REQUIRE="1")
    assert miss == plain
    assert disk == plain
    assert memory == plain
    assert plain["warnings"]
    assert plain["captured"]


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_a_hit_shows_the_compilers_words_where_pyopencl_would(
    run: Run, warm: Callable[[], None], platform: str
) -> None:
    """With PYOPENCL_COMPILER_OUTPUT the warning of a hit has the compiler's log."""
    run(platform, "ours(); print(0)")
    warm()
    settings = {"GPUCACHE_REQUIRE": "1", "PYOPENCL_COMPILER_OUTPUT": "1"}
    assert run(platform, f"{_SAYING}print(json.dumps(listened(ours)))", **settings) == [True]


_COUNTING = """
asked, real = [], cl._cl._Program._build

def counted(self, *arguments, **more):
    asked.append(1)
    return real(self, *arguments, **more)

cl._cl._Program._build = counted
BROKEN = "kernel void show(global int *out) { *out = ; }"
"""
_STATES = {
    "plain": {},
    "required": {"GPUCACHE_REQUIRE": "1"},
    "disabled": {"GPUCACHE_DISABLE": "1"},
    "read only": {"GPUCACHE_READ_ONLY": "1"},
    "no root": {"GPUCACHE_DIR": "/dev/null/cache"},
}


@pytest.mark.parametrize("state", _STATES)
@pytest.mark.parametrize("platform", _PLATFORMS)
def test_a_program_that_does_not_compile_is_compiled_once(run: Run, platform: str, state: str) -> None:
    """In every state of the cache the compiler is called once, and its error is PyOpenCL's."""
    script = """
outcomes = []
for build in (theirs, ours):
    for options in ("-DA=3", "-MD"):  # the latter cannot be keyed
        asked.clear()
        outcomes.append([error(build, BROKEN, options), len(asked)])
print(json.dumps(outcomes))
"""
    kept, unkeyed, *mine = run(platform, f"{_COUNTING}{script}", **_STATES[state])
    assert kept[1] == 1
    if state == "required":
        assert [[raised[0], asked] for raised, asked in mine] == [["CacheMissError", 0]] * 2
    else:
        assert mine == [kept, unkeyed]


def test_a_warning_that_is_an_error_is_pyopencls(run: Run) -> None:
    """If warnings are errors, a hit raises PyOpenCL's like the build from source, and builds nothing."""
    script = """
warnings.simplefilter("error", cl.CompilerWarning)
outcomes = []
for build in (theirs, ours):
    asked.clear()
    outcomes.append([error(build), len(asked)])
print(json.dumps(outcomes))
"""
    run("intel", "ours(); print(0)")
    plain, hit = run("intel", f"{_COUNTING}{script}")
    assert plain[0][0] == "CompilerWarning"
    assert hit == plain


_VALUE = """
def value(program):
    kernel, out = cl.Kernel(program, "show"), np.zeros(1, np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, 4)
    kernel.set_arg(0, buffer)
    queue = cl.CommandQueue(context)
    cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
    cl.enqueue_copy(queue, out, buffer)
    return int(out[0])
"""
_SPIR_V = """
import struct

def instruction(code, *operands):
    return [len(operands) + 1 << 16 | code, *operands]

def spir_v(order):
    '''A module of one kernel, show, that writes 7.'''
    name = struct.unpack("<2I", b"show" + bytes(4))
    body = [(17, 4), (17, 6), (14, 2, 2), (15, 6, 6, *name), (19, 1), (21, 2, 32, 0), (43, 2, 3, 7)]
    body += [(32, 4, 5, 2), (33, 5, 1, 4), (54, 1, 6, 0, 5), (55, 4, 7), (248, 8), (62, 7, 3, 2, 4)]
    words = [0x07230203, 0x10000, 0, 9, 0]
    for one in [*body, (253,), (56,)]:
        words += instruction(*one)
    return struct.pack(f"{order}{len(words)}I", *words)
"""


def test_spir_v_is_built_as_pyopencl_does(run: Run, tmp_path: Path) -> None:
    """IL in place of a source runs if PyOpenCL runs it and is kept, else raises its error."""
    script = """
import logging
told = io.StringIO()
logging.basicConfig(stream=told, format="%(message)s")
little, big = spir_v("<"), spir_v(">")
print(json.dumps([value(ours(little)), error(theirs, big), error(ours, big), told.getvalue()]))
"""
    ran, theirs, mine, told = run("intel", _VALUE + _SPIR_V + script)
    assert ran == 7
    assert mine == theirs
    assert told == ""
    assert len(list((tmp_path / "cache").rglob("*.gpc"))) == 1


def test_a_program_may_be_for_some_devices_of_its_context(run: Run, warm: Callable[[], None]) -> None:
    """``devices`` selects the devices to build for; an invalid selection is PyOpenCL's error."""
    script = """
from pyopencl import program_build_info, program_info
context = cl.Context(device.platform.get_devices())
first, second = context.devices

def built(build, devices):
    program = build(devices=devices)
    known = program.get_info(program_info.DEVICES)
    return [program.get_build_info(one, program_build_info.STATUS) for one in known if one == second]

chosen = [[second], [second, first], None, [], [second, second]]
print(json.dumps([[built(build, devices) for devices in chosen] for build in (theirs, ours)]))
"""
    plain, miss = run("pocl", script)
    warm()
    _, hit = run("pocl", script)
    assert miss == plain
    assert hit == plain
    required = script.replace("chosen = ", "chosen = [[second], [second, first], None] or ")
    assert run("pocl", required, GPUCACHE_REQUIRE="1")[1] == plain[:3]


def test_what_pyopencl_adds_for_a_platform_is_keyed(run: Run) -> None:
    """Options that PyOpenCL adds to every build of a platform, as for debugging, make another program."""
    script = """
before = value(ours())
cl._PLAT_BUILD_OPTIONS[device.platform.name] = ["-D", "A=4"]
print(json.dumps([before, value(ours()), value(ours()), value(theirs())]))
"""
    assert run("intel", _VALUE + script) == [3, 4, 4, 4]


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_a_program_may_put_it_in_the_place_of_pyopencls(
    run: Run, warm: Callable[[], None], platform: str
) -> None:
    """If ``Program.build`` was made to call it, a miss, a hit and an uncached build still end."""
    script = """
def build(self, options=None, devices=None, cache_dir=None):
    return build_program(self._context, self._source, options=options, devices=devices)

cl.Program.build = build
clock = SOURCE.replace("= A", "= A + 0 * __LINE__ * sizeof(__TIME__)")
print(json.dumps([value(theirs()), value(theirs(clock))]))
"""
    assert run(platform, _VALUE + script) == [3, 3]
    warm()
    assert run(platform, _VALUE + script) == [3, 3]
