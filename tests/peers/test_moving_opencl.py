"""Entries of OpenCL's and other owners that another user made elsewhere: the real owner hits them.

Each is made as one user with one install in one place, packed, and restored as another user with another
home and project, who cannot see the first one's places; its owner's own words report the hit.
"""

import hashlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpucache.caches.portable import Fact
from gpucache.errors import FormatError
from tests.peers.elsewhere import User, move, needs_sandbox, opened, packed, seen, users, with_private
from tests.peers.owners import CLESPERANTO
from tests.pocl import SYSTEM_ICD

pytestmark = needs_sandbox


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


def _linked(started: Sequence[str]) -> bool:
    return any(Path(one).name in ("ld", "ld.lld", "clang", "gcc", "cc") for one in started)


_BUILD = """
import logging
import sys
import pyopencl as cl
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
platform = next(one for one in cl.get_platforms() if "Intel" in one.name)
context = cl.Context(platform.get_devices()[:1])
queue = cl.CommandQueue(context)
program = cl.Program(context, "kernel void seven(global int *out) { *out = 7; }").build()
out = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, 4)
program.seven(queue, (1,), None, out)
found = bytearray(4)
cl.enqueue_copy(queue, found, out)
assert found[0] == 7
"""


@pytest.fixture
def intel(icd_vendors: Path) -> Mapping[str, str]:
    """The environment in which programs see Intel's runtime for CPUs."""
    return {"OCL_ICD_VENDORS": str(icd_vendors)}


def _of_pyopencl(home: Path) -> Path:
    return home / ".cache" / "pyopencl"


def test_pyopencl_hits_what_another_user_built(intel: Mapping[str, str], tmp_path: Path) -> None:
    """Its log reports that; the entry has the Python, the CPU and the install that it needs."""
    first, second = users(tmp_path)
    assert "binary cache miss" in first.run(_BUILD, intel)[0]
    (entry,) = move("pyopencl", _of_pyopencl(first.home), _of_pyopencl(second.home))
    assert [name.rpartition("/")[2] for name, *_ in entry.files] == ["source.cl", "binary", "info"]
    facts = dict(entry.facts)
    assert set(facts) == {Fact.PYTHON, Fact.FEATURE, Fact.PATH}
    assert (Path(facts[Fact.PATH]) / "pyopencl").is_dir()
    before = seen(_of_pyopencl(second.home))
    said, started = second.run(_BUILD, intel)
    assert "binary cache hit" in said and "binary cache miss" not in said and not started
    assert seen(_of_pyopencl(second.home)) == before


def test_pyopencl_misses_what_another_install_built(intel: Mapping[str, str], tmp_path: Path) -> None:
    """The place of its headers is an option of each build, hence a fact of each entry."""
    first, second = users(tmp_path, "pyopencl")
    first.run(_BUILD, intel)
    move("pyopencl", _of_pyopencl(first.home), _of_pyopencl(second.home))
    said, _ = replace(second, hidden=[tmp_path / "there"]).run(_BUILD, intel)
    assert "binary cache miss" in said


@pytest.mark.parametrize(("level", "feature"), [("corei7", "sse4_2"), ("core-avx2", "avx2")])
def test_an_entry_for_a_better_cpu_ends_programs_so_it_tells_what_that_must_have(
    level: str, feature: str, intel: Mapping[str, str], tmp_path: Path
) -> None:
    """Intel's runtime accepts only binaries of lower levels, and PyOpenCL does not rebuild the others."""
    first, second = users(tmp_path)
    first.run(_BUILD, {**intel, "CL_CONFIG_CPU_TARGET_ARCH": level})
    (entry,) = move("pyopencl", _of_pyopencl(first.home), _of_pyopencl(second.home))
    assert (Fact.FEATURE, feature) in entry.facts
    fails = feature != "sse4_2"
    said, _ = second.run(_BUILD, {**intel, "CL_CONFIG_CPU_TARGET_ARCH": "corei7"}, fails=fails)
    assert ("PYOPENCL_CACHE_FAILURE_FATAL" if fails else "binary cache hit") in said


