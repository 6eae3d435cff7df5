"""Cached programs are launched: a miss, a hit and a plain start of one program print one result.

A program of CUDA is also tried without a GPU, where it compiles and prints the digest of its binary; a
program of OpenCL also runs on Intel's CPU runtime.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from gpucache.serve.environment import TIMEOUT
from tests.children import run_text
from tests.gpu import programs
from tests.gpu.programs import INTEL, NVIDIA, RESULT
from tests.nvrtc import need_nvrtc
from tests.patience import TIME_OUT_MS

Start = Callable[..., str]
GPUcache = Callable[..., subprocess.CompletedProcess[str]]

on_gpu = pytest.mark.gpu
LAUNCHES = pytest.mark.parametrize("how", ["compile", pytest.param("launch", marks=on_gpu)])
PLATFORMS = pytest.mark.parametrize("platform", [INTEL, pytest.param(NVIDIA, marks=on_gpu)])
EXAMPLE = Path(__file__).parents[2] / "gpucache/examples/vector_add.cu"


def need(*modules: str) -> None:
    """Skip where a module is not installed; it is not imported."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Every cache that these programs have, in this test's own directories."""
    return {
        **{name: value for name, value in os.environ.items() if name != "CUDA_CACHE_DISABLE"},
        "GPUCACHE_DIR": str(tmp_path / "root"),
        "CUDA_CACHE_PATH": str(tmp_path / "driver"),
        "CUPY_CACHE_DIR": str(tmp_path / "cupy"),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "PYOPENCL_NO_CACHE": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # others are on this GPU
    }


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., list[str]]:
    """The command that runs a program in a file, which Triton reads again."""

    def write(text: str, *words: object) -> list[str]:
        program = tmp_path / "program.py"
        program.write_text(text, encoding="utf-8")
        return [sys.executable, "-W", "ignore", str(program), *map(str, words)]

    return write


