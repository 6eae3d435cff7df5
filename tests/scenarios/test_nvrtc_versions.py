"""Two NVRTCs on one machine: what one built is not taken for the other's, and the words say who is who."""

import logging
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

_LOGGER = logging.getLogger(__name__)
_SHOW = 'extern "C" __global__ void show(int *out) { *out = 7; }'
_JOB = {"source": _SHOW, "arguments": {"target": "sm_90"}}


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Version and library of an older NVRTC of the same major version."""
    if sys.platform != "linux":
        pytest.skip("a library is preloaded as Linux does it")
    try:
        major, minor, *_ = version("nvidia-cuda-nvrtc").split(".")
    except PackageNotFoundError:
        pytest.skip("nvidia-cuda-nvrtc is not installed")
    folder = tmp_path_factory.mktemp("older-nvrtc")
    wanted = f"nvidia-cuda-nvrtc>={major}.0,<{major}.{minor}"
    download = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), wanted]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", *download],
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{wanted} could not be downloaded in time")
    if done.returncode != 0:
        pytest.skip(f"{wanted} could not be downloaded: {done.stderr.strip().splitlines()[-1:]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if ".so." in name]
        archive.extractall(folder, libraries)
    (library,) = (path for path in folder.rglob(f"libnvrtc.so.{major}"))
    return ".".join(wheel.name.split("-")[1].split(".")[:2]), library


@pytest.mark.parametrize("first", ["older", "newer"])
def test_another_nvrtc_is_another_toolchain(
    older: tuple[str, Path],
    program: Callable[..., list[dict[str, Any]]],
    last: Callable[[Path], Any],
    tmp_path: Path,
    first: str,
) -> None:
    """A program built by one NVRTC misses with the other: its version and both build ids are named."""
    number, library = older
    here = ".".join(version("nvidia-cuda-nvrtc").split(".")[:2])
    settings: dict[str, dict[str, Any]] = {
        "older": {"preload": library, "LD_LIBRARY_PATH": str(library.parent)},
        "newer": {},
    }
    second = {"older": "newer", "newer": "older"}[first]
    built, missed, hit = (program("cuda", tmp_path, _JOB, **settings[who]) for who in (first, second, second))
    told = last(tmp_path)
    _LOGGER.info("nvrtc-version-from-%s: %s %s", first, told.verdict, told.detail)
    assert [built[0]["compiled"], missed[0]["compiled"], hit[0]["compiled"]] == [1, 1, 0]
    assert built[0]["code"] != missed[0]["code"]
    assert told.verdict == "key-changed"
    assert told.labels == ("NVRTC version", "NVRTC build id", "NVRTC builtins build id")
    before, now = (number, here) if first == "older" else (here, number)
    assert f"NVRTC {before} -> {now}; another build of NVRTC; " in told.detail
