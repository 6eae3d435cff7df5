"""A directory of this Python's version, which PyOpenCL would use."""

import sys
from pathlib import Path

import pytest

KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    version = ".".join(map(str, sys.version_info))
    folder = tmp_path / "pyopencl" / f"pyopencl-compiler-cache-v2-py{version}"
    folder.mkdir(parents=True, mode=0o755)
    return folder


@pytest.fixture
def key() -> str:
    return KEY
