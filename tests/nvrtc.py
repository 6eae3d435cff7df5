"""Whether NVRTC is installed, which PyPI has for every system that CUDA runs on."""

from importlib.metadata import PackageNotFoundError, distribution

import pytest


def need_nvrtc() -> None:
    """Skip where NVRTC is not installed."""
    try:
        distribution("nvidia-cuda-nvrtc")
    except PackageNotFoundError:
        pytest.skip("nvidia-cuda-nvrtc is not installed")
