"""CuPy, and two NVRTCs in one process, under ``gpucache run``, without a GPU."""

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gpucache.backends.cuda import nvrtc
from gpucache.errors import NoDeviceError
from gpucache.native.build import BUILT, build, find_compiler
from gpucache.native.locate import locate
from gpucache.serve.environment import TIMEOUT
from tests.children import run_text
from tests.patience import PATIENCE_S, TIME_OUT_MS

pytestmark = pytest.mark.slow

# Which architecture a GPU has is all that CuPy asks one for before it compiles.
_CUPY = """
import hashlib
from cupy._core import core
from cupy.cuda import compiler
compiler._get_arch_for_options_for_nvrtc = lambda arch: (f"-arch=sm_{arch}", "cubin")
options = tuple(core.assemble_cupy_compiler_options(("--std=c++17",)))
programs = {
    '#include <cupy/complex.cuh>\\nextern "C" __global__ void f(complex<float> *x) { *x *= 2.0f; }': None,
    "template <class T> __global__ void k(T *out) { *out = T(7); }": ("k<int>", "k<float>"),
}
for source, names in programs.items():
    for kept in (False, True):
        code, mapping = compiler.compile_using_nvrtc(
            source, options, "90", name_expressions=names, cache_in_memory=kept
        )
        print(hashlib.sha256(code).hexdigest(), mapping)
"""

Run = Callable[..., tuple[str, list[str]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A command's output under ``gpucache run``, and the outcome of each of its compiles."""
    try:
        locate("nvrtc_audit")
    except NoDeviceError as error:
        compiler = find_compiler()
        if compiler is None:
            pytest.skip(str(error))
        build(compiler, BUILT)

    def call(*command: object, **variables: str) -> tuple[str, list[str]]:
        report = tmp_path / "report.json"
        before = [sys.executable, "-m", "gpucache", "run", "--report", str(report), "--"]
        environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "root"), TIMEOUT: TIME_OUT_MS, **variables}
        printed = _printed(*before, *command, environ=environ)
        return printed, [one["result"] for one in json.loads(report.read_text())["outcomes"]]

    return call


def _printed(*command: object, environ: Any = None) -> str:
    done = run_text(list(map(str, command)), env=environ, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def test_cupy_is_served(run: Run, tmp_path: Path) -> None:
    """Its compiles hit the second time; one that may contain a temporary name is compiled plainly."""
    if find_spec("cupy") is None:
        pytest.skip("cupy is not installed")
    script = tmp_path / "script.py"
    script.write_text(_CUPY)
    try:
        bare = _printed(sys.executable, script)
    except RuntimeError as error:  # an NVRTC of CuPy's version, or headers, are not there
        pytest.skip(f"CuPy compiles nothing here: {str(error).splitlines()[-1]}")
    assert run(sys.executable, script)[0] == bare
    again, results = run(sys.executable, script)
    assert (again, sorted(results)) == (bare, ["hit", "hit", "hit", "passed"])


def test_two_versions_in_one_process_are_served(run: Run, tmp_path: Path) -> None:
    """Each by its own shim, with its own entries."""
    try:
        distribution("nvidia-cuda-nvrtc")
        newer = nvrtc.nvrtc_libraries(nvrtc.version())[0]
    except (PackageNotFoundError, NoDeviceError) as error:
        pytest.skip(str(error))
    wanted = "nvidia-cuda-nvrtc-cu12"
    done = run_text([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", tmp_path, wanted])
    if done.returncode != 0:
        pytest.skip(f"{wanted} could not be downloaded: {done.stderr.strip().splitlines()[-1:]}")
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path, [name for name in archive.namelist() if ".so." in name])
    (older,) = tmp_path.rglob("libnvrtc.so.12")
    compiler = find_compiler()
    assert compiler is not None
    program = tmp_path / "program"
    source = Path(__file__).parents[1] / "native" / "nvrtc_program.c"
    subprocess.run([*compiler.command, "-pthread", str(source), "-o", str(program), "-ldl"], check=True)
    bare = _printed(program, "two", older, newer)
    assert f"version 0 {'.'.join(map(str, nvrtc.version()))}" in bare
    digests = {hashlib.sha256(run(program, "two", older, newer)[0].encode()).hexdigest() for _ in range(2)}
    assert digests == {hashlib.sha256(bare.encode()).hexdigest()}
    assert run(program, "two", older, newer) == (bare, ["hit", "hit"])
