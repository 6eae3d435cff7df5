"""Building through the caches of PyOpenCL and cuda.core: the names of options, and the stored entries."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpucache.backends.interface import load_backend
from gpucache.bench import cuda as peers
from gpucache.errors import CompileError
from gpucache.model import ArtifactKind, BuildRequest, Language, Program, Target
from tests.children import run_text

VECTOR = b'extern "C" __global__ void vector(float *a) { a[threadIdx.x] += FACTOR; }\n'


def test_nvrtcs_options_have_names() -> None:
    """Each option of NVRTC that cuda.core names is passed under that name, in order."""
    options = ("-DA=1", "-DB", "-UC", "-std=c++17", "--use_fast_math", "-lineinfo", "-maxrregcount=32")
    assert peers.program_options(options) == {
        "define_macro": [("A", "1"), "B"],
        "undefine_macro": ["C"],
        "std": "c++17",
        "use_fast_math": True,
        "lineinfo": True,
        "max_register_count": 32,
    }


def test_an_option_without_a_name_is_refused() -> None:
    """An option that cuda.core does not know is reported, not dropped."""
    with pytest.raises(CompileError, match=r"no name for the build option '--fmad=false'"):
        peers.program_options(("-DA", "--fmad=false"))


@pytest.fixture
def nvrtc() -> None:
    pytest.importorskip("cuda.core")
    if not any(device.available for device in load_backend("cuda").devices()):
        pytest.skip("no NVRTC is here")


def _compile(folder: Path, **changes: object) -> bytes:
    backend, target = load_backend("cuda"), Target("cuda", "sm_90")
    given: dict[str, object] = {
        "program": Program("vector.cu", Language.CUDA_CPP, VECTOR),
        "target": target,
        "options": ("-DFACTOR=2",),
        "artifact_kind": ArtifactKind.CUBIN,
        "include_dirs": ("/nowhere",),
    }
    request = BuildRequest(**{**given, **changes})  # type: ignore[arg-type]
    compilation = backend.plan(request, backend.toolchain(target), {})
    return peers.compile_with_cuda_core(request, compilation, str(folder)).payload


def test_cuda_core_keeps_what_it_compiles(nvrtc: None, tmp_path: Path) -> None:
    """One entry is stored in the directory, and a second build hits it."""
    first = _compile(tmp_path)
    (entry,) = (path for path in (tmp_path / "entries").rglob("*") if path.is_file())
    assert entry.read_bytes() == first == _compile(tmp_path)
    assert first.startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name_expressions": ("vector",)}, "name_expressions"),
        ({"program": Program("v.cu", Language.CUDA_CPP, b'#include "a.h"\n' + VECTOR)}, "include_path"),
        ({"program": Program("v.cu", Language.CUDA_CPP, b"\xff")}, "decode"),
        ({"options": ()}, "compile"),
    ],
)
def test_what_cuda_core_refuses_is_an_error_of_ours(
    nvrtc: None, tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    """bench's table has one line with cuda.core's own words."""
    with pytest.raises(CompileError) as refused:
        _compile(tmp_path, **changes)
    assert words in refused.value.message and len(refused.value.message.splitlines()) == 1


_CHILD = """
import sys
from gpucache.backends.opencl import BACKEND
from gpucache.bench.sources import open_session
from gpucache.errors import CompileError
from gpucache.model import BuildRequest, Language, Program
device = next(row for row in BACKEND.devices() if row.toolchain and row.toolchain.implementation == "intel")
good = b'#include "factor.h"\\n__kernel void k(__global float *a) { *a *= FACTOR; }'
text = good if sys.argv[2:] else b"\\xff"
program = Program("k.cl", Language.OPENCL_C, text)
request = BuildRequest(program, device.target, options=("-DA=1",), include_dirs=(sys.argv[1],))
session = open_session(BACKEND, device.target, ["pyopencl"], "")
try:
    session.build(request, BACKEND.plan(request, device.toolchain, {}))
    print("built", session.create_kernels())
except CompileError as error:
    print(error)
"""


def _child(environment: Mapping[str, str], cache: Path, *arguments: object) -> str:
    done = run_text(
        [sys.executable, "-W", "ignore", "-c", _CHILD, *arguments],
        env={**os.environ, **environment, "XDG_CACHE_HOME": str(cache)},
    )
    return done.stdout.strip() or done.stderr


def test_pyopencl_keeps_what_it_builds(opencl_environment: Mapping[str, str], tmp_path: Path) -> None:
    """On a platform without a cache a build leaves an entry in PyOpenCL's; directories may have spaces."""
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "factor.h").write_text("#define FACTOR 2\n", encoding="ascii")
    assert _child(opencl_environment, tmp_path / "cache", folder, "good") == "built True"
    assert any(path.is_file() for path in (tmp_path / "cache" / "pyopencl").rglob("*"))


def test_what_pyopencl_cannot_take_is_an_error_of_ours(
    opencl_environment: Mapping[str, str], tmp_path: Path
) -> None:
    """PyOpenCL takes text, so other bytes are refused in a sentence."""
    assert "k.cl is not UTF-8" in _child(opencl_environment, tmp_path, tmp_path)
