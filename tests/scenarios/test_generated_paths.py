"""Generated headers that use their own path: an artifact that differs by directory is tied to it."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpucache.backends.cuda import BACKEND
from gpucache.engine.prepare import holds_paths, prepare
from gpucache.errors import CompileError
from gpucache.model import ArtifactKind, BuildRequest, Language, Program, Target
from tests.nvrtc import need_nvrtc

_TARGET = Target.parse("cuda:sm_80")
_LENGTH = """
constexpr __device__ int length(const char *s) { int n = 0; while (s[n]) n++; return n; }
constexpr __device__ int at(const char *s = __builtin_FILE()) { return length(s); }
"""
_NAMES = ("__FILE__", "__builtin_FILE()", "MACRO", '__FILE__ "x"', '"x" __FILE__', "__BASE_FILE__")
_USES = (
    "(int)sizeof({0})",
    "length({0})",
    "({0})[3]",
    "at()",
    "another({0})",
    "another(__FILE__)",
    'printf("%s", {0})',
    "printf({0})",
    'printf("%d", length({0}))',
    '(printf("%s:%d", {0}, 1), sizeof({0}))',
    "(assert({0}[0] == 47), 1)",
    '(asm volatile("// " {0} ""), 3)',
)
_BODIES = (
    "__device__ int value() {{ return {0}; }}",
    "__device__ int value() {{ constexpr int n = {0}; return n; }}",
    "#define VALUE {0}\n__device__ int value() {{ return VALUE; }}",
    "#define VALUE {0}\n__device__ int value() {{ return 1; }}",
    "#define VALUE() ({0})\n#define MORE VALUE()\n#ifdef NEVER\nint n = MORE;\n#endif\n"
    "__device__ int value() {{ return 5; }}",
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(_NAMES),
    use=st.sampled_from(_USES),
    body=st.sampled_from(_BODIES),
    option=st.sampled_from(["-DMACRO=__FILE__", "-DOTHER", "-lineinfo", "-G"]),
    defined=st.booleans(),
)
def test_what_differs_by_folder_is_tied_to_it(
    tmp_path: Path, name: str, use: str, body: str, option: str, defined: bool
) -> None:
    """Whatever a header does with its path, an artifact that others may share is the same for all."""
    need_nvrtc()
    another = "__device__ int another(const char *s) { return length(s); }\n"
    header = _LENGTH + another + body.format(use.format(name)) + "\n"
    before = "#ifndef MACRO\n#define MACRO __FILE__\n#endif\n" if defined else ""
    kernel = 'extern "C" __global__ void show(int *out) { *out = value(); }'
    source = f'{before}#include "value.h"\n{kernel}'.encode()
    program = Program("show", Language.CUDA_CPP, source)
    payloads, shared = set(), set()
    for folder in (tmp_path / "first", tmp_path / "the second"):
        folder.mkdir(exist_ok=True)
        (folder / "value.h").write_text(header, encoding="ascii")
        request = BuildRequest(program, _TARGET, (option,), (str(folder),), ArtifactKind.CUBIN)
        prepared = prepare(BACKEND, request, BACKEND.toolchain(_TARGET), {})
        try:
            payload = BACKEND.compile(request, prepared.compilation).payload
        except CompileError:
            return
        payloads.add(payload)
        if not holds_paths(prepared, payload) and prepared.refusal is None:
            shared.add(payload)
    assert not shared or len(payloads) == 1
