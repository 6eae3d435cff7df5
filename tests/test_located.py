"""Which CUDA artifacts are bound to the folders of their headers, and which may be found from anywhere."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_python, run_text
from tests.nvrtc import need_nvrtc
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

_PROCESS = Path(__file__).with_name("library_process.py")
_SOURCE = '#include "value.h"\nextern "C" __global__ void show(int *out) { *out = value(); }'
_PLAIN = "static __device__ __noinline__ int value() { return threadIdx.x; }\n"
_NAMED = "static __device__ int value() { const char *f = __FILE__; return f[threadIdx.x]; }\n"
_PRINTED = 'static __device__ int value() { printf("%s", __FILE__); return 7; }\n'
_LENGTH = """
constexpr __device__ int length(const char *s) { return *s ? 1 + length(s + 1) : 0; }
"""
_FOLDED = {
    "size": "static __device__ int value() { return sizeof(__FILE__); }",
    "macro": "#define HERE() sizeof(__FILE__)\nstatic __device__ int value() { return HERE(); }",
    "builtin": _LENGTH
    + "static __device__ int value() { constexpr int n = length(__builtin_FILE()); return n; }",
    "caller": _LENGTH
    + "constexpr __device__ int at(const char *s = __builtin_FILE()) { return length(s); }\n"
    + "static __device__ int value() { constexpr int n = at(); return n; }",
    "option": "static __device__ int value() { return OPTION; }",
}
_PTX = {"target": "compute_80"}
_LTOIR = {"target": "sm_80", "artifact_kind": "ltoir"}

Compile = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module", autouse=True)
def nvrtc() -> None:
    need_nvrtc()


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    """The outcomes of one source compiled in a separate program, once for each set of arguments."""

    def run(
        *arguments: dict[str, Any], sources: Sequence[str] = (), cwds: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        texts, places = sources or [_SOURCE] * len(arguments), cwds or [str(tmp_path)] * len(arguments)
        jobs = [
            {"source": text, "arguments": one, "cwd": place}
            for text, one, place in zip(texts, arguments, places, strict=True)
        ]
        printed = run_python(
            str(_PROCESS),
            "cuda",
            stdin=json.dumps(jobs),
            env={**os.environ, "GPUCACHE_DIR": str(tmp_path / "cache"), "GPUCACHE_MEMORY_BYTES": "0"},
        )
        outcomes: list[dict[str, Any]] = json.loads(printed.removeprefix("ready\n"))
        assert [outcome["error"] for outcome in outcomes] == [None] * len(jobs)
        return outcomes

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str, str], str]:
    """Write ``value.h`` into a directory of this test."""

    def write(name: str, header: str) -> str:
        (tmp_path / name).mkdir()
        (tmp_path / name / "value.h").write_text(header, encoding="ascii")
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("header", [pytest.param(text, id=name) for name, text in _FOLDED.items()])
def test_a_constant_made_of_a_headers_path_binds_an_artifact(
    compiled: Compile, folder: Callable[[str, str], str], header: str
) -> None:
    """Even though the path is not in it, each directory gets plain NVRTC's artifact."""
    places = [folder(name, header) for name in ("first", "the second")]
    job = {"target": "sm_80", "options": ["-std=c++17", "-DOPTION=sizeof(__FILE__)"]}
    outcomes = compiled(*({**job, "include_path": [place]} for place in (*places, *places)))
    assert [outcome["compiled"] for outcome in outcomes] == [1, 1, 0, 0]
    codes = [outcome["code"] for outcome in outcomes]
    assert codes[:2] == codes[2:]
    assert codes[0] != codes[1]


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("#define UNUSED sizeof(__FILE__)\n" + _PLAIN, id="unused"),
        pytest.param(_PLAIN + '// __FILE__ "__FILE__"\n', id="comment"),
        pytest.param("#define LAST __FILE_NAME__\n" + _PLAIN, id="last part"),
        pytest.param(
            '#define CHECK(x) if (!(x)) printf("%s:%d", __FILE__, __LINE__)\n#ifdef LATER\n'
            "static __device__ void check() { CHECK(0); }\n#endif\n" + _PLAIN,
            id="printed nowhere",
        ),
    ],
)
def test_a_path_that_makes_no_constant_binds_nothing(
    compiled: Compile, folder: Callable[[str, str], str], header: str
) -> None:
    """A path that is only mentioned, or printed but not compiled in, leaves one artifact for all places."""
    places = [folder(name, header) for name in ("first", "the second")]
    outcomes = compiled(*({"target": "sm_80", "include_path": [place]} for place in places))
    assert [outcome["compiled"] for outcome in outcomes] == [1, 0]


