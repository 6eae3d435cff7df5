"""The OpenCL examples, run once on each platform."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.patience import PATIENCE_S
from tests.pocl import name_pocl, need_pocl

_PROCESS = Path(__file__).with_name("opencl_process.py")


@dataclass(frozen=True, slots=True)
class Run:
    """The results of the examples on one platform."""

    arrays: Mapping[str, Any]
    launches: Mapping[str, list[str]]
    """By program and variant, the launches that a bench made of it: kernel and local size."""


@pytest.fixture(scope="session", params=["pocl", "intel"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The examples on PoCL and on Intel's runtime; skips where they are not installed."""
    name: str = request.param
    place = tmp_path_factory.mktemp(name)
    vendors = place
    if name == "intel":
        vendors = request.getfixturevalue("icd_vendors")
    else:
        need_pocl()
        name_pocl(vendors)
    subprocess.run(
        [sys.executable, str(_PROCESS), name, str(place / "arrays.npz")],
        env={**os.environ, "OCL_ICD_VENDORS": str(vendors), "POCL_CACHE_DIR": str(place)},
        check=True,
        timeout=PATIENCE_S,
    )
    with np.load(place / "arrays.npz", allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    return Run(arrays, json.loads(str(arrays.pop("first launches"))))
