"""Batches of the library on real compilers: one compile, one entry, one load, and the errors otherwise."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpucache.store.directory import DirectoryStore
from tests.children import run_python, run_text
from tests.pocl import need_pocl

pytestmark = pytest.mark.slow

_TESTS = Path(__file__).parent
_PROCESS = _TESTS / "batch_process.py"
_PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}
_INCLUDE = '#include "value.h"\n'
_HEAD = _INCLUDE + "static int twice(int value) { return 2 * value; }\n"
# Each with macros that would change the other ones.
_SOURCES = [
    ["first.cl", _HEAD + "#define N 1\n#define M 5\nkernel void first(global int *o) { *o = V + twice(N); }"],
    ["second.cl", f"// 2\n{_HEAD}#define N 2\nkernel void second(global int *o) {{ *o = twice(N); }}"],
    ["third.cl", _HEAD + "#ifndef M\n#define M 9\n#endif\nkernel void third(global int *o) { *o = M; }"],
]
_CUDA = [
    ["a.cu", '#define N 1\nextern "C" __global__ void a(int *o) { *o = N; }'],
    ["b.cu", '#define N 2\nextern "C" __global__ void b(int *o) { *o = N; }'],
]

Outcome = dict[str, Any]
Run = Callable[..., list[Outcome]]


@pytest.fixture(scope="module")
def watching(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that wraps the loader of OpenCL and logs its calls."""
    return _library("opencl_calls.c", tmp_path_factory.mktemp("watching") / "calls.so")