def test_programs_over_the_cuda_toolkit_are_found_from_anywhere(tmp_path: Path, compiled: Compile) -> None:
    """CUB, libcu++, cooperative groups, tensor cores and small floats: a second place of the headers hits."""
    include = Path(sysconfig.get_path("purelib"), "nvidia/cu13/include")
    if not (include / "crt/mma.h").is_file() or not (include / "cccl").is_dir():
        pytest.skip("nvidia-cuda-crt and nvidia-cuda-cccl are not installed")
    for name in ("first", "second"):
        (tmp_path / name).symlink_to(include)
    paths = [[str(tmp_path / name), str(tmp_path / name / "cccl")] for name in ("first", "second")]
    programs = [
        file.read_text(encoding="utf-8")
        for file in sorted((Path(__file__).parent / "contracts" / "cuda").glob("*.cu"))
        if file.name not in ("host_only.cu", "where.cu")
    ]
    jobs = [{"target": "sm_90", "include_path": path, "options": ["-std=c++17"]} for path in paths]
    outcomes = compiled(*(job for job in jobs for _ in programs), sources=programs * 2)
    assert [outcome["compiled"] for outcome in outcomes] == [1] * len(programs) + [0] * len(programs)


@pytest.mark.parametrize("option", ["-G", "--device-debug"])
def test_a_debug_build_holds_no_directory(tmp_path: Path, option: str) -> None:
    """Not even the directory of the compile: a build from elsewhere is a hit, and so is warm's."""
    source = 'extern "C" __global__ void show(int *out) { *out = 7; }\n'
    (tmp_path / "show.cu").write_text(source, encoding="ascii")
    places = [tmp_path / name for name in ("first", "second")]
    for place in places:
        place.mkdir()
    arguments = {"target": "compute_80", "options": [option]}
    jobs = [{"source": source, "arguments": arguments, "cwd": str(place)} for place in places]
    warm = ["warm", str(tmp_path / "show.cu"), "--target", "cuda:compute_80", f"--option={option}"]
    codes = set()
    for root, warmed in (("one", False), ("two", True)):
        environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / root), "GPUCACHE_MEMORY_BYTES": "0"}
        if warmed:
            subprocess.run(
                [sys.executable, "-m", "gpucache", *warm], env=environ, timeout=PATIENCE_S, check=True
            )
        printed = run_python(str(_PROCESS), "cuda", stdin=json.dumps(jobs), env=environ)
        outcomes = json.loads(printed.removeprefix("ready\n"))
        assert [outcome["error"] for outcome in outcomes] == [None, None]
        assert [outcome["compiled"] for outcome in outcomes] == [0 if warmed else 1, 0]
        codes |= {outcome["code"] for outcome in outcomes}
    assert len(codes) == 1


@pytest.mark.parametrize("option", ["-G", "-lineinfo"])
def test_a_forced_include_of_the_current_directory_is_found_in_builds_with_lines(
    compiled: Compile, folder: Callable[[str, str], str], option: str
) -> None:
    """Each directory gets NVRTC's artifact for it, with its own path, and finds it again."""
    places = [folder(name, _PLAIN) for name in ("first", "second")]
    source = _SOURCE.replace('#include "value.h"', "")
    job = {"target": "sm_80", "options": [option, "-include=value.h"]}
    outcomes = compiled(*[job] * 4, sources=[source] * 4, cwds=places * 2)
    assert [outcome["compiled"] for outcome in outcomes] == [1, 1, 0, 0]
    codes = [outcome["code"] for outcome in outcomes]
    assert codes[:2] == codes[2:]
    assert codes[0] != codes[1]


@pytest.mark.parametrize("header", [pytest.param(_NAMED, id="used"), pytest.param(_PRINTED, id="printed")])
@pytest.mark.parametrize("kind", [pytest.param(_PTX, id="ptx"), pytest.param(_LTOIR, id="ltoir")])
def test_a_path_written_into_an_artifact_binds_it(
    compiled: Compile, folder: Callable[[str, str], str], kind: dict[str, str], header: str
) -> None:
    """A header that names its own file is compiled for each directory, and each finds its own bytes again."""
    places = [folder(name, header) for name in ("first", "second")]
    outcomes = compiled(*({**kind, "include_path": [place]} for place in (*places, *places)))
    assert [outcome["compiled"] for outcome in outcomes] == [1, 1, 0, 0]
    codes = [outcome["code"] for outcome in outcomes]
    assert codes[:2] == codes[2:]
    assert codes[0] != codes[1]


