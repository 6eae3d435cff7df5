"""Drivers that the ICD loader silently ignores are reported: broken libraries and dead links."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from gpucache.backends.opencl import installations
from gpucache.backends.opencl.installations import problems, unhide
from tests.children import run_text

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the loader of Linux")


def test_a_library_that_does_not_load_is_named_with_the_linkers_words(tmp_path: Path) -> None:
    """An ICD file whose library is missing is named, and a working one is not."""
    (tmp_path / "bad.icd").write_text("/nowhere/libdriver.so\n", encoding="ascii")
    (tmp_path / "good.icd").write_text("libc.so.6\n", encoding="ascii")
    (told,) = problems({"OCL_ICD_VENDORS": str(tmp_path)})
    assert f"{tmp_path}/bad.icd names /nowhere/libdriver.so, which does not load" in told
    assert "cannot open shared object file" in told


def test_a_library_that_a_driver_lacks_is_named(tmp_path: Path) -> None:
    """Intel's runtime without its own libraries is reported with the missing one."""
    library = Path(sys.prefix, "lib", "libintelocl.so")
    if not library.is_file():
        pytest.skip("Intel's runtime is not installed")
    apart = shutil.copy(library, tmp_path)
    (tmp_path / "intel.icd").write_text(f"{apart}\n", encoding="utf-8")
    script = (
        "import os; from gpucache.backends.opencl.installations import problems; print(*problems(os.environ))"
    )
    environ = {**os.environ, "OCL_ICD_VENDORS": str(tmp_path)}
    environ.pop("LD_LIBRARY_PATH", None)
    done = run_text([sys.executable, "-c", script], env=environ, check=True)
    assert "which does not load: lib" in done.stdout and "No such file" in done.stdout


@pytest.mark.parametrize("place", ["/nowhere", "/nowhere/x.icd"])
def test_a_variable_that_leads_nowhere_is_named(place: str) -> None:
    """A directory or file that the variable names and that does not exist is reported."""
    (told,) = problems({"OCL_ICD_VENDORS": place})
    assert told.startswith(f"OCL_ICD_VENDORS names {place}, which does not exist")


@pytest.mark.parametrize(
    ("place", "hidden"),
    [(None, ""), ("", ""), ("other", "intel.icd, {}/pocl.icd"), ("intel.icd", "pocl.icd")],
)
def test_drivers_that_a_variable_hides_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str | None, hidden: str
) -> None:
    """The remedy unsets the variable that keeps the loader from the drivers of the system."""
    monkeypatch.setattr(installations, "FOLDER", tmp_path)
    for name in ("pocl.icd", "intel.icd"):
        (tmp_path / name).touch()
    environ = {} if place is None else {"OCL_ICD_VENDORS": str(tmp_path / place)}
    remedy = f"unset OCL_ICD_VENDORS, which hides {tmp_path}/{hidden.format(tmp_path)}" if hidden else ""
    assert unhide(environ) == remedy


def test_a_pocl_that_is_hidden_needs_no_installation(tmp_path: Path) -> None:
    """A PoCL of the system that a variable hides is named by the remedy for one that cannot compile."""
    pytest.importorskip("pyopencl")
    if not installations.FOLDER.joinpath("pocl.icd").is_file():
        pytest.skip("the system has no PoCL")
    script = "from gpucache.probe.ask import ask\nfor row in ask(['opencl']): print(row.target, row.detail)\n"
    environ = {**os.environ, "OCL_ICD_VENDORS": str(tmp_path)}
    told = run_text([sys.executable, "-c", script], env=environ, check=True).stdout
    if "does not know this CPU" not in told:
        pytest.skip("PoCL's wheel knows this CPU, or is not installed")
    assert "unset OCL_ICD_VENDORS, which hides /etc/OpenCL/vendors/pocl.icd" in told
    assert "pocl-opencl-icd" not in told


def test_each_of_several_libraries_is_tried(tmp_path: Path) -> None:
    """OCL_ICD_FILENAMES lists libraries, and those that do not load are reported."""
    environ = {"OCL_ICD_VENDORS": str(tmp_path), "OCL_ICD_FILENAMES": "libc.so.6:/nowhere.so"}
    (told,) = problems(environ)
    assert told.startswith("OCL_ICD_FILENAMES names /nowhere.so, which does not load")


def test_a_platform_without_devices_is_told(tmp_path: Path) -> None:
    """A PoCL that cannot make its cache is reported as installed, with the variable that fixes it."""
    pytest.importorskip("pyopencl")
    script = "from gpucache.probe.ask import ask\nfor row in ask(['opencl']): print(row.target, row.detail)\n"
    environ = {**os.environ, "POCL_CACHE_DIR": "/proc/nowhere", "OCL_ICD_VENDORS": str(tmp_path)}
    done = run_text([sys.executable, "-c", script], env=environ, check=True)
    if "Portable Computing Language" not in done.stdout:
        pytest.skip("PoCL is not installed")
    if "opencl:pocl/" in done.stdout:
        pytest.skip("this PoCL shows its device without a cache")
    assert "shows no device" in done.stdout and "POCL_CACHE_DIR" in done.stdout