def _library(source: str, library: Path) -> Path:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or sys.platform != "linux":
        pytest.skip(f"no C compiler is here to build {source}")
    command = [compiler, "-shared", "-fPIC", "-w", "-o", str(library), str(_TESTS / source), "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def settings(root: Path) -> dict[str, str]:
    """Without a layer in memory, so that every build asks the disk."""
    return {**os.environ, "GPUCACHE_DIR": str(root), "GPUCACHE_MEMORY_BYTES": "0"}


def _outcomes(language: str, jobs: Any, environment: Mapping[str, str]) -> list[Outcome]:
    outcomes: list[Outcome] = json.loads(
        run_python(str(_PROCESS), language, stdin=json.dumps(jobs), env=environment)
    )
    return outcomes


@pytest.fixture
def opencl(
    settings: dict[str, str], opencl_environment: Mapping[str, str], watching: Path, tmp_path: Path
) -> Run:
    """The outcomes of OpenCL jobs in a separate program."""
    (tmp_path / "value.h").write_text("#define V 7\n", encoding="ascii")

    def run(platform: str, *jobs: Mapping[str, Any], **more: str) -> list[Outcome]:
        if platform == "pocl":
            need_pocl()
        own = {"LD_PRELOAD": str(watching), "CALLS": str(tmp_path / "calls")}
        arguments = {"include_path": [str(tmp_path)]}
        wanted = [{"platform": _PLATFORMS[platform], "arguments": arguments, **job} for job in jobs]
        return _outcomes("opencl", wanted, {**opencl_environment, **settings, **own, **more})

    return run


@pytest.fixture
def cuda(settings: dict[str, str]) -> Run:
    """The outcomes of CUDA jobs in a separate program."""

    def run(*jobs: Mapping[str, Any], **more: str) -> list[Outcome]:
        wanted = [{"arguments": {"target": "sm_90"}, **job} for job in jobs]
        return _outcomes("cuda", wanted, {**settings, **more})

    return run


def _keep_what_was_left(platform: str, settings: Mapping[str, str], icd_vendors: Path) -> None:
    """Build the programs left for later on a late compiler."""
    if platform == "pocl":
        command = [sys.executable, "-m", "gpucache", "warm", "--misses"]
        environment = {**settings, "OCL_ICD_VENDORS": str(icd_vendors)}
        done = run_text(command, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_a_batch_is_one_program(
    opencl: Run, platform: str, settings: dict[str, str], icd_vendors: Path, root: Path
) -> None:
    """Sources compute the same as alone, by one compile and one entry; from then on by one load.

    One entry serves another context on the device, and parts of the device, too.
    """
    (built,) = opencl(platform, {"sources": _SOURCES})
    assert built["values"] == [[9], [4], [9]]
    assert built["calls"][0] == {}
    assert built["calls"][1]["clCreateProgramWithSource"] == 1
    assert built["calls"][2] == {}
    _keep_what_was_left(platform, settings, icd_vendors)
    jobs = [{"sources": _SOURCES, "contexts": contexts} for contexts in (1, 2, "sub-devices")]
    loaded = opencl(platform, *jobs, GPUCACHE_REQUIRE="1")
    for outcome, loads in zip(loaded, (1, 2, 1), strict=True):
        assert outcome["calls"] == [{}, {"clCreateProgramWithBinary": loads, "clBuildProgram": loads}, {}]
        assert [set(values) for values in outcome["values"]] == [{9}, {4}, {9}] * loads
    assert {reason for outcome in (built, *loaded) for reason in outcome["apart"]} == {None}
    assert len(list(DirectoryStore(root, writable=False).scan())) == 1


def test_devices_of_one_configuration_share_one_compile(opencl: Run, root: Path) -> None:
    """A context of two equal devices compiles once and keeps one entry, which also serves one device."""
    (built,) = opencl("intel", {"sources": _SOURCES, "contexts": "sub-devices"})
    assert built["values"] == [[9, 9], [4, 4], [9, 9]]
    assert built["calls"][1] == {"clCreateProgramWithSource": 1, "clBuildProgram": 1}
    assert len(list(DirectoryStore(root, writable=False).scan())) == 1
    (loaded,) = opencl("intel", {"sources": _SOURCES}, GPUCACHE_REQUIRE="1")
    assert loaded["calls"][1] == {"clCreateProgramWithBinary": 1, "clBuildProgram": 1}


def test_threads_share_one_build(opencl: Run) -> None:
    """Many threads that request kernels at once compile them once."""
    (built,) = opencl("intel", {"sources": _SOURCES, "threads": 8})
    assert built["values"] == [[9], [4], [9]]
    assert built["calls"][1] == {"clCreateProgramWithSource": 1, "clBuildProgram": 1}


def test_sources_that_share_a_name_are_built_one_by_one(opencl: Run) -> None:
    """Two sources with a helper of the same name are reported by it, and compute as when alone."""
    text = "static int help() {{ return {}; }} kernel void {}(global int *o) {{ *o = help(); }}"
    clashing = [[f"{name}.cl", text.format(value, name)] for name, value in (("up", 1), ("down", 2))]
    (built,) = opencl("intel", {"sources": clashing})
    assert built["values"] == [[1], [2]]
    reason = "up.cl and down.cl both have the name help"
    assert built["apart"] == [reason] * 2
    assert f"WARNING: up.cl and 1 more are compiled one by one: {reason}" in built["log"]
    assert built["calls"][1]["clCreateProgramWithSource"] == 2


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_what_only_the_compiler_refuses_is_told_in_its_words(opencl: Run, platform: str) -> None:
    """A source that gives another meaning to a macro of the build options is built separately."""
    other = ["fourth.cl", _HEAD + "#undef W\n#define W 3\nkernel void fourth(global int *o) { *o = W; }"]
    arguments = {"options": ["-DW=2", "-DV=7"]}
    plain = [[name, text.replace(_INCLUDE, "")] for name, text in (*_SOURCES, other)]
    (built,) = opencl(platform, {"sources": plain, "arguments": arguments})
    assert built["values"] == [[9], [4], [9], [3]]
    (reason,) = set(built["apart"])
    assert reason.startswith("they do not compile as one program (")
    assert "fourth.cl:" in reason
    assert "W has a meaning before this source defines it" in reason


def test_a_source_that_does_not_compile_fails_alone(opencl: Run) -> None:
    """The others of its batch are built, and its error is its own, also when it is requested again."""
    (built,) = opencl("intel", {"sources": [*_SOURCES, ["fourth.cl", _HEAD + "kernel void fourth() { x; }"]]})
    assert built["values"][:3] == [[9], [4], [9]]
    assert "undeclared identifier 'x'" in built["values"][3]
    assert "fourth.cl:3:" in built["apart"][0]
    assert built["calls"][2]["clCreateProgramWithSource"] == 1


def test_a_required_hit_may_be_of_single_sources(opencl: Run) -> None:
    """If a hit is required and a batch is stored only source by source, its kernels are loaded."""
    jobs = [{"sources": [source]} for source in _SOURCES]
    opencl("intel", *jobs)
    (loaded,) = opencl("intel", {"sources": _SOURCES}, GPUCACHE_REQUIRE="1")
    assert loaded["values"] == [[9], [4], [9]]
    assert loaded["calls"][1] == {"clCreateProgramWithBinary": 3, "clBuildProgram": 3}


def test_a_batch_of_cuda_is_one_module(cuda: Run, root: Path) -> None:
    """NVRTC is called once, however many threads request programs, and not at all from then on."""
    (built,) = cuda({"sources": _CUDA, "threads": 8})
    (again,) = cuda({"sources": _CUDA})
    assert (built["calls"], built["codes"], built["apart"]) == ([0, 1, 0], 1, [None, None])
    assert (again["calls"], again["codes"]) == ([0, 0, 0], 1)
    assert len(list(DirectoryStore(root, writable=False).scan())) == 1


def test_a_module_of_cuda_is_loaded_once(cuda: Run, tmp_path: Path) -> None:
    """Kernels of several sources, requested twice, come from one module that the driver loads once."""
    _library("cuda_driver.c", tmp_path / "libcuda.so.1")
    log = tmp_path / "log"
    (built,) = cuda(
        {"sources": [*_CUDA, *_CUDA], "kernels": ["a", "b", "a", "b"]},
        LD_LIBRARY_PATH=str(tmp_path),
        DRIVER_LOG=str(log),
    )
    assert built["kernels"] == ["Kernel"] * 4
    asked = log.read_text(encoding="ascii").splitlines()
    assert sum(line.startswith("load") for line in asked) == 1


def test_a_forked_child_builds_for_itself(cuda: Run) -> None:
    """A child that is forked while a thread of its parent builds does not wait for that thread."""
    (built,) = cuda({"sources": _CUDA, "forked": True}, GPUCACHE_DISABLE="1")  # no lock between processes
    assert built["values"] == ["ObjectCode", "ObjectCode"]
