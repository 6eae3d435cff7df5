"""Entries of OpenCL's and other owners that another user made elsewhere: the real owner hits them.

Each is made as one user with one install in one place, packed, restored as another user with another home and
project, from whom all places of the first are hidden, and its owner's own words say what it did.
"""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gpucache.caches.portable import Fact
from tests.peers.elsewhere import move, needs_sandbox, packed, seen, users
from tests.pocl import SYSTEM_ICD

pytestmark = needs_sandbox

_LINKERS = ("ld", "ld.lld", "clang", "gcc", "cc")
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
    """Its log says so; the entry tells the Python, the CPU and the install that it needs."""
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
    """Intel's runtime takes binaries of lower levels alone, and PyOpenCL does not build the others again."""
    first, second = users(tmp_path)
    first.run(_BUILD, {**intel, "CL_CONFIG_CPU_TARGET_ARCH": level})
    (entry,) = move("pyopencl", _of_pyopencl(first.home), _of_pyopencl(second.home))
    assert (Fact.FEATURE, feature) in entry.facts
    fails = feature != "sse4_2"
    said, _ = second.run(_BUILD, {**intel, "CL_CONFIG_CPU_TARGET_ARCH": "corei7"}, fails=fails)
    assert ("PYOPENCL_CACHE_FAILURE_FATAL" if fails else "binary cache hit") in said


@pytest.fixture
def debian(tmp_path: Path) -> Mapping[str, str]:
    """The environment in which programs see the system's PoCL, which says what it does."""
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
    """It says that it uses the kernel from its cache, writes no program, and starts no linker."""
    first, second = users(tmp_path, "pyopencl")
    said, started = first.run(_OF_POCL, debian)
    assert "Writing program.bc" in said and "Built a specialized" in said
    assert any(Path(one).name in _LINKERS for one in started)
    kcache = Path(".cache/pocl/kcache")
    (entry,) = move("pocl", first.home / kcache, second.home / kcache)
    assert entry.files[0].name.endswith("program.bc") and "LLVM" in dict(entry.facts)
    before = seen(second.home / kcache)
    said, started = second.run(_OF_POCL, debian)
    assert "Using a cached WG function" in said and "Built a" not in said and "Writing program" not in said
    assert not started and seen(second.home / kcache) == before
    assert packed("pocl", second.home / kcache)[0].files == entry.files
