"""Real programs, recorded, built from the recording in another directory, and served from that."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpucache.backends.cuda import nvrtc
from gpucache.errors import NoDeviceError
from gpucache.native.locate import locate
from gpucache.serve.environment import TIMEOUT
from tests.children import run_text
from tests.patience import TIME_OUT_MS
from tests.peers.test_gputools import PROGRAM as GPUTOOLS
from tests.pocl import name_pocl_for_c, need_pocl_for_c

_INTEL = Path(sys.prefix, "lib", "libintelocl.so")
_FFMPEG = (
    *("ffmpeg", "-v", "error", "-init_hw_device", "opencl=ocl", "-filter_hw_device", "ocl"),
    *("-f", "lavfi", "-i", "testsrc=size=64x64:rate=5:duration=1"),
    *("-vf", "format=rgba,hwupload,avgblur_opencl=3,unsharp_opencl,hwdownload,format=rgba", "-f", "md5", "-"),
)

# tinygrad compiles for a GPU that is not there, and runs nothing.
_TINYGRAD = """
import hashlib
from tinygrad import Tensor, dtypes, nn
from tinygrad.runtime.support import compiler_cuda
plain, seen = compiler_cuda.NVRTCCompiler.compile, []
def compile(self, source):
    seen.append(plain(self, source))
    return seen[-1]
compiler_cuda.NVRTCCompiler.compile = compile
image, convolve, join = Tensor.empty(8, 3, 32, 32), nn.Conv2d(3, 16, 3), nn.Linear(16 * 15 * 15, 10)
join(convolve(image).relu().max_pool2d().flatten(1)).softmax().realize()
a = Tensor.empty(256, 256, dtype=dtypes.half)
(a @ a).sum(0).realize(), a.sort()[0].realize(), a.float().cumsum(1).realize()
print(len(seen), hashlib.sha256(b"".join(seen)).hexdigest())
"""


def _layer() -> str:
    try:
        locate("opencl_layer")
    except NoDeviceError as error:
        return str(error)
    return ""


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_layer()), reason=_layer())]


def _run(tmp_path: Path, *words: str, vendors: Path) -> "subprocess.CompletedProcess[str]":
    own = {"OCL_ICD_VENDORS": str(vendors), "GPUCACHE_DIR": str(tmp_path / "root"), TIMEOUT: TIME_OUT_MS}
    (tmp_path / "elsewhere").mkdir(exist_ok=True)
    done = run_text(
        [sys.executable, "-m", "gpucache", *words],
        env={**os.environ, **own, "POCL_CACHE_DIR": str(tmp_path), "PYOPENCL_NO_CACHE": "1"},
        cwd=tmp_path / "elsewhere",
    )
    assert done.returncode == 0, done.stderr
    return done


def _hits_all(tmp_path: Path, command: Sequence[str], vendors: Path) -> None:
    recording, report = str(tmp_path / "recording"), tmp_path / "report.json"
    recorded = _run(tmp_path, "record", "-o", recording, "--", *command, vendors=vendors)
    _run(tmp_path, "warm", "--recording", recording, vendors=vendors)
    served = _run(tmp_path, "run", "--report", str(report), "--", *command, vendors=vendors)
    summary = json.loads(report.read_text())["summary"]
    assert summary["builds"] == summary["hits"] > 0
    assert served.stdout == recorded.stdout


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
def test_ffmpegs_filters_on_pocl(tmp_path: Path) -> None:
    """A C program on a compiler that builds late: the pictures are the same, and nothing is compiled."""
    need_pocl_for_c()
    (tmp_path / "none").mkdir()
    _hits_all(tmp_path, _FFMPEG, name_pocl_for_c(tmp_path / "none", tmp_path / "vendors"))


@pytest.mark.skipif(importlib.util.find_spec("gputools") is None, reason="gputools is not installed")
@pytest.mark.skipif(not _INTEL.is_file(), reason="intel-opencl-rt is not installed")
def test_gputools_on_intels_runtime(tmp_path: Path) -> None:
    """A Python program with a header of PyOpenCL's: every image is the same to the last bit."""
    (tmp_path / "vendors").mkdir()
    (tmp_path / "vendors" / "intel.icd").write_text(f"{_INTEL}\n", encoding="utf-8")
    _hits_all(tmp_path, (sys.executable, "-c", GPUTOOLS), tmp_path / "vendors")


@pytest.mark.skipif(importlib.util.find_spec("tinygrad") is None, reason="tinygrad is not installed")
def test_tinygrads_kernels_for_a_gpu_that_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that a program generates, all under one name: each binary is the same to the last byte."""
    try:
        library, _ = nvrtc.nvrtc_libraries(nvrtc.version())
    except NoDeviceError as error:
        pytest.skip(str(error))
    settings = {
        "DEV": "NULL:CUDA:sm_80",
        "CCACHE": "0",
        "PARALLEL": "0",
        "CACHEDB": str(tmp_path / "cache.db"),
    }
    for name, value in {**settings, "NVRTC_PATH": str(library)}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "vendors").mkdir()
    _hits_all(tmp_path, (sys.executable, "-c", _TINYGRAD), tmp_path / "vendors")
