"""Promises of every backend: ours with real compilers, and a third party's from the tests."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_python
from tests.hip import need_hip
from tests.nvrtc import need_nvrtc
from tests.pocl import need_pocl

pytestmark = pytest.mark.slow

_PROCESS = Path(__file__).with_name("backend_process.py")
_TESTS = Path(__file__).parents[1]
_BACKENDS = ("opencl:pocl", "opencl:intel", "cuda:sm_90", "hip:gfx90a", "c:")
Said = dict[str, Any]


@pytest.fixture(scope="module", params=_BACKENDS)
def said(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, icd_vendors: Path
) -> Mapping[str, Any]:
    """The output of a process that used every part of one backend."""
    name = request.param
    if name == "opencl:pocl":
        need_pocl()
    if name.startswith("cuda"):
        need_nvrtc()
    if name.startswith("hip"):
        need_hip()
    folder = tmp_path_factory.mktemp("backend")
    printed = run_python(
        str(_PROCESS),
        name,
        str(folder),
        env={**os.environ, "OCL_ICD_VENDORS": str(icd_vendors), "PYTHONPATH": _with_c(folder)},
    )
    answer: Said = json.loads(printed)
    return answer


def _with_c(folder: Path) -> str:
    """A path with the backend for C, as if it were installed."""
    installed = folder / "site"
    (installed / "c_backend-1.dist-info").mkdir(parents=True)
    (installed / "c_backend").symlink_to(_TESTS / "c_backend")
    points = "[gpucache.backends]\nc = c_backend:BACKEND\n"
    (installed / "c_backend-1.dist-info" / "entry_points.txt").write_text(points, encoding="ascii")
    (installed / "c_backend-1.dist-info" / "METADATA").write_text(
        "Name: c-backend\nVersion: 1\n", encoding="ascii"
    )
    return os.pathsep.join([str(installed), os.environ["PYTHONPATH"]])


def _is_here(said: Mapping[str, Any]) -> bool:
    """Whether there is a device: for CUDA and HIP there is only a compiler."""
    return not said["target"].startswith(("cuda", "hip"))


def test_planning_loads_no_gpu_stack(said: Said) -> None:
    """Planning needs no GPU library."""
    assert said["loaded by planning"] == []


def test_the_toolchain_is_told_alike(said: Said) -> None:
    """A probe and a build name the same compiler, by fields of which some stay over an upgrade."""
    told = said["toolchain"]
    assert told["as probed"]
    assert told["fields again"]
    assert set(told["identity"]) < set(told["labels"])
    assert len(told["labels"]) == len(set(told["labels"]))
    assert told["files"] and all(told["files"])
    assert said["own files"] == []


def test_a_target_that_is_not_here_is_an_error(said: Said) -> None:
    """An unknown target cannot be compiled or loaded, and the error names it."""
    for error in said["unknown"]:
        assert error is not None
        assert {"TargetError", "NoDeviceError"} & set(error["kinds"])
        assert "nowhere/nothing" in error["text"]


def test_only_variables_that_reach_the_compiler_are_told(said: Said) -> None:
    """The compiler's variables are reported with their values, other variables are not."""
    assert list(said["environment"].values()) == ["-DY"]


def test_a_key_holds_all_that_changes_a_build(said: Said) -> None:
    """Source, header, option, each field of the toolchain and a variable change the key; places do not."""
    keys = dict(said["keys"])
    plain = keys.pop("plain")
    same = {label for label, key in keys.items() if key == plain}
    assert same == {label for label in keys if label.startswith("same")}
    others = [key for label, key in keys.items() if label.startswith("other")]
    assert len(set(others)) == len(others)


def test_a_program_is_compiled_by_two_threads(said: Said) -> None:
    """A compile returns bytes of the requested kind and its duration, in any thread."""
    told = said["compiled"]
    assert told["kind"][0] == told["kind"][1]
    assert all(told["bytes"])
    assert told["took"] > 0


def test_a_program_that_does_not_compile_is_told_by_its_name(said: Said) -> None:
    """A failing compile is a CompileError with the compiler's log, which has the program's name and line."""
    error = said["compiled"]["broken"]
    assert error is not None
    assert "CompileError" in error["kinds"]
    assert error["text"].startswith("broken program does not compile")
    assert "undeclared" in error["log"]
    assert "broken program:2" in error["log"] or "broken program(2)" in error["log"]


def test_an_artifact_loads_where_there_is_a_device(said: Said) -> None:
    """Loading names all kernels and refuses garbage; without a device it is an error."""
    told = said["loaded"]
    if _is_here(said):
        assert told["kernels"] == ["other", "show"]
        assert "CompileError" in told["garbage"]["kinds"]
    else:
        assert "NoDeviceError" in told["error"]["kinds"]
        assert "NoDeviceError" in told["garbage"]["kinds"]


def test_a_start_is_made_step_by_step(said: Said) -> None:
    """A session builds or loads, creates kernels and launches, as far as there is a device; only one of ours
    launches."""
    told = said["session"]
    launches = _is_here(said) and said["name"] == "opencl"
    assert told["build"] == told["load"] == [True, True, launches] if _is_here(said) else not told["load"][0]
    assert told["launches"] == (["show"] if launches else [])
    assert "CompileError" in told["broken"]["kinds"]


def test_a_miss_is_compiled_and_then_a_hit(said: Said) -> None:
    """The engine asks the compiler once, and then gives the same bytes back, which load."""
    told = said["looked up"]
    assert (told["asked"], told["same"], told["note"]) == (1, True, "")
    assert told["head"][2] == said["target"]
    assert all(told["head"])
    assert (told["hit"] is None) == _is_here(said)
    assert told["why"] == ["key-changed", "option"]


def test_a_failed_compile_leaves_nothing(said: Said) -> None:
    """The caller gets the compiler's error, and no entry is written."""
    told = said["looked up"]
    assert "CompileError" in told["failed"]["kinds"]
    assert told["entries"] == 1
