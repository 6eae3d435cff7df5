"""``install``: unmodified programs come from the cache, and nothing else about them changes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_python, warm_misses
from tests.modules import module
from tests.pocl import need_pocl

pytestmark = pytest.mark.slow

_PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}
_BEGINNING = """
import io, json, os, sys, warnings
import numpy as np
import pyopencl as cl

SOURCE = '''#warning "beware"
kernel void show(global int *out) { *out = A; }
'''
platform = next(each for each in cl.get_platforms() if each.name.startswith(sys.argv[1]))
device = platform.get_devices()[0]
context = cl.Context([device])
queue = cl.CommandQueue(context)
build = cl.Program.build

def value(program):
    out = np.zeros(1, np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, 4)
    program.show(queue, (1,), None, buffer)
    cl.enqueue_copy(queue, out, buffer)
    return int(out[0])

def error(call, *arguments, **more):
    try:
        call(*arguments, **more)
    except Exception as error:
        return [type(error).__name__, str(error).splitlines()[0]]

def program(source=SOURCE):
    return cl.Program(context, source)
"""
_SAYING = """
def said():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        one = program()
        built = one.build("-DA=3", devices=[device])
    return {
        "itself": built is one,
        "value": value(built),
        "source": built.source,
        "options": built.get_build_info(device, cl.program_build_info.OPTIONS),
        "kernels": [kernel.function_name for kernel in built.all_kernels()],
        "warnings": [[each.category.__name__, str(each.message)] for each in caught],
        "names": sorted(vars(built)),
        "wrong": error(program("kernel void bad(").build, "-DA=3"),
        "odd options": error(program().build, 7),
        "no devices": error(program().build, "-DA=3", devices=[]),
        "context": error(lambda: built.context) or built.context == context,
    }
"""

Run = Callable[..., Any]


@pytest.fixture
def environment(opencl_environment: Mapping[str, str], tmp_path: Path) -> dict[str, str]:
    """A cache of this test alone, and a PoCL with an empty cache."""
    (tmp_path / "pocl").mkdir()
    return {
        **opencl_environment,
        "GPUCACHE_DIR": str(tmp_path / "cache"),
        "POCL_CACHE_DIR": str(tmp_path / "pocl"),
        "PYOPENCL_NO_CACHE": "1",
    }


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """The output of a script that uses PyOpenCL on a platform."""

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
def test_a_program_is_what_it_was(run: Run, warm: Callable[[], None], platform: str) -> None:
    """Results, warnings and errors of a build are PyOpenCL's own, after a miss and after a hit."""
    script = _SAYING + "print(json.dumps([said(), install() or said()]))"
    plain, miss = run(platform, "from gpucache.opencl import install" + script)
    warm()
    script = (
        "from gpucache.opencl import install\ninstall()"
        + _SAYING
        + "print(json.dumps(value(program().build('-DA=3'))))"
    )
    assert run(platform, script, GPUCACHE_REQUIRE="1") == 3
    script = "from gpucache.opencl import install\ninstall()" + _SAYING + "print(json.dumps(said()))"
    hit = run(platform, script)
    assert miss == plain
    assert hit == plain
    assert plain["warnings"]


def test_libraries_in_the_process_are_served(run: Run) -> None:
    """PyOpenCL's own algorithms build by the same function, and all of them are hits in the next process."""
    script = """
import gpucache.opencl, pyopencl.array, pyopencl.clrandom, pyopencl.reduction, pyopencl.scan
gpucache.opencl.install()
array = cl.array.arange(queue, 400, dtype=np.float32)
scan = pyopencl.scan.GenericScanKernel(
    context, np.float32, "float *a", "a[i]", "a + b", "0", output_statement="a[i] = item")
total = float(cl.array.sum(array).get())
scan(array)
print(json.dumps([total, float(array.get()[-1]), float((array * 2 + 1).get()[1])]))
"""
    first = run("intel", script)
    assert first[:2] == [79800.0, 79800.0]
    assert run("intel", script, GPUCACHE_REQUIRE="1") == first


def test_installing_twice_is_installing_once(run: Run) -> None:
    """One call of ``uninstall`` undoes any number of calls, and the function is PyOpenCL's again."""
    script = """
from gpucache.opencl import install, uninstall
told = [cl.Program.build is build]
install(); install()
told += [cl.Program.build is build, value(program().build("-DA=3"))]
uninstall()
told += [cl.Program.build is build, value(program().build("-DA=4"))]
uninstall()
install()
told += [cl.Program.build is build, value(program().build("-DA=5"))]
print(json.dumps(told))
"""
    assert run("intel", script) == [True, False, 3, True, 4, False, 5]


def test_nothing_is_kept_after_uninstalling(run: Run, tmp_path: Path) -> None:
    """A program that is built afterwards does not go through the cache."""
    script = """
from gpucache.opencl import install, uninstall
install(); uninstall()
print(json.dumps(value(program().build("-DA=3"))))
"""
    assert run("intel", script) == 3
    assert not list(tmp_path.rglob("*.gpc"))


