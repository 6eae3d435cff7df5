"""Checks in CUDA C++, compiled by NVRTC in every mode."""

import os
import sys
from pathlib import Path

import pytest

from gpucache.backends.cuda import BACKEND
from gpucache.checks import include_dirs
from gpucache.checks.calls import instrument
from gpucache.errors import CompileError
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Checks, Language, Program, Target
from tests.children import run_text

pytest.importorskip("cuda.bindings.nvrtc")

_SOURCE = Path(__file__).with_name("checked.cu").read_bytes()


def _compile(source: bytes, mode: Checks, *expressions: str) -> Artifact:
    request = BuildRequest(
        Program("checked.cu", Language.CUDA_CPP, source),
        Target.parse("cuda:compute_90"),
        include_dirs=include_dirs(source, mode),
        artifact_kind=ArtifactKind.PTX,
        name_expressions=expressions,
        checks=mode,
    )
    return BACKEND.compile(request, BACKEND.plan(request, BACKEND.toolchain(request.target), {}))


@pytest.mark.parametrize("mode", Checks)
def test_every_mode_compiles(mode: Checks) -> None:
    """The compiler prints nothing; with checks the record is claimed by an atomic operation."""
    artifact = _compile(_SOURCE, mode, "sum<float>", "sum<long long>")
    assert artifact.build_log == ""
    assert (b"atom" in artifact.payload) is (mode is not Checks.NONE)


def test_only_async_looks_at_the_record_first() -> None:
    """The two checked modes are two programs."""
    kept = [_compile(_SOURCE, mode).payload for mode in (Checks.SYNC, Checks.ASYNC)]
    assert [b"ld.volatile.u32" in payload or b"ld.volatile.global.u32" in payload for payload in kept] == [
        False,
        True,
    ]


def test_the_compiler_names_lines_as_the_source_has_them() -> None:
    """Enabling checks moves no line, neither in messages nor in the failure table."""
    broken = _SOURCE.replace(b"int result;", b"int result", 1)
    with pytest.raises(CompileError) as raised:
        _compile(broken, Checks.ASYNC)
    line = 1 + _SOURCE[: _SOURCE.index(b"int result;")].count(b"\n")
    assert f"checked.cu({line + 1})" in raised.value.log  # where the semicolon is missed
    assert [check.line for check in instrument(_SOURCE, Checks.SYNC).table][:2] == [5, 14]


_TABLE = """
import sys
from gpucache import cuda
from gpucache.backends.cuda.checked import checked_of
from gpucache.checks import calls
source = open(sys.argv[1]).read()
build = {"target": "compute_90", "name": "checked.cu"}
first = cuda.compile_program(source, checks="async", **build)
cuda.flush()
calls._calls = None  # a hit reads no check
second = cuda.compile_program(source, checks="async", **build)
plain = cuda.compile_program(source, **build)
print(checked_of(first) == checked_of(second), checked_of(plain), checked_of(second).mode)
check = checked_of(second).table[1]
print(check.line, check.function, check.message)
"""


@pytest.mark.slow
def test_the_library_knows_the_table_of_a_hit(tmp_path: Path) -> None:
    """A compiled program and a cached one have the same failure table, and plain code has none."""
    done = run_text(
        [sys.executable, "-P", "-c", _TABLE, str(Path(__file__).with_name("checked.cu"))],
        env={**os.environ, "GPUCACHE_DIR": str(tmp_path / "cache")},
    )
    assert done.stdout == "True None async\n14 gather index %d is outside of 0 to %d\n", done.stderr


_BATCH = """
import sys
from gpucache import cuda
from gpucache.backends.cuda.checked import checked_of
source = open(sys.argv[1]).read()
batch = cuda.Batch(target="compute_90", checks=sys.argv[2])
routines = [
    batch.add(source, name="checked.cu", name_expressions=["sum<float>"]),
    batch.add("#include <gpucache/check.h>\\n__global__ void more(GPUCACHE_CHECKED int n)\\n"
              "{ GPUCACHE_BEGIN; GPUCACHE_CHECK(n, \\"more\\"); }", name="more.cu"),
]
checked = checked_of(routines[0].program)
programs = {id(routine.program) for routine in routines}
print([routine.apart for routine in routines], checked and checked.mode, len(programs))
for check in () if checked is None else (checked.table[0], checked.table[-1]):
    print(check.file, check.line, check.function)
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", Checks)
def test_a_batch_has_one_table(tmp_path: Path, mode: Checks) -> None:
    """Joined sources are one program with one failure table, in which each keeps its lines; so is a hit."""
    command = [sys.executable, "-P", "-c", _BATCH, str(Path(__file__).with_name("checked.cu")), mode]
    environment = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "cache")}
    for required in ("", "1"):
        done = run_text(command, env={**environment, "GPUCACHE_REQUIRE": required})
        table = "checked.cu 5 doubled\nmore.cu 3 more\n"
        told = "None 1\n" if mode is Checks.NONE else f"{mode} 1\n{table}"
        assert done.stdout == f"[None, None] {told}", done.stderr


_LAUNCH = """
import sys
import numpy as np
from cuda.core import Device, LaunchConfig
from gpucache import cuda
from gpucache.errors import KernelCheckError
device = Device()
device.set_current()
stream = device.create_stream()
code = cuda.compile_program(open(sys.argv[1]).read(), checks=sys.argv[2], name="checked.cu")
checked = cuda.CheckedStream(stream)
out = device.allocate(256 * 4, stream=stream)
out.fill(0, stream=stream)
where = device.allocate(256 * 4, stream=stream)
for value in (0, 1):
    where.fill(value, stream=stream)  # 0x01010101 is no index
    try:
        checked.launch(code, "gather", LaunchConfig(grid=4, block=64), where, out, np.int32(256))
        checked.synchronise()
        print("sound")
    except KernelCheckError as error:
        print(error.text)
"""


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_failure_on_a_gpu_is_told(mode: str) -> None:
    """The stream is usable before and after it."""
    done = run_text([sys.executable, "-P", "-c", _LAUNCH, str(Path(__file__).with_name("checked.cu")), mode])
    assert done.stdout == "sound\nindex 16843009 is outside of 0 to 255\n", done.stderr
