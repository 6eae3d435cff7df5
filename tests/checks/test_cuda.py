"""Checks in CUDA C++, compiled by NVRTC in every mode."""

from pathlib import Path

import pytest

from gpucache.backends.cuda import BACKEND
from gpucache.checks import include_dirs, instrument
from gpucache.errors import CompileError
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Checks, Language, Program, Target

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
    """Without a word from the compiler; the record is won by an atomic operation where there are checks."""
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
    """Turning checks on moves nothing: neither in messages nor in the failure table."""
    broken = _SOURCE.replace(b"int result;", b"int result", 1)
    with pytest.raises(CompileError) as raised:
        _compile(broken, Checks.ASYNC)
    line = 1 + _SOURCE[: _SOURCE.index(b"int result;")].count(b"\n")
    assert f"checked.cu({line + 1})" in raised.value.log  # where the semicolon is missed
    assert [row[0] for row in instrument(_SOURCE, Checks.SYNC).table][:2] == ["5", "14"]