@pytest.mark.parametrize("order", ["before", "after"])
def test_somebody_elses_function_is_called_too(run: Run, order: str) -> None:
    """A function that was installed there before or after ours is called, and each build ends."""
    other = """
from gpucache.opencl import build_program, install, uninstall
seen = []
def put():
    inner = cl.Program.build
    def other(self, *arguments, **more):
        seen.append("other")
        return inner(self, *arguments, **more)
    cl.Program.build = other
"""
    before, after = ("put()", "") if order == "before" else ("", "put()")
    script = (
        other
        + f"""
{before}
install()
{after}
values = [value(program().build("-DA=3")), value(build_program(context, SOURCE, options="-DA=3"))]
uninstall()
values.append(value(program().build("-DA=4")))
install()
values.append(value(program().build("-DA=3")))
uninstall()
print(json.dumps([values, len(seen)]))
"""
    )
    values, calls = run("intel", script)
    assert values == [3, 3, 4, 3]
    assert calls == (1 if order == "before" else 3)


def test_a_build_inside_a_build_is_left_alone(run: Run) -> None:
    """If PyOpenCL's function was replaced by one that calls gpucache, no build recurses forever."""
    script = """
from gpucache.opencl import build_program, install
def theirs(self, options=None, devices=None, cache_dir=None):
    return build_program(self._context, self._source, options=options, devices=devices)
cl.Program.build = theirs
install()
clock = SOURCE.replace("= A", "= A + 0 * __LINE__ * sizeof(__TIME__)")
print(json.dumps([value(program().build("-DA=3")), value(program(clock).build("-DA=3"))]))
"""
    assert run("intel", script) == [3, 3]
    assert run("intel", script) == [3, 3]


def test_what_is_no_source_is_left_to_pyopencl(run: Run, tmp_path: Path) -> None:
    """Binaries, and programs that were already queried, are built as usual."""
    script = """
from gpucache.opencl import install
binary = program().build("-DA=3").get_info(cl.program_info.BINARIES)[0]
install()
of_binary = cl.Program(context, [device], [binary]).build()
asked = program()
asked.get_info(cl.program_info.SOURCE)
print(json.dumps([value(of_binary), value(asked.build("-DA=4"))]))
"""
    assert run("intel", script) == [3, 4]
    assert not list(tmp_path.rglob("*.gpc"))


def test_pyopencls_cache_is_where_the_program_says(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    """A build that gpucache leaves to PyOpenCL uses ``cache_dir``."""
    del environment["PYOPENCL_NO_CACHE"]
    script = f"""
from gpucache.opencl import install
import pyopencl.characterize
pyopencl.characterize.has_src_build_cache = lambda device: False
install()
print(json.dumps(value(program(SOURCE + "// __TIME__ is not used").build(
    ["-DA=3", "-DWHEN=__TIME__"], cache_dir={str(tmp_path / "theirs")!r}))))
"""
    assert run("intel", script) == 3
    assert list((tmp_path / "theirs").rglob("*"))


_MODULES = f"""
import logging
from gpucache.library.missing import flush
from gpucache.opencl import install, uninstall
IL = {module()!r}
logging.basicConfig(level="INFO")
early = cl.Program(context, IL)
early._prg.set_specialization_constant(3, np.int32(1))
if os.environ.get("GPUCACHE_DIR"):
    install()

def made(*constants, il=IL):
    program = cl.Program(context, il)
    for number, value in constants:
        program._prg.set_specialization_constant(number, value)
    return program

def result(program):
    out = np.zeros(4, np.int64)
    buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=out)
    program.spec(queue, (4,), None, buffer)
    cl.enqueue_copy(queue, out, buffer)
    return int(out[3])

two, six = (3, np.int32(2)), (3, np.int32(6))
"""
_SERVED = """
plain, again, bad = made().build(), made(six, (5, np.int64(1)), two).build(), made()
print(json.dumps([
    result(plain), result(again), result(made(six).build(devices=[device])), sorted(vars(again)),
    again.kernel_names, error(bad.build, '-bogus'), bad.get_build_info(device, cl.program_build_info.STATUS),
]))
flush()
"""
_PASSED = """
def refused():
    program = made(two)
    error(program._prg.set_specialization_constant, 3, np.int64(1))
    return program

def shared():
    program = made()
    cl.Program.from_int_ptr(program.int_ptr)._prg.set_specialization_constant(*two)
    return program

again, rebuilt, other = made(two), made(two).build(), made(two)
kept = again._prg
second = cl.Program.from_int_ptr(other.int_ptr)
print(json.dumps([
    result(early.build()), result(again.build()), result(cl.Program(kept)), result(rebuilt.build()),
    result(refused().build()), result(shared().build()), result(other.build()), result(second),
]))
flush()
"""


def test_modules_are_served_with_their_constants(run: Run, tmp_path: Path) -> None:
    """The first build of each; the program, its results and errors are PyOpenCL's own."""
    script = _MODULES + _SERVED
    plain, missed = run("intel", script, GPUCACHE_DIR=""), run("intel", script)
    assert plain[:3] == [7009, 2001, 6009]
    assert missed == plain
    assert len([*tmp_path.rglob("*.gpc")]) == 3
    assert run("intel", script, GPUCACHE_LOG="info") == plain
    names = "print(json.dumps([result(made((3, np.int32(v))).build()) for v in (6, 6)]))"
    assert run("intel", _MODULES + names, GPUCACHE_REQUIRE="1") == [6009, 6009]


def test_modules_whose_constants_are_not_known_are_left_to_pyopencl(run: Run, tmp_path: Path) -> None:
    """So are programs that have other owners, and second builds."""
    script = _MODULES + _PASSED
    plain = run("intel", script, GPUCACHE_DIR="")
    assert plain[0] == 1009
    assert plain[5] == 2009
    for _ in range(2):
        assert run("intel", script) == plain
    assert len([*tmp_path.rglob("*.gpc")]) == 1
