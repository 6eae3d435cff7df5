"""The OpenCL examples, run once on each platform."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.patience import PATIENCE_S

_PROCESS = Path(__file__).with_name("opencl_process.py")
_PACKAGES = {"pocl": "pocl-binary-distribution", "intel": "intel-opencl-rt"}


@dataclass(frozen=True, slots=True)
class Run:
    """What the examples computed on one platform."""

    arrays: Mapping[str, Any]
    launches: Mapping[str, list[str]]
    """By program and variant, the launches a bench made of it: kernel and local size."""


@pytest.fixture(scope="session", params=_PACKAGES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The examples on PoCL's and Intel's packages; skips where they are not installed."""
    name: str = request.param
    try:
        distribution(_PACKAGES[name])
    except PackageNotFoundError:
        pytest.skip(f"{_PACKAGES[name]} is not installed")
    place = tmp_path_factory.mktemp(name)
    # PoCL's package needs no naming; an empty folder keeps other platforms of the machine out.
    vendors: Path = request.getfixturevalue("icd_vendors") if name == "intel" else place
    subprocess.run(
        [sys.executable, str(_PROCESS), name, str(place / "arrays.npz")],
        env={**os.environ, "OCL_ICD_VENDORS": str(vendors), "POCL_CACHE_DIR": str(place)},
        check=True,
        timeout=PATIENCE_S,
    )
    with np.load(place / "arrays.npz", allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    return Run(arrays, json.loads(str(arrays.pop("first launches"))))
