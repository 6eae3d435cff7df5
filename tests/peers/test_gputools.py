"""gputools, without any knowledge of gpucache, after the one line ``gpucache.opencl.install()``."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from tests.children import run_python

_INTEL = Path(sys.prefix, "lib", "libintelocl.so")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("gputools") is None, reason="gputools is not installed"),
    pytest.mark.skipif(not _INTEL.is_file(), reason="intel-opencl-rt is not installed"),
]

PROGRAM = """
import contextlib, json, sys, warnings
warnings.simplefilter("ignore")
if sys.argv[1:] == ["install"]:
    import gpucache.opencl
    gpucache.opencl.install()
import numpy as np
with contextlib.redirect_stdout(sys.stderr):
    import gputools.denoise
image, line = np.random.default_rng(0).random((64, 64)).astype(np.float32), np.ones(5, np.float32) / 5
done = [
    gputools.convolve_sep2(image, line, line),
    gputools.denoise.nlm2(image, 0.1, 2, 3),
    gputools.denoise.bilateral2(image, 3, 0.1),
    gputools.gaussian_filter(image, 2.0),
    gputools.max_filter(image, 5),
]
print(json.dumps([array.tobytes().hex() for array in done]))
"""


def _run(tmp_path: Path, *arguments: str, **settings: str) -> list[str]:
    (tmp_path / "intel.icd").write_text(f"{_INTEL}\n", encoding="utf-8")
    own = {
        "OCL_ICD_VENDORS": str(tmp_path),
        "GPUCACHE_DIR": str(tmp_path / "cache"),
        "PYOPENCL_NO_CACHE": "1",
    }
    answer: list[str] = json.loads(
        run_python("-c", PROGRAM, *arguments, env={**os.environ, **own, **settings})
    )
    return answer


def test_gputools_hits_and_gives_what_it_gave(tmp_path: Path) -> None:
    """After one run all of its builds are hits, and every image is the same to the last bit."""
    bare = _run(tmp_path)
    assert not (tmp_path / "cache").exists()
    assert _run(tmp_path, "install") == bare
    assert len(list((tmp_path / "cache").rglob("*.gpc"))) > 4
    assert _run(tmp_path, "install", GPUCACHE_REQUIRE="1") == bare
