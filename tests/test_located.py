"""Which CUDA artifacts are bound to the folders of their headers, and which may be found from anywhere."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

_PROCESS = Path(__file__).with_name("library_process.py")
_SOURCE = '#include "value.h"\nextern "C" __global__ void show(int *out) { *out = value(); }'
_PLAIN = "static __device__ __noinline__ int value() { return threadIdx.x; }\n"
_NAMED = "static __device__ int value() { const char *f = __FILE__; return f[threadIdx.x]; }\n"
_PTX = {"target": "compute_80"}
_LTOIR = {"target": "sm_80", "artifact_kind": "ltoir"}

Compile = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module", autouse=True)
def nvrtc() -> None:
    try:
        distribution("nvidia-cuda-nvrtc")
    except PackageNotFoundError:
        pytest.skip("nvidia-cuda-nvrtc is not installed")


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    """What became of one source compiled in a program of its own, once with each of some arguments."""

    def run(*arguments: dict[str, Any]) -> list[dict[str, Any]]:
        jobs = [{"source": _SOURCE, "arguments": one} for one in arguments]
        done = subprocess.run(
            [sys.executable, str(_PROCESS), "cuda"],
            input=json.dumps(jobs),
            env={**os.environ, "GPUCACHE_DIR": str(tmp_path / "cache"), "GPUCACHE_MEMORY_BYTES": "0"},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        outcomes: list[dict[str, Any]] = json.loads(done.stdout.removeprefix("ready\n"))
        assert [outcome["error"] for outcome in outcomes] == [None] * len(jobs)
        return outcomes

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str, str], str]:
    """Write ``value.h`` into a folder of this test."""

    def write(name: str, header: str) -> str:
        (tmp_path / name).mkdir()
        (tmp_path / name / "value.h").write_text(header, encoding="ascii")
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("kind", [pytest.param(_PTX, id="ptx"), pytest.param(_LTOIR, id="ltoir")])
def test_a_path_written_into_an_artifact_binds_it(
    compiled: Compile, folder: Callable[[str, str], str], kind: dict[str, str]
) -> None:
    """A header that names its own file is compiled for each folder, and each finds its own bytes again."""
    places = [folder(name, _NAMED) for name in ("first", "second")]
    outcomes = compiled(*({**kind, "include_path": [place]} for place in (*places, *places)))
    assert [outcome["compiled"] for outcome in outcomes] == [1, 1, 0, 0]
    codes = [outcome["code"] for outcome in outcomes]
    assert codes[:2] == codes[2:]
    assert codes[0] != codes[1]


def test_ptx_without_a_path_is_found_from_anywhere(
    compiled: Compile, folder: Callable[[str, str], str]
) -> None:
    """A header that does not name its file gives PTX that serves a copy of it elsewhere."""
    places = [folder(name, _PLAIN) for name in ("first", "second")]
    outcomes = compiled(*({**_PTX, "include_path": [place]} for place in places))
    assert [outcome["compiled"] for outcome in outcomes] == [1, 0]


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param({"target": "sm_80", "options": "-lineinfo"}, id="lineinfo"),
        pytest.param(_LTOIR, id="ltoir"),
    ],
)
def test_a_folder_that_gave_no_header_binds_nothing(
    tmp_path: Path, compiled: Compile, folder: Callable[[str, str], str], kind: dict[str, str]
) -> None:
    """Where an artifact is bound to its folders, an unrelated -I before or after the used one is a hit."""
    place, unrelated = folder("first", _PLAIN), str(tmp_path / "unrelated")
    Path(unrelated).mkdir()
    paths = ([place], [place, unrelated], [unrelated, place])
    outcomes = compiled(*({**kind, "include_path": path} for path in paths))
    assert [outcome["compiled"] for outcome in outcomes] == [1, 0, 0]


def test_a_header_behind_a_macro_is_found_as_warm_built_it(tmp_path: Path) -> None:
    """A program warmed by a manifest that names its headers is a hit for a library call that names them."""
    source = _SOURCE.replace('"value.h"', "NAME").replace("#include", '#define NAME "value.h"\n#include')
    (tmp_path / "value.h").write_text(_PLAIN, encoding="ascii")
    (tmp_path / "show.cu").write_text(source, encoding="ascii")
    (tmp_path / "gpucache.toml").write_text(
        '[[program]]\nsource = "show.cu"\ninclude = ["."]\nheaders = ["value.h"]\ntargets = ["cuda:sm_80"]\n',
        encoding="ascii",
    )
    environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "cache")}
    warmed = subprocess.run(
        [sys.executable, "-m", "gpucache", "warm", "--manifest", str(tmp_path / "gpucache.toml")],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert warmed.returncode == 0, warmed.stdout + warmed.stderr
    named = {"target": "sm_80", "include_path": [str(tmp_path)], "headers": ["value.h"]}
    job = {"source": source, "arguments": named, "cwd": str(tmp_path), "compiling": False}
    done = subprocess.run(
        [sys.executable, str(_PROCESS), "cuda"],
        input=json.dumps([job]),
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    (outcome,) = json.loads(done.stdout.removeprefix("ready\n"))
    assert (outcome["error"], outcome["compiled"]) == (None, 0)
