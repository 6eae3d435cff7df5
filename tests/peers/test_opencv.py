"""OpenCV's own cache on PoCL, and what OpenCV does with damage and after a repair."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds, only
from tests.pocl import SYSTEM_ICD

SYSTEM = of_others("opencv")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("cv2") is None, reason="OpenCV is not installed"),
    pytest.mark.skipif(not SYSTEM_ICD.is_file(), reason="the system has no PoCL"),
]

_PROGRAM = """
import cv2, numpy as np
cv2.ocl.setUseOpenCL(True)
assert cv2.ocl.useOpenCL()
image = cv2.UMat(np.full((64, 64), 7, np.float32))
assert (cv2.resize(image, (32, 32)).get() == 7).all()
"""


def _run(folder: Path, seconds: int = 300) -> bool:
    """Whether a program ends well; the drivers' own cache is another one at each start."""
    environ = {
        **os.environ,
        "OPENCV_OPENCL_CACHE_DIR": str(folder / "cache"),
        "OPENCV_OPENCL_DEVICE": ":CPU:",
        "OCL_ICD_VENDORS": str(SYSTEM_ICD),
        "POCL_CACHE_DIR": str(folder / f"pocl-{len(list(folder.glob('pocl-*')))}"),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], env=environ, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _end_cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _middle_overwritten(data: bytes) -> bytes:
    return data[:20_000] + b"x" * 20_000 + data[40_000:]


@pytest.mark.parametrize(
    ("damage", "kind", "runs"),
    [(_end_cut, FindingKind.TRUNCATED, True), (_middle_overwritten, FindingKind.CORRUPT, False)],
)
def test_a_damaged_file_stays_until_a_repair(
    damage: Callable[[bytes], bytes], kind: FindingKind, *, runs: bool, tmp_path: Path
) -> None:
    """As the finding says; what OpenCV wrote was sound, and it writes again what was removed."""
    assert _run(tmp_path)
    (location,) = SYSTEM.locations({"OPENCV_OPENCL_CACHE_DIR": str(tmp_path / "cache")})
    cache = SYSTEM.open(location)
    entry = only(cache)
    assert entry.program == "imgproc--resize" and entry.artifact_kind == "poclbin"
    assert not cache.check(entry).findings and not list(cache.leftovers())
    path = Path(entry.path)
    broken = damage(path.read_bytes())
    path.write_bytes(broken)
    assert _run(tmp_path) is runs and path.read_bytes() == broken
    entry = only(cache)
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and cache.repair(checked, entry).findings[0].repaired
    assert _run(tmp_path) and not cache.check(only(cache)).findings