@pytest.fixture
def debian(tmp_path: Path) -> Mapping[str, str]:
    """The environment in which programs see the system's PoCL, which logs its actions."""
    if not SYSTEM_ICD.is_file():
        pytest.skip("the system has no PoCL")
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    shutil.copy(SYSTEM_ICD, vendors)
    return {"OCL_ICD_VENDORS": str(vendors), "POCL_DEBUG": "general,cache,llvm"}


_OF_POCL = """
import pyopencl as cl
platform = next(one for one in cl.get_platforms() if one.name == "Portable Computing Language")
context = cl.Context(platform.get_devices()[:1])
queue = cl.CommandQueue(context)
# Without the directory of headers that PyOpenCL adds to the options, which are in PoCL's hash.
program = cl._cl._Program(context, b"kernel void seven(global int *out) { out[get_global_id(0)] = 7; }")
program.build(b"", context.devices)
out = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, 64)
kernel = cl.Kernel(program, "seven")
kernel.set_arg(0, out)
cl.enqueue_nd_range_kernel(queue, kernel, (16,), (4,))
found = bytearray(64)
cl.enqueue_copy(queue, found, out)
assert found[60] == 7
"""


def test_pocl_takes_programs_and_kernels_of_another_user(debian: Mapping[str, str], tmp_path: Path) -> None:
    """It reports the use of the cached kernel, writes no program, and starts no linker."""
    first, second = users(tmp_path, "pyopencl")
    said, started = first.run(_OF_POCL, debian)
    assert "Writing program.bc" in said and "Built a specialized" in said
    assert _linked(started)
    kcache = Path(".cache/pocl/kcache")
    (entry,) = move("pocl", first.home / kcache, second.home / kcache)
    assert entry.files[0].name.endswith("program.bc") and "LLVM" in dict(entry.facts)
    before = seen(second.home / kcache)
    said, started = second.run(_OF_POCL, debian)
    assert "Using a cached WG function" in said and "Built a" not in said and "Writing program" not in said
    assert not started and seen(second.home / kcache) == before
    assert packed("pocl", second.home / kcache)[0].files == entry.files


_INCLUDES = (
    _BUILD.replace("kernel void", "{include}\\nkernel void")
    .replace("*out = 7", "*out = SEVEN")
    .replace(".build()", '.build(["-I", os.environ["PRIVATE"]])')
    .replace("import logging", "import logging, os")
    .replace("assert found[0] == 7", 'print("the answer is", found[0])')
)


@pytest.mark.parametrize(
    ("include", "seven", "why"),
    [
        ("#include <own.h>", 7, ""),
        ("#include <own.h>", 8, "own.h differs on this machine"),
        ("#include <own.h> // no record", 8, "no record of own.h"),
    ],
)
def test_pyopencl_entries_move_where_their_headers_are_the_same(
    include: str, seven: int, why: str, intel: Mapping[str, str], tmp_path: Path
) -> None:
    """PyOpenCL compares a header's time first, and ignores headers with a comment after them."""
    first, second = with_private(tmp_path, *users(tmp_path))
    for user, number in ((first, 7), (second, seven)):
        header = user.own / "own.h"
        header.write_text(f"#define SEVEN {number}\n", encoding="ascii")
        os.utime(header, (1, 1))
    program = _INCLUDES.replace("{include}", include)
    assert "the answer is 7" in first.run(program, intel)[0]
    there, here = _of_pyopencl(first.home), _of_pyopencl(second.home)
    with first.shown():
        if "record" in why:
            with pytest.raises(FormatError, match=why):
                packed("pyopencl", there)
            return
        entries = packed("pyopencl", there)
    with second.shown():
        (done,) = opened("pyopencl", here).restore(entries)
    assert done.done is not bool(why) and why in done.reason
    said, _ = second.run(program, intel)
    assert f"the answer is {seven}" in said and ("binary cache hit" in said) is done.done
    if why:  # a plain copy gives the results of the first machine
        shutil.rmtree(here)
        shutil.copytree(there, here)
        assert "the answer is 7" in second.run(program, intel)[0]


@needs("pyclesperanto")
def test_clesperanto_takes_what_another_user_built(debian: Mapping[str, str], tmp_path: Path) -> None:
    """With PoCL's entries nothing is compiled, linked or written; without the driver's it links at most."""
    first, second = users(tmp_path, "pyclesperanto")
    said, started = first.run(CLESPERANTO.program, debian)
    assert "building from sources" in said and _linked(started)
    for system, place in (("clesperanto", ".cache/clesperanto"), ("pocl", ".cache/pocl/kcache")):
        move(system, first.home / place, second.home / place)
    before = seen(second.home / ".cache")
    said, started = second.run(CLESPERANTO.program, debian)
    assert "building from sources" not in said and "Using a cached WG function" in said
    assert not started and seen(second.home / ".cache") == before


