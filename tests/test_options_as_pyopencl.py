"""``build_program`` next to PyOpenCL's own build: the same options, the same values, the same fallback."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_python, run_text
from tests.pocl import need_pocl

pytestmark = pytest.mark.slow

_PROCESS = Path(__file__).with_name("library_process.py")
_PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}
_BESIDE = """
import json, sys
import numpy as np
import pyopencl as cl
from gpucache.backends.opencl import compiler
from gpucache.opencl import pyopencl_builds
from gpucache.opencl import build_program

SOURCE = '''
#ifndef A
#define A 3
#endif
#ifndef B
#define B 4
#endif
kernel void show(global int *out) { *out = (A) * 10 + (B); }
'''
name = sys.argv[1]
device = next(each for each in cl.get_platforms() if each.name.startswith(name)).get_devices()[0]
context = cl.Context([device])

def value(program):
    kernel, out = cl.Kernel(program, "show"), np.full(1, -1, np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=out)
    kernel.set_arg(0, buffer)
    queue = cl.CommandQueue(context)
    cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
    cl.enqueue_copy(queue, out, buffer)
    return int(out[0])

def theirs(options):
    return value(cl.Program(context, SOURCE).build(options=options))

def ours(options):
    return value(build_program(context, SOURCE, options=options))

"""

Beside = Callable[[str, str], Any]


@pytest.fixture
def environment(opencl_environment: Mapping[str, str], tmp_path: Path) -> dict[str, str]:
    """A cache of this test alone; PyOpenCL's own is off."""
    (tmp_path / "pocl").mkdir()
    own = {
        "GPUCACHE_DIR": str(tmp_path / "cache"),
        "GPUCACHE_MEMORY_BYTES": "0",
        "POCL_CACHE_DIR": str(tmp_path / "pocl"),
        "PYOPENCL_NO_CACHE": "1",
    }
    return {**opencl_environment, **own}


@pytest.fixture
def beside(environment: dict[str, str]) -> Beside:
    """The output of a script that builds one program both ways on a platform."""

    def run(platform: str, script: str) -> Any:
        if platform == "pocl":
            need_pocl()
        return json.loads(run_python("-c", _BESIDE + script, _PLATFORMS[platform], env=environment))

    return run


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_options_mean_what_they_mean_to_pyopencl(beside: Beside, platform: str) -> None:
    """Several options in one string, none, None, and a text give the values of PyOpenCL's own build."""
    options = [
        ["-D A=1 -D B=2"],
        ["-D", "A=1", "-DB=2"],
        "-D A=1 -DB=2",
        [" -DA=1  "],
        ["-D A=1", ""],
        [],
        None,
    ]
    script = f"print(json.dumps([[ours(options), theirs(options or [])] for options in {options!r}]))"
    pairs = beside(platform, script)
    assert pairs == [[12, 12], [12, 12], [12, 12], [14, 14], [14, 14], [34, 34], [34, 34]]


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_a_define_may_hold_a_space(beside: Beside, platform: str) -> None:
    """A quoted value with white space reaches the driver as one; a text is quoted as for a shell."""
    options = ["'-DA=\"1 + 1\"'", ['-DA="1 + 1"'], ['-DA="1 + 1" -DB=5'], ["-DB=5", '-DA="1 + 1"']]
    script = f"print(json.dumps([ours(options) for options in {options!r}]))"
    assert beside(platform, script) == [24, 24, 25, 25]


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_pyopencls_variable_means_what_it_means_to_pyopencl(
    beside: Beside, environment: dict[str, str], platform: str
) -> None:
    """Quotes in PYOPENCL_BUILD_OPTIONS give the value of PyOpenCL's own build."""
    environment["PYOPENCL_BUILD_OPTIONS"] = "-DA='3' -DB=\"1 + 1\""
    ours, theirs = beside(platform, "print(json.dumps([ours(None), theirs([])]))")
    assert ours == theirs == ord("3") * 10 + 2


def test_what_the_compiler_refuses_is_refused(beside: Beside) -> None:
    """A spelling that PoCL's and Intel's compilers refuse is not a hit on one that they accept."""
    script = """
def outcome(build, options):
    try:
        return build(options)
    except Exception as error:
        return type(error).__name__

listed = [["-I."], ["/I."], ["-DA=1"], ["-DA=1\\n"], ["-DA=1\\x0b-DB=2"], ["-DA=1", "-x"]]
print(json.dumps([[outcome(ours, options), outcome(theirs, options)] for options in listed]))
"""
    pairs = beside("intel", script)
    assert [mine for mine, _ in pairs] == [others for _, others in pairs]
    assert pairs[1] == ["RuntimeError", "RuntimeError"]


def test_an_open_quote_raises_what_pyopencl_raises(beside: Beside) -> None:
    """Options in a text with an open quote end in PyOpenCL's own error, with and without directories."""
    script = """
def error(build, **more):
    try:
        build(context, SOURCE, options="-DA='3", **more)
    except Exception as error:
        return [type(error).__name__, str(error)]

def plain(context, source, options):
    cl.Program(context, source).build(options=options)

print(json.dumps([error(plain), error(build_program), error(build_program, include_path=["/"])]))
"""
    theirs, *ours = beside("pocl", script)
    assert ours == [theirs, theirs]
    assert theirs[0] == "ValueError"


def test_no_options_are_none(beside: Beside) -> None:
    """None, an empty text and an empty list are one program, compiled once."""
    script = """
asked = []
real = pyopencl_builds.build_as_pyopencl
pyopencl_builds.build_as_pyopencl = lambda *arguments: (asked.append(1), real(*arguments))[1]
print(json.dumps([[ours(options) for options in (None, "", [], ())], len(asked)]))
"""
    assert beside("intel", script) == [[34, 34, 34, 34], 1]


def test_a_driver_without_binaries_still_runs_the_program(beside: Beside) -> None:
    """A driver's error after the build, when asked for the binary, leaves the program that was built."""
    script = """
def failing(program, device):
    asked.append(1)
    return cl.Kernel(cl.Program(program), "no_such_kernel")

asked, compiler._binary = [], failing
print(json.dumps([ours(["-DA=1"]), len(asked)]))
"""
    assert beside("intel", script) == [14, 1]


def test_a_header_behind_a_macro_is_found_as_warm_built_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """A program warmed by a manifest that names its headers is a hit for a library call that names them."""
    need_pocl()
    source = '#define NAME "value.h"\n#include NAME\nkernel void show(global int *out) { *out = V; }'
    (tmp_path / "value.h").write_text("#define V 7\n", encoding="ascii")
    (tmp_path / "show.cl").write_text(source, encoding="ascii")
    (tmp_path / "gpucache.toml").write_text(
        '[[program]]\nsource = "show.cl"\ninclude = ["."]\n'
        'headers = ["value.h"]\ntargets = ["opencl:pocl"]\n',
        encoding="ascii",
    )
    warmed = run_text(
        [sys.executable, "-m", "gpucache", "warm", "--manifest", str(tmp_path / "gpucache.toml")],
        env=environment,
    )
    assert warmed.returncode == 0, warmed.stdout + warmed.stderr
    named = {"include_path": [str(tmp_path)], "headers": ["value.h"]}
    job = {"source": source, "platform": _PLATFORMS["pocl"], "arguments": named, "cwd": str(tmp_path)}
    done = run_text(
        [sys.executable, _PROCESS, "opencl"], input=json.dumps([{**job, "compiling": False}]), env=environment
    )
    (outcome,) = json.loads(done.stdout.removeprefix("ready\n"))
    assert (outcome["error"], outcome["compiled"], outcome["values"]) == (None, 0, [[7]])
