"""FlashInfer's own cache, built by ninja and nvcc for an absent GPU, and loaded without a driver."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds, only, opened
from tests.children import run_text

SYSTEM = of_others("flashinfer")

_NVCC = shutil.which("nvcc")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("flashinfer") is None, reason="FlashInfer is not installed"),
    pytest.mark.skipif(_NVCC is None, reason="nvcc, which FlashInfer compiles with, is missing"),
]

_PROGRAM = """
from flashinfer.jit.core import gen_jit_spec
print("loaded", gen_jit_spec("tiny", ["kernels/tiny.cu"]).build_and_load())
"""
_KERNEL = 'extern "C" __global__ void tiny(float *x) { *x *= 2.0f; }\n'


def _run(work: Path) -> subprocess.CompletedProcess[str]:
    """FlashInfer builds a module, or finds it, and loads it."""
    (stubs := work / "stubs").mkdir(exist_ok=True)
    if not (stubs / "libcuda.so").exists():  # every module names the driver, and none here calls it
        subprocess.run(["cc", "-shared", "-x", "c", os.devnull, "-o", stubs / "libcuda.so"], check=True)
    (work / "kernels").mkdir(exist_ok=True)
    if not (source := work / "kernels" / "tiny.cu").exists():
        source.write_text(_KERNEL, encoding="ascii")
    home = Path(str(_NVCC)).resolve().parents[1]
    home = home if (home / "include" / "cuda_runtime.h").exists() else Path("/usr/local/cuda")
    environ = {
        **os.environ,
        "FLASHINFER_WORKSPACE_BASE": str(work),
        "FLASHINFER_CUDA_ARCH_LIST": "9.0a",
        "FLASHINFER_EXTRA_LDFLAGS": f"-L{stubs} -L{home}/lib",
        "LD_LIBRARY_PATH": f"{stubs}:{home}/lib:{home}/lib64",
        "CUDA_HOME": str(home),
    }
    command = [sys.executable, "-c", _PROGRAM]
    return run_text(command, env=environ, cwd=work)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory with a module in FlashInfer's cache."""
    done = _run(tmp_path)
    assert "loaded" in done.stdout, done.stderr
    return tmp_path


def test_what_flashinfer_builds_is_sound_and_says_what_it_is(work: Path) -> None:
    """Module, architecture and version; all commands are reported, and every file is known."""
    cache = opened(SYSTEM, work / ".cache" / "flashinfer")
    entry = only(cache)
    assert (entry.program, entry.target, entry.gone) == ("tiny", "cuda:sm_90a", "")
    told = {one.label: one.value for one in cache.report(entry).key_fields}
    assert told["source"].endswith("kernels/tiny.cu") and "arch=compute_90a" in told["cuda_cflags"]
    assert not cache.check(entry).findings and not list(cache.leftovers())
    (work / "kernels" / "tiny.cu").rename(work / "tiny.cu")
    assert only(cache).gone


def _library_cut(folder: Path) -> None:
    os.truncate(folder / "tiny.so", 1000)


def _object_cut(folder: Path) -> None:
    path = next(folder.glob("*.o"))
    before = path.stat()
    os.truncate(path, 1000)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _object_cut_without_library(folder: Path) -> None:
    _object_cut(folder)
    (folder / "tiny.so").unlink()


@pytest.mark.parametrize(
    ("damage", "found", "loads"),
    [
        (_library_cut, [FindingKind.CORRUPT], False),
        (_object_cut, [FindingKind.CORRUPT], True),
        (_object_cut_without_library, [FindingKind.ORPHAN, FindingKind.CORRUPT], False),
    ],
)
def test_damage_that_ninja_does_not_notice_is_found_and_repaired(
    damage: Callable[[Path], None], found: list[FindingKind], loads: bool, work: Path
) -> None:
    """Ninja goes by times, so FlashInfer fails again and again until the directory is removed."""
    cache = opened(SYSTEM, work / ".cache" / "flashinfer")
    folder = Path(only(cache).path).parent
    damage(folder)
    assert [_run(work).returncode == 0 for _ in range(2)] == [loads, loads]
    entry = only(cache)
    checked = cache.check(entry)
    assert kinds(checked) == found
    assert cache.repair(checked, entry).findings[-1].repaired and not folder.exists()
    assert "loaded" in _run(work).stdout and not cache.check(only(cache)).findings