_OF_PYTOOLS = """
import sys
from pytools.persistent_dict import NoSuchEntryError, WriteOncePersistentDict
known = WriteOncePersistentDict("peer-v1", safe_sync=False)
for key in sys.stdin.read().split():
    try:
        print(key, known[key])
    except NoSuchEntryError:
        known[key] = f"code of {key}"
        print(key, "stored")
"""


def test_pytools_fetches_what_another_user_stored(tmp_path: Path) -> None:
    """Rows are added to an existing dictionary, whose rows stay."""
    first, second = users(tmp_path, "pytools")
    place = Path(".cache/pytools")
    assert "stored" in first.run(_OF_PYTOOLS, {}, said="one two")[0]
    assert second.run(_OF_PYTOOLS, {}, said="three two")[0].count("stored") == 2
    (entry,) = move("pytools", first.home / place, second.home / place)
    assert entry.facts == ((Fact.PYTHON, ".".join(map(str, sys.version_info[:3]))),)
    said, _ = second.run(_OF_PYTOOLS, {}, said="one two three")
    assert said.splitlines() == ["one code of one", "two code of two", "three code of three"]


_OF_TAICHI = """
import sys
import taichi as ti
import helper
ti.init(arch=ti.cpu, log_level=ti.TRACE)

@ti.kernel
def helped(count: ti.i32) -> ti.i32:
    return helper.times(count) + helper.MORE

@ti.kernel
def total(count: ti.i32) -> ti.i32:
    found = 0
    for number in range(count):
        found += number
    return found

@ti.kernel
def product(count: ti.i32) -> ti.i32:
    found = 1
    for number in range(count):
        found *= number + 1
    return found

for word in sys.stdin.read().split():
    print("the answer is", {"total": total, "product": product, "helped": helped}[word](5))
"""


_HELPER = """
import taichi as ti

MORE = 1

@ti.func
def times(count):
    return count * {factor}
"""


@needs("taichi")
def test_taichi_loads_what_another_user_compiled(tmp_path: Path) -> None:
    """Its index keeps its rows; it loads both kernels, but none that calls another module."""
    first, second = users(tmp_path, "taichi")
    place = Path(".cache/taichi/ticache")
    for user, factor in ((first, 10), (second, 100)):
        user.project.mkdir(parents=True)
        (user.project / "helper.py").write_text(_HELPER.format(factor=factor), encoding="ascii")
    assert "the answer is 51" in first.run(_OF_TAICHI, {}, said="total helped")[0]
    second.run(_OF_TAICHI, {}, said="product")
    move("taichi", first.home / place, second.home / place)
    before = {path: one for path, one in seen(second.home / place).items() if path.endswith(".tic")}
    said, _ = second.run(_OF_TAICHI, {}, said="total product")
    assert "the answer is 10" in said and "the answer is 120" in said
    assert said.count("from cache (key=") == 2
    assert {path: one for path, one in seen(second.home / place).items() if path.endswith(".tic")} == before
    said, _ = second.run(_OF_TAICHI, {}, said="helped")
    assert "the answer is 501" in said and "from cache (key=" not in said


_OF_NUMBA = """
import numba
import factor

@numba.njit(cache=True)
def scale(number):
    return factor.times(number) + factor.MORE

print("the answer is", scale(45))
"""
_TIMES = """
import numba

MORE = {more}

@numba.njit
def times(number):
    return number * {factor}
"""