@pytest.fixture
def start(environ: dict[str, str], command: Callable[..., list[str]], tmp_path: Path) -> Start:
    """The output of a program that is started with more variables."""

    def run(text: str, *words: object, before: tuple[object, ...] = (), **more: str) -> str:
        done = run_text([*before, *command(text, *words)], env=environ | more, cwd=tmp_path)
        if "UNSUPPORTED_PTX_VERSION" in done.stderr:
            pytest.skip("NVRTC is newer than the driver, which refuses its PTX")
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def gpucache(environ: dict[str, str], tmp_path: Path) -> GPUcache:
    def run(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
        done = run_text([sys.executable, "-m", "gpucache", *words], env=environ | more, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def vendors(request: pytest.FixtureRequest, environ: dict[str, str]) -> None:
    """The OpenCL loader finds the platform of the test."""
    name = "nvidia_vendors" if request.getfixturevalue("platform") == NVIDIA else "icd_vendors"
    environ["OCL_ICD_VENDORS"] = str(request.getfixturevalue(name))


def _result(how: str, printed: str) -> None:
    """Compare the output of a CUDA program with the expected one."""
    if how == "launch":
        assert printed == RESULT
    else:
        assert len(printed.strip()) == 64


@pytest.mark.parametrize("door", programs.CUDA)
@LAUNCHES
def test_a_hit_of_our_library_launches(start: Start, door: str, how: str) -> None:
    """The second start compiles nothing, and its kernel computes the same."""
    need_nvrtc()
    first = start(programs.CUDA[door], how)
    _result(how, first)
    assert start(programs.CUDA[door], how, GPUCACHE_REQUIRE="1") == first


@pytest.mark.parametrize("door", programs.OPENCL)
@PLATFORMS
@pytest.mark.usefixtures("vendors")
def test_a_hit_of_our_library_launches_on_opencl(start: Start, door: str, platform: str) -> None:
    """The second start compiles nothing, and its kernel computes the same."""
    assert start(programs.OPENCL[door], platform) == RESULT
    assert start(programs.OPENCL[door], platform, GPUCACHE_REQUIRE="1") == RESULT


@on_gpu
def test_a_hit_of_cupy_launches(start: Start, tmp_path: Path) -> None:
    """Our store keeps all its kernels, its own cache none."""
    need("cupy")
    assert start(programs.CUPY_INSTALLED) == RESULT
    assert start(programs.CUPY_INSTALLED, GPUCACHE_REQUIRE="1") == RESULT
    assert not list((tmp_path / "cupy").rglob("*.cubin"))


@on_gpu
def test_a_hit_of_triton_launches(start: Start, gpucache: GPUcache, tmp_path: Path) -> None:
    """A kernel comes only from its entry, into a new directory of Triton's."""
    need("triton", "torch")
    assert start(programs.TRITON, **programs.TRITON_OURS) == RESULT
    shutil.rmtree(tmp_path / "triton")
    assert start(programs.TRITON, **programs.TRITON_OURS, GPUCACHE_REQUIRE="1") == RESULT
    assert "no fault found" in gpucache("verify", "--strict").stdout


def _served(
    start: Start, tmp_path: Path, text: str, words: tuple[str, ...] = (), **more: str
) -> tuple[str, str, set[str], set[str]]:
    """The output of two starts of an unmodified program below ``run``, and the results of their builds."""
    report = tmp_path / "report.json"
    below = (sys.executable, "-m", "gpucache", "run", "--report", report, "--")
    told: list[Any] = []
    patient = {TIMEOUT: TIME_OUT_MS}
    for _ in range(2):
        printed = start(text, *words, before=below, **patient, **more)
        told.append((printed, {one["result"] for one in json.loads(report.read_text())["outcomes"]}))
    return told[0][0], told[1][0], told[0][1], told[1][1]


@LAUNCHES
def test_a_hit_below_run_launches(start: Start, tmp_path: Path, how: str) -> None:
    """A program that calls NVRTC itself gets the same bytes bare, at a miss and at a hit."""
    need_nvrtc()
    bare = start(programs.CUDA_CORE, how)
    _result(how, bare)
    assert _served(start, tmp_path, programs.CUDA_CORE, (how,)) == (bare, bare, {"kept"}, {"hit"})


@PLATFORMS
@pytest.mark.usefixtures("vendors")
def test_a_hit_below_run_launches_on_opencl(start: Start, tmp_path: Path, platform: str) -> None:
    """A program that calls OpenCL itself."""
    told = _served(start, tmp_path, programs.PYOPENCL, (platform,))
    assert told == (RESULT, RESULT, {"kept"}, {"hit"})


@on_gpu
def test_a_hit_below_run_launches_in_cupy(start: Start, tmp_path: Path) -> None:
    """With its own cache empty, as another machine's is."""
    need("cupy")
    first, second, kept, hit = _served(start, tmp_path, programs.CUPY, CUPY_CACHE_IN_MEMORY="1")
    assert (first, second, hit) == (RESULT, RESULT, {"hit"}) and "kept" in kept


@LAUNCHES
def test_a_layer_serves_what_is_launched(
    start: Start, gpucache: GPUcache, command: Callable[..., list[str]], tmp_path: Path, how: str
) -> None:
    """Without gpucache, and with a miss as an error."""
    need_nvrtc()
    layer = tmp_path / "layer"
    gpucache("export", "layer", layer, "--", *command(programs.CUDA_CORE, how))
    lines = (layer / "gpucache.env").read_text(encoding="utf-8").splitlines()
    served = start(
        programs.CUDA_CORE, how, **dict(line.split("=", 1) for line in lines), GPUCACHE_REQUIRE="1"
    )
    _result(how, served)
    assert served == start(programs.CUDA_CORE, how)


@on_gpu
def test_the_gpu_is_a_target(gpucache: GPUcache) -> None:
    """It is listed with name and driver; a build without a target is for it, and loads."""
    rows = json.loads(gpucache("--json", "devices").stdout)["outcomes"]
    gpus = [row for row in rows if row["backend"] == "cuda" and row["present"]]
    assert gpus and all(row["available"] and row["name"] and row["driver_version"] for row in gpus)
    (built,) = json.loads(gpucache("--json", "warm", EXAMPLE).stdout)["outcomes"]
    assert (built["result"], built["target"] in {row["target"] for row in gpus}) == ("built", True)
    summary = json.loads(gpucache("--json", "verify", "--load", "--rebuild").stdout)["summary"]
    assert (summary["sound"], summary["notes"]) == (1, [])


@on_gpu
def test_what_warm_built_launches_without_a_target(start: Start, gpucache: GPUcache, tmp_path: Path) -> None:
    """A program that names no architecture gets that of its device."""
    source = tmp_path / "scale.cu"
    source.write_text('extern "C" __global__ void scale(float *y) { y[threadIdx.x] *= 2; }', encoding="ascii")
    gpucache("warm", source)
    asked = "from gpucache import cuda\nshow(cuda.compile_program(open(sys.argv[2]).read()), 'scale')\n"
    text = programs.CUDA_BEGIN + asked
    assert start(text, "launch", source, GPUCACHE_REQUIRE="1") == RESULT


def _cache(system: str, environ: Mapping[str, str]) -> Cache | None:
    """Another system's cache; None if it was not made."""
    opened = [of_others(system).open(one) for one in of_others(system).locations(environ)]
    return next((one for one in opened if Path(one.location().root).is_dir()), None)


def _names(cache: Cache) -> set[str]:
    entries = list(cache.scan())
    assert not [finding for entry in entries for finding in cache.check(entry).findings]
    return {entry.key for entry in entries}


OWNERS = {
    "cupy": (("cupy",), programs.CUPY, ()),
    "triton": (("triton", "torch"), programs.TRITON, ()),
    "jax": (("jax",), programs.JAX, ()),
    "cuda": (("cuda.core",), programs.CUDA["compile_program, PTX"], ("launch",)),
}
"""Owners of caches: the modules that they need, and a program that fills the cache."""


@on_gpu
@pytest.mark.parametrize("system", OWNERS)
def test_a_cache_that_its_owner_made_on_a_gpu_is_sound(
    start: Start, environ: dict[str, str], system: str, tmp_path: Path
) -> None:
    """It has entries and no finding, and a second start adds none."""
    modules, text, words = OWNERS[system]
    need(*modules)
    isolation = of_others(system).isolation(tmp_path / "own")
    environ.update((*isolation.environment, *isolation.turn_on))
    assert start(text, *words) == RESULT
    cache = _cache(system, environ)
    assert cache is not None
    made = _names(cache)
    assert made and not list(cache.leftovers())
    assert start(text, *words) == RESULT
    assert _names(cache) == made


@on_gpu
def test_a_cubin_that_hits_leaves_the_drivers_cache_alone(start: Start, environ: dict[str, str]) -> None:
    """A driver compiles PTX, but nothing that our cache returns as a cubin."""
    for _ in range(2):
        start(programs.CUDA["compile_program"], "launch")
    cache = _cache("cuda", environ)
    assert cache is None or not list(cache.scan())


@on_gpu
def test_bench_loads_on_a_gpu(gpucache: GPUcache) -> None:
    """Starts of a CUDA program reach its kernels, cold and warm."""
    rows = json.loads(gpucache("--json", "devices").stdout)["outcomes"]
    target = next(row["target"] for row in rows if row["backend"] == "cuda" and row["present"])
    done = gpucache("--json", "bench", EXAMPLE, "--target", target, "--runs", "2")
    (case,) = json.loads(done.stdout)["outcomes"]
    steps = {row["phase"] for row in case["phases"] if row["warm_ms"] is not None}
    assert {"load", "kernels"} <= steps
    assert not [note for note in case["notes"] if "nothing was loaded" in note]