def test_ptx_without_a_path_is_found_from_anywhere(
    compiled: Compile, folder: Callable[[str, str], str]
) -> None:
    """A header that does not name its file gives PTX that also serves a copy of it elsewhere."""
    places = [folder(name, _PLAIN) for name in ("first", "second")]
    outcomes = compiled(*({**_PTX, "include_path": [place]} for place in places))
    assert [outcome["compiled"] for outcome in outcomes] == [1, 0]


@pytest.mark.parametrize("target", ["sm_80", "compute_80"])
@pytest.mark.parametrize(
    ("header", "compilations"),
    [
        pytest.param(_PLAIN, [1, 1], id="code"),
        pytest.param("#define value() 7\nstatic __device__ int unused() { return 8; }\n", [1, 0], id="none"),
    ],
)
def test_line_information_binds_an_artifact_to_headers_that_code_came_from(
    compiled: Compile, folder: Callable[[str, str], str], target: str, header: str, compilations: list[int]
) -> None:
    """With -lineinfo, a header without any code in the artifact does not bind it to its place."""
    places = [folder(name, header) for name in ("first", "second")]
    arguments = [{"target": target, "options": "-lineinfo", "include_path": [place]} for place in places]
    outcomes = compiled(*arguments)
    assert [outcome["compiled"] for outcome in outcomes] == compilations
    assert (outcomes[0]["code"] == outcomes[1]["code"]) is (compilations == [1, 0])


@pytest.mark.parametrize("where", ["source", "header"])
def test_line_information_of_a_renamed_text_holds_no_directory(tmp_path: Path, where: str) -> None:
    """NVRTC makes a full path of the name in a ``#line``: not with the first builder's directory."""
    source = '#line 1 "made/from.cu"\nextern "C" __global__ void show(int *out) { *out = 7; }'
    (tmp_path / "include").mkdir()
    if where == "header":
        (tmp_path / "include" / "show.h").write_text(source, encoding="ascii")
        source = "#include <show.h>\n"
    arguments = {"target": "sm_80", "options": "-lineinfo", "include_path": [str(tmp_path / "include")]}
    job = {"source": source, "arguments": arguments, "cwd": str(tmp_path)}
    environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "cache")}
    run_python(str(_PROCESS), "cuda", stdin=json.dumps([job]), env=environ)
    (entry,) = (tmp_path / "cache").glob("v1/entries/*/*.gpc")
    data = entry.read_bytes()
    assert b"/made" in data
    assert os.fsencode(tmp_path / "made") not in data


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
    """If an artifact is bound to its directories, an unrelated -I before or after the used one is a hit."""
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
    warmed = run_text(
        [sys.executable, "-m", "gpucache", "warm", "--manifest", str(tmp_path / "gpucache.toml")], env=environ
    )
    assert warmed.returncode == 0, warmed.stdout + warmed.stderr
    named = {"target": "sm_80", "include_path": [str(tmp_path)], "headers": ["value.h"]}
    job = {"source": source, "arguments": named, "cwd": str(tmp_path), "compiling": False}
    printed = run_python(str(_PROCESS), "cuda", stdin=json.dumps([job]), env=environ)
    (outcome,) = json.loads(printed.removeprefix("ready\n"))
    assert (outcome["error"], outcome["compiled"]) == (None, 0)


def test_a_variable_that_changed_after_nvrtc_was_loaded_keeps_nothing(tmp_path: Path) -> None:
    """NVRTC reads it when it is loaded; a program that begins with the new value gets its own binary."""
    job = {"source": _SOURCE.replace('#include "value.h"\n', _PLAIN), "arguments": {"target": "compute_80"}}
    environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "cache"), "GPUCACHE_MEMORY_BYTES": "0"}
    variable = {"NV_NVVM_VERSION": "nvvm-latest"}

    def outcomes(*jobs: dict[str, Any], **more: str) -> list[dict[str, Any]]:
        printed = run_python(str(_PROCESS), "cuda", stdin=json.dumps(jobs), env={**environ, **more})
        found: list[dict[str, Any]] = json.loads(printed.removeprefix("ready\n"))
        return found

    plain, changed = outcomes(job, {**job, "environment": variable})
    assert (changed["compiled"], changed["code"]) == (1, plain["code"])
    assert any("NV_NVVM_VERSION was changed" in line for line in changed["log"])
    begun, removed = outcomes(job, {**job, "environment": {"NV_NVVM_VERSION": None}}, **variable)
    assert (begun["compiled"], removed["compiled"]) == (1, 1)
    assert begun["code"] == removed["code"] != plain["code"]
