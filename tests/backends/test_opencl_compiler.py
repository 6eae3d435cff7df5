"""Compiling on PoCL and Intel: options as written, logs under the program's name, binaries that load."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpucache.backends.opencl.options import program_log
from tests.children import run_python
from tests.pocl import need_pocl

_PROCESS = Path(__file__).with_name("opencl_process.py")
_SHOW = "kernel void show(global int *out) { out[0] = V; }"
# Compiles only where V has this value.
_ONLY_SEVEN = f"{_SHOW}\n#if V != 7\n#error V is not 7\n#endif\n"


@pytest.fixture(params=["pocl", "intel"])
def platform(request: pytest.FixtureRequest) -> str:
    if request.param == "pocl":
        need_pocl()
    return str(request.param)


@pytest.fixture
def run(platform: str, opencl_environment: Mapping[str, str], tmp_path: Path) -> Any:
    """The outcomes of jobs in a separate process on the platform."""
    (tmp_path / "pocl").mkdir()
    environment = {**opencl_environment, "POCL_CACHE_DIR": str(tmp_path / "pocl")}

    def run(*jobs: Mapping[str, Any]) -> list[dict[str, Any]]:
        outcomes: list[dict[str, Any]] = json.loads(
            run_python(str(_PROCESS), platform, stdin=json.dumps(jobs), env=environment)
        )
        return outcomes

    return run


@pytest.mark.slow
def test_options_reach_the_compiler_as_written(run: Any, platform: str, tmp_path: Path) -> None:
    """Defines and directories arrive with their spaces, and a binary returns all its kernels."""
    spaced = tmp_path / ("with space" if platform == "intel" else "plain")  # PoCL takes none in directories
    spaced.mkdir()
    (spaced / "value.h").write_text("#define V 7\n", encoding="ascii")
    outcomes = run(
        {"source": _ONLY_SEVEN, "options": ["-DV=7"]},
        {"source": _ONLY_SEVEN, "options": ["-D", "V=3 + 4"]},
        {"source": f'#include "value.h"\n{_ONLY_SEVEN}', "include_dirs": [str(spaced)]},
        {"source": f"{_ONLY_SEVEN}\nkernel void more(global int *out) {{ }}", "options": ["-DV=7"]},
    )
    assert [outcome["error"] for outcome in outcomes] == [None] * 4
    assert [outcome["kernels"] for outcome in outcomes] == [["show"]] * 3 + [["more", "show"]]


def test_messages_carry_the_name_of_the_program(run: Any) -> None:
    """Errors and warnings of the compiler contain the program's own name, and no temporary file's.

    A log that is not text causes no failure: Intel's assembler repeats the bytes of a source in another
    encoding, which PyOpenCL cannot read. A binary that the driver refuses is an error with its code.
    """
    warns = r"""__asm__ volatile(".warning \"Gr""" + "\udcf6\udcdfe" + r"""\"");"""
    failed, warned, unread, rejected = run(
        {"source": "kernel void show(global int *out) { oops; }", "name": "solver.cl"},
        {"source": '#warning "think again"\n' + _SHOW, "options": ["-DV=7"], "name": "solver.cl"},
        {"source": _SHOW.replace("{", f"{{ {warns}"), "options": ["-DV=7"]},
        {"payload": "not a binary of any driver"},
    )
    assert (unread["error"], unread["kernels"]) == (None, ["show"])
    assert rejected["error"].startswith("the driver rejected the binary (")
    assert "INVALID_BINARY" in rejected["error"]
    assert failed["error"].startswith("solver.cl does not compile")
    assert "solver.cl:1:37: " in failed["log"]
    assert "use of undeclared identifier 'oops'" in failed["log"]
    assert warned["error"] is None
    assert "solver.cl:1:2: " in warned["log"]
    assert "think again" in warned["log"]
    assert "tempfile" not in failed["log"] + warned["log"]


@pytest.mark.slow
def test_local_sizes_are_built_without_a_trace(run: Any, platform: str, tmp_path: Path) -> None:
    """PoCL builds declared and required sizes in for both kinds of grid; the environment is as before."""
    required = "kernel __attribute__((reqd_work_group_size(8, 4, 1))) void fixed(global int *out) { }"
    (outcome,) = run({"source": f"{_SHOW}\n{required}", "options": ["-DV=7"], "local_sizes": [[64], [16, 2]]})
    assert (outcome["error"], outcome["kernels"]) == (None, ["fixed", "show"])
    assert outcome["environment_kept"]
    built = {path.parent.name for path in tmp_path.rglob("*.so") if path.stem == "show"}
    sizes = ("64-1-1", "16-2-1", "8-4-1")
    wanted = {f"{size}-goffs0{grid}" for size in sizes for grid in ("", "-smallgrid")}
    assert built - {"0-0-0"} == (wanted if platform == "pocl" else set())


def test_the_log_of_a_header_names_the_program_that_includes_it() -> None:
    """Intel's compiler has a number there, which differs from one process to the next."""
    told = "In file included from 4:2:\n/a/w.h:1:2: warning: 5:6:\n4:1:2: warning: In file included from 4:2:"
    names = told.replace("from 4", "from k.cl", 1).replace("\n4:", "\nk.cl:")
    assert program_log(told, "k.cl") == names
