"""Whether NVRTC is installed; PyPI has it for every system with CUDA."""

from importlib.metadata import PackageNotFoundError, distribution

import pytest


def need_nvrtc() -> None:
    try:
        distribution("nvidia-cuda-nvrtc")
    except PackageNotFoundError:
        pytest.skip("nvidia-cuda-nvrtc is not installed")
