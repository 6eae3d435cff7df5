"""The PoCL that tests use: PyPI's if it can compile for this CPU, else the system's, else none.

PyOpenCL's loader always finds PyPI's, after those that are named to it: if the system's is named, it comes
first.
"""

import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.children import run_text

PLATFORM = "Portable Computing Language"
SYSTEM_ICD = Path("/etc/OpenCL/vendors/pocl.icd")
_BUILD = """
import sys
import pyopencl as cl
found = next((each for each in cl.get_platforms() if each.name == sys.argv[1]), None)
if found is None:
    sys.exit("it is not installed")
source = "kernel void show(global int *out) { *out = 7; }"
cl.Program(cl.Context(found.get_devices()[:1]), source).build(cache_dir=False)
"""


def name_pocl(vendors: Path) -> None:
    """Name the system's PoCL in a directory for the loader, if that is the one that compiles."""
    if _problem() and not _problem(SYSTEM_ICD):
        shutil.copy(SYSTEM_ICD, vendors)


def name_pocl_for_c(vendors: Path, folder: Path) -> Path:
    """A copy of a directory that names the system's PoCL as well, if that compiles.

    Programs in C do not find PyPI's by themselves; named to them it aborts where several threads build.
    """
    shutil.copytree(vendors, folder)
    if not _problem(SYSTEM_ICD):
        shutil.copy(SYSTEM_ICD, folder)
    return folder


def need_pocl_for_c() -> None:
    """Skip if the system has no PoCL that compiles for this CPU."""
    if problem := _problem(SYSTEM_ICD):
        pytest.skip(f"the system's PoCL does not compile here, and programs in C find no other: {problem}")


def need_pocl() -> None:
    """Skip if no PoCL compiles for this CPU."""
    if (own := _problem()) and (system := _problem(SYSTEM_ICD)):
        pytest.skip(f"no PoCL compiles here: PyPI's: {own}; the system's: {system}")


def need_pypi_pocl() -> None:
    """Skip if PyPI's PoCL does not compile for this CPU."""
    if own := _problem():
        pytest.skip(f"PyPI's PoCL does not compile here: {own}")


@cache
def _problem(icd: Path | None = None) -> str:
    """The last line of a failed build by the first PoCL that the loader finds; empty if it compiles."""
    if icd is not None and not icd.is_file():
        return f"there is no {icd}"
    with tempfile.TemporaryDirectory() as folder:
        if icd is not None:
            shutil.copy(icd, folder)
        done = run_text(
            [sys.executable, "-c", _BUILD, PLATFORM],
            env={**os.environ, "OCL_ICD_VENDORS": folder, "POCL_CACHE_DIR": folder},
        )
    if done.returncode == 0:
        return ""
    words = [line for line in done.stderr.splitlines() if "error:" in line] or done.stderr.splitlines()
    return words[-1] if words else f"a build ended with {done.returncode}"