@needs("numba")
def test_numba_entries_stay_as_they_have_code_of_other_modules(tmp_path: Path) -> None:
    """Numba serves a copy where those modules are others, with the results of the first machine."""
    first, second = users(tmp_path, "numba")
    for user, factor, more in ((first, 1, 1), (second, 1000, 1)):
        user.project.mkdir(parents=True)
        (user.project / "factor.py").write_text(_TIMES.format(factor=factor, more=more), encoding="ascii")
    caches = [user.home / "numba" for user in (first, second)]
    said, _ = first.run(_OF_NUMBA, {"NUMBA_CACHE_DIR": str(caches[0])})
    assert "the answer is 46" in said
    (folder,) = caches[0].iterdir()
    digest = hashlib.sha1(str(second.project).encode()).hexdigest()
    shutil.copytree(folder, caches[1] / f"{second.project.name}_{digest}")
    said, _ = second.run(_OF_NUMBA, {"NUMBA_CACHE_DIR": str(caches[1]), "NUMBA_DEBUG_CACHE": "1"})
    assert "data loaded" in said and "the answer is 46" in said  # for 45001
    with pytest.raises(FormatError, match="modules that it does not name"):
        packed("numba", caches[0])


_OF_SYCL = """
import dpnp
x = dpnp.arange(16, dtype="float32")
assert float(dpnp.sum(x)) == 120.0 and float(dpnp.sqrt(x + 3)[1]) == 2.0
"""


def _sycl(user: User, library: Path) -> Mapping[str, str]:
    """The environment in which a user's SYCL programs see a runtime for CPUs, and log their actions."""
    vendors = user.home.parent / "vendors"
    vendors.mkdir()
    (vendors / "intel.icd").write_text(f"{library}\n", encoding="utf-8")
    return {
        "OCL_ICD_VENDORS": str(vendors),
        "SYCL_CACHE_PERSISTENT": "1",
        "SYCL_CACHE_TRACE": "1",
        "SYCL_CACHE_MAX_SIZE": "1000000000",
    }


@needs("dpnp")
def test_sycl_takes_what_another_user_built(tmp_path: Path) -> None:
    """libsycl reports each binary as used, and adds none; its total and times of use are kept."""
    library = Path(sys.prefix, "lib", "libintelocl.so")
    if not library.is_file():
        pytest.skip("intel-opencl-rt is not installed: no libintelocl.so below sys.prefix")
    first, second = users(tmp_path, "dpnp", "intel-opencl-rt")
    assert second.site is not None
    place = Path(".cache/libsycl_cache")
    said, _ = first.run(_OF_SYCL, _sycl(first, library))
    assert "has been cached" in said
    entries = move("sycl", first.home / place, second.home / place)
    assert {Fact.ARCHITECTURE, Fact.DRIVER, Fact.FEATURE} <= dict(entries[0].facts).keys()
    said, _ = second.run(_OF_SYCL, _sycl(second, second.site.parents[1] / library.name))
    assert said.count("using cached device binary") >= len(entries) and "has been cached" not in said
    cache = opened("sycl", second.home / place)
    assert not [one for one in cache.leftovers() if one.findings]


_OF_OPENVINO = """
import os
import sys
import numpy as np
import openvino
from openvino import opset13 as op
x = op.parameter([4], np.float32, name="x")
factor = np.full(4, int(sys.stdin.read()), np.float32)
product = op.multiply(x, op.constant(factor, name="factor"), name="product")
model = openvino.Model([op.result(product, name="result")], [x], "model")
place = os.environ["PRIVATE"]
openvino.save_model(model, f"{place}/model.xml")
for name in os.listdir(place):
    os.utime(f"{place}/{name}", (1, 1))  # as in images that can be built again
core = openvino.Core()
core.set_property({"CACHE_DIR": "models"})
compiled = core.compile_model(f"{place}/model.xml", "CPU")
print("from the cache:", compiled.get_property("LOADED_FROM_CACHE"))
print("the answer is", compiled(np.ones(4, np.float32))[0][0])
"""


@needs("openvino")
def test_openvino_entries_stay_as_they_have_no_digest_of_their_model(tmp_path: Path) -> None:
    """OpenVINO uses a copy for another model in place of the first machine's, of the same time."""
    first, second = with_private(tmp_path, *users(tmp_path, "openvino"))
    assert "the answer is 2.0" in first.run(_OF_OPENVINO, {}, said="2")[0]
    there, here = (user.project / "models" for user in (first, second))
    shutil.copytree(there, here)
    said, _ = second.run(_OF_OPENVINO, {}, said="3")
    assert "from the cache: True" in said and "the answer is 2.0" in said  # for 3.0
    with pytest.raises(FormatError, match="the file's path and time"):
        packed("openvino", there)
