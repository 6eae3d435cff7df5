"""NVRTC as installed: artifacts without a driver, names that do not matter, and the compiler's identity."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpucache.backends import installation
from gpucache.backends.cuda import BACKEND, nvrtc
from gpucache.engine.prepare import closure_of
from gpucache.errors import CompileError, NoDeviceError, OptionError, TargetError
from gpucache.model import Artifact, ArtifactKind, BuildRequest, Language, Program, Target
from gpucache.payload import PayloadKind, describe
from tests.children import run_text
from tests.nvrtc import need_nvrtc
from tests.patience import PATIENCE_S

_SHOW = b'extern "C" __global__ void show(int *out) { *out = 7; }'
_TEMPLATE = b"namespace { template <typename T> __global__ void show(T *out) { *out = 7; } }"


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    need_nvrtc()


def _request(
    source: bytes = _SHOW, *, target: str = "cuda:compute_90", name: str = "show.cu", **more: Any
) -> BuildRequest:
    parsed = Target.parse(target)
    kind = BACKEND.artifact_kind(parsed)
    return BuildRequest(Program(name, Language.CUDA_CPP, source), parsed, **{"artifact_kind": kind, **more})


def _compile(source: bytes = _SHOW, *, target: str = "cuda:sm_90", **more: Any) -> Artifact:
    request = _request(source, target=target, **more)
    return BACKEND.compile(request, BACKEND.plan(request, BACKEND.toolchain(request.target), {}))


@pytest.mark.parametrize(
    ("target", "kind", "is_a", "architecture"),
    [
        ("cuda:sm_80", ArtifactKind.CUBIN, PayloadKind.CUBIN, "sm_80"),
        ("cuda:sm_90a", ArtifactKind.CUBIN, PayloadKind.CUBIN, "sm_90a"),
        ("cuda:compute_90", ArtifactKind.PTX, PayloadKind.PTX, "compute_90"),
        ("cuda:sm_90", ArtifactKind.PTX, PayloadKind.PTX, "compute_90"),
        ("cuda:sm_90", ArtifactKind.LTOIR, PayloadKind.LTOIR, None),
    ],
)
def test_it_compiles_for_what_is_not_here(
    target: str, kind: ArtifactKind, is_a: PayloadKind, architecture: str | None
) -> None:
    """Every kind of artifact is built without a driver, for the requested architecture."""
    artifact = _compile(target=target, artifact_kind=kind)
    info = describe(artifact.payload)
    assert (artifact.kind, info.kind, info.problem) == (kind, is_a, None)
    assert architecture is None or info.architecture == architecture
    assert artifact.compile_ns > 0


@pytest.mark.parametrize("options", [["--version-ident=true"], ["-dQ", "true", "-lineinfo"]])
@pytest.mark.parametrize("kind", [ArtifactKind.PTX, ArtifactKind.LTOIR])
def test_an_artifact_that_names_its_compiler_is_sound(kind: ArtifactKind, options: list[str]) -> None:
    """A section in which NVRTC names itself is part of the format, in every spelling of the option."""
    payload = _compile(target="cuda:compute_90", artifact_kind=kind, options=tuple(options)).payload
    assert describe(payload).problem is None
    assert kind is not ArtifactKind.PTX or b"\t.section .comment\t" in payload


@pytest.mark.parametrize(
    "options",
    [
        ["-std c++17"],
        ["-std= c++17"],
        ["--define-macro X"],
        ["--include-path /"],
        ["-include x.h"],
        ["-maxrregcount 32"],
        ["-Xptxas -v"],
        ["-dopt", "-I/"],
        ["-w", ""],
        ["-D\nX"],
        ["-U\tX"],
    ],
)
def test_a_spelling_that_nvrtc_refuses_is_refused(options: list[str]) -> None:
    """An option that does not compile as given does not compile when planned either."""
    with pytest.raises(CompileError):
        nvrtc.compile_exactly(_request(), ("-arch=compute_90", *options))
    with pytest.raises((CompileError, OptionError)):
        _compile(target="cuda:compute_90", options=tuple(options))


def test_the_name_of_a_program_is_not_in_its_artifact() -> None:
    """Two names give the same bytes and lowered names, even where NVRTC mangles the file's name in."""
    first, second = (
        _compile(_TEMPLATE, name=name, name_expressions=("show<int>",)) for name in ("first.cu", "second.cu")
    )
    assert first.payload == second.payload
    assert first.lowered_names == second.lowered_names
    assert first.lowered_names["show<int>"].encode() in first.payload


@pytest.mark.parametrize(("options", "value"), [((), 1), (("--no-source-include",), 2)])
def test_the_header_that_is_keyed_is_the_one_that_is_used(
    tmp_path: Path, options: tuple[str, ...], value: int
) -> None:
    """A quoted include of a header starts next to it, unless the program's own option says otherwise."""
    for name, text in {
        "sub/outer.h": '#include "value.h"\n',
        "sub/value.h": "#define V 1\n",
        "value.h": "#define V 2\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="ascii")
    source = b"#include <sub/outer.h>\n" + _SHOW.replace(b"7", b"V")
    more: dict[str, Any] = {"include_dirs": (str(tmp_path),), "options": options}
    assert f", {value};".encode() in _compile(source, target="cuda:compute_90", **more).payload
    request = BuildRequest(
        Program("show.cu", Language.CUDA_CPP, source), Target.parse("cuda:compute_90"), **more
    )
    closure = closure_of(request, BACKEND.plan(request, BACKEND.toolchain(request.target), {}))
    used = "sub/value.h" if value == 1 else "value.h"
    assert closure.files == (str(tmp_path / "sub/outer.h"), str(tmp_path / used))


_ALONE = """
import sys
from gpucache.backends.cuda import BACKEND
from gpucache.model import ArtifactKind, BuildRequest, Language, Program, Target

program = Program("show.cu", Language.CUDA_CPP, sys.argv[1].encode())
request = BuildRequest(
    program,
    Target.parse("cuda:sm_90"),
    artifact_kind=ArtifactKind.CUBIN,
    name_expressions=("show<int>",),
)
plan = BACKEND.plan(request, BACKEND.toolchain(request.target), {})
sys.stdout.buffer.write(BACKEND.compile(request, plan).payload)
"""


def test_time_and_process_are_not_in_an_artifact() -> None:
    """Two processes make the same bytes, even where nothing in the program can be named from outside."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _ALONE, _TEMPLATE.decode()],
            stdout=subprocess.PIPE,
            check=True,
            timeout=PATIENCE_S,
        ).stdout
        for _ in range(2)
    }
    assert len(outputs) == 1


def test_the_current_directory_is_not_in_line_information(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``-lineinfo`` the same bytes come out wherever the compiler runs."""
    payloads = set()
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        payloads.add(_compile(options=("-lineinfo",)).payload)
    assert len(payloads) == 1


_SPELLINGS = (
    (("-DX",), ("-DX=1",), ("--define-macro", "X")),
    (("-UX", "-DX"), ("-UX", "-DX=1")),
    (("-DX", "-UX"), ("-DX=1", "-UX")),
    (("-ftz=true",), ("--ftz", "true")),
    (("-prec-sqrt=false",), ("--prec-sqrt=false",)),
    (("-prec-div=false",), ("--prec-div=false",)),
    (("-fmad=false",), ("--fmad", "false")),
    (("-use_fast_math",), ("--use_fast_math",)),
    (("-dc",), ("--device-c",), ("-rdc=true",), ("--relocatable-device-code=true",)),
    (("-dw",), ("--device-w",), ("-rdc=false",)),
    (("-G",), ("--device-debug",)),
    (("-lineinfo",), ("--generate-line-info",)),
    (("-maxrregcount=16",), ("--maxrregcount", "16")),
    (("-w",), ("--disable-warnings",)),
    (("-restrict",), ("--restrict",)),
    (("-ewp",), ("--extensible-whole-program",)),
    (("-extra-device-vectorization",), ("--extra-device-vectorization",)),
    (("-default-device",), ("--device-as-default-execution-space",)),
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ArtifactKind.CUBIN, ArtifactKind.PTX])
def test_spellings_with_one_key_give_one_artifact(kind: ArtifactKind) -> None:
    """All spellings of an option have one key and one artifact; other options differ."""
    source = b"""
        #ifndef X
        #define X 3
        #endif
        extern "C" __global__ void show(float *out, const float *a, float b) {
            out[threadIdx.x] = sqrtf(a[0]) / b + a[1] * b + X + __sinf(b);
        }
    """
    target = Target.parse("cuda:sm_80")
    toolchain = BACKEND.toolchain(target)
    made: dict[tuple[str, ...], bytes] = {}
    for spellings in _SPELLINGS:
        for options in spellings:
            request = BuildRequest(
                Program("show", Language.CUDA_CPP, source), target, options, artifact_kind=kind
            )
            plan = BACKEND.plan(request, toolchain, {})
            payload = BACKEND.compile(request, plan).payload
            assert made.setdefault(plan.inputs.options, payload) == payload, options
    assert len(made) == len(_SPELLINGS)
    assert len(set(made.values())) > len(_SPELLINGS) // 3


def test_messages_carry_the_name_of_the_program() -> None:
    """Errors and warnings speak of the program's own name, not of the fixed one it is compiled under."""
    with pytest.raises(CompileError, match=r"^solver.cu does not compile") as caught:
        _compile(b"__global__ void show() { oops; }", name="solver.cu")
    assert caught.value.log.startswith('solver.cu(1): error: identifier "oops" is undefined')
    warned = _compile(b"__global__ void show() { int unused; }", name="solver.cu")
    assert warned.build_log.startswith("solver.cu(1): warning #177-D")


def test_a_name_expression_that_does_not_exist_is_a_compile_error() -> None:
    """A template instance that the source lacks fails the build with NVRTC's message."""
    with pytest.raises(CompileError) as caught:
        _compile(_TEMPLATE, name_expressions=("absent<int>",))
    assert "absent" in caught.value.log


def test_a_source_ends_at_a_zero_byte() -> None:
    """NVRTC stops at a zero byte, so a text may end in one, and the rest after one is ignored."""
    assert _compile(_SHOW + b"\0").payload == _compile(_SHOW).payload
    assert _compile(_SHOW + b"\0#error not seen").payload == _compile(_SHOW).payload


def test_a_virtual_architecture_gives_no_cubin() -> None:
    """A cubin for compute_90 is refused, and the message names the right kind of target."""
    with pytest.raises(CompileError, match="use cuda:sm_N"):
        _compile(target="cuda:compute_90", artifact_kind=ArtifactKind.CUBIN)


@pytest.mark.parametrize("name", ["sm_1", "sm_90x", "sm_", "volta"])
def test_a_target_that_nvrtc_does_not_know_is_an_error(name: str) -> None:
    """The error names the target and the valid numbers."""
    with pytest.raises(TargetError, match=rf"does not build for 'cuda:{name}'.* 90"):
        nvrtc.toolchain(Target("cuda", name))


def test_a_program_sees_only_its_include_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the current directory nor the environment provides a header outside the key."""
    (tmp_path / "value.h").write_text("#define V 7\n", encoding="ascii")
    monkeypatch.chdir(tmp_path)
    source = b'#include "value.h"\n' + _SHOW
    with pytest.raises(CompileError) as caught:
        _compile(source)
    assert 'cannot open source file "value.h"' in caught.value.log
    assert _compile(source, include_dirs=(str(tmp_path),)).payload


def test_a_toolchain_names_both_libraries() -> None:
    """Version and both build ids are fields; only the architecture stays over an upgrade."""
    toolchain = nvrtc.toolchain(Target("cuda", "sm_90"))
    fields = dict(toolchain.fields)
    assert fields["NVRTC version"] == ".".join(map(str, nvrtc.version()))
    ids = [fields["NVRTC build id"], fields["NVRTC builtins build id"]]
    assert len(set(ids)) == 2
    assert all(len(bytes.fromhex(build_id)) == 20 for build_id in ids)
    assert toolchain.identity_fields() == (("architecture", "sm_90"),)


_MAPPED = """
import re
from pathlib import Path
from gpucache.backends.cuda import BACKEND, nvrtc
from gpucache.model import BuildRequest, Language, Program, Target

def mapped(name):
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.partition("/")[2] for line in lines if name in line}

target = Target.parse("cuda:sm_90")
toolchain = BACKEND.toolchain(target)
assert not mapped("nvrtc-builtins")
(loaded,) = mapped("libnvrtc.so")
version = "%d.%d" % nvrtc.version()
foretold = nvrtc.find_builtins(Path("/" + loaded), "libnvrtc-builtins.so." + version)
source = b'extern "C" __global__ void show() {}'
request = BuildRequest(Program("show", Language.CUDA_CPP, source), target)
request = BuildRequest(request.program, target, artifact_kind=BACKEND.artifact_kind(target))
BACKEND.compile(request, BACKEND.plan(request, toolchain, {}))
(builtins,) = mapped("nvrtc-builtins")
assert foretold.resolve() == Path("/" + builtins).resolve(), (foretold, builtins)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what is loaded is told by /proc")
def test_the_builtins_are_known_before_they_are_loaded() -> None:
    """The library that enters the key is the one that NVRTC loads when it first compiles."""
    done = run_text([sys.executable, "-c", _MAPPED], env=os.environ)
    assert done.returncode == 0, done.stderr


def test_builtins_are_found_as_the_loader_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RPATH before LD_LIBRARY_PATH, that before RUNPATH, and next to NVRTC at last."""
    places = {name: tmp_path / name for name in ("rpath", "environment", "runpath", "beside")}
    for place in places.values():
        place.mkdir()
        (place / "builtins.so").write_bytes(b"")
    searched = {"rpath": ("$ORIGIN/../rpath",), "runpath": ()}
    monkeypatch.setattr(installation, "read_library", lambda _: SimpleNamespace(**searched))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(places["environment"]))

    def found() -> str:
        path = nvrtc.find_builtins(places["beside"] / "libnvrtc.so", "builtins.so")
        assert path is not None
        return path.resolve().parent.name

    order = [found()]
    searched["runpath"] = ("$ORIGIN/../runpath",)  # which makes the loader ignore RPATH
    order.append(found())
    monkeypatch.delenv("LD_LIBRARY_PATH")
    order.append(found())
    searched.update(rpath=(), runpath=())
    order.append(found())
    assert order == ["rpath", "environment", "runpath", "beside"]


def test_a_debug_build_leaves_the_directory_of_the_process(tmp_path: Path, monkeypatch: Any) -> None:
    """It is compiled in its own directory; if a thread cannot have one, the result is not kept."""
    source = b'extern "C" __global__ void show() {}'
    target = Target.parse("cuda:sm_80")
    program = Program("show", Language.CUDA_CPP, source)
    request = BuildRequest(program, target, ("-G",), artifact_kind=ArtifactKind.CUBIN)
    compilation = BACKEND.plan(request, BACKEND.toolchain(target), {})
    (tmp_path / "debugged").mkdir()
    monkeypatch.chdir(tmp_path / "debugged")
    here = os.fsencode(tmp_path / "debugged")
    artifact = BACKEND.compile(request, compilation)
    assert Path.cwd() == tmp_path / "debugged"
    monkeypatch.setattr(nvrtc, "_compile_in", lambda *_: None)
    refused = BACKEND.compile(request, compilation)
    assert refused.refusal is not None
    assert here in refused.payload
    if artifact.refusal is not None:
        pytest.skip("a sandbox forbids threads a directory of their own")
    assert here not in artifact.payload


@pytest.mark.parametrize(("renamed", "kept"), [("", True), ('#line 1 "place.cu"\n', False)])
def test_line_information_is_kept_in_a_sandbox_unless_it_holds_the_directory(
    tmp_path: Path, monkeypatch: Any, renamed: str, kept: bool
) -> None:
    """If a thread cannot have its own directory, only a relative name brings in the process's."""
    source = renamed + 'extern "C" __global__ void show(int *out) { *out = 7; }'
    target = Target.parse("cuda:sm_80")
    program = Program("show", Language.CUDA_CPP, source.encode())
    request = BuildRequest(program, target, ("-lineinfo",), artifact_kind=ArtifactKind.CUBIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nvrtc, "_compile_in", lambda *_: None)
    artifact = BACKEND.compile(request, BACKEND.plan(request, BACKEND.toolchain(target), {}))
    assert (artifact.refusal is None) is kept
    assert (os.fsencode(tmp_path) in artifact.payload) is not kept


def test_a_missing_nvrtc_is_no_device_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """If NVRTC does not load, the error says what to install."""

    def missing() -> None:
        raise RuntimeError("libnvrtc.so.13 was not found\nand more")

    monkeypatch.setattr(nvrtc, "_nvrtc", lambda: SimpleNamespace(nvrtcVersion=missing))
    with pytest.raises(
        NoDeviceError, match=r"libnvrtc.so.13 was not found\); 'pip install nvidia-cuda-nvrtc'"
    ):
        nvrtc.version()


def test_devices_are_every_architecture_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver each architecture and its PTX is a target that is not present, next to the reason."""
    from gpucache.backends.cuda import devices

    def no_driver() -> None:
        raise NoDeviceError(devices.NO_DRIVER)

    monkeypatch.setattr(devices, "find_driver", no_driver)
    driver, *rows = BACKEND.devices()
    assert (driver.target, driver.available, driver.detail) == (None, False, devices.NO_DRIVER)
    numbers = nvrtc.architectures()
    wanted = {f"cuda:{kind}_{number}" for kind in ("sm", "compute") for number in numbers}
    assert {str(row.target) for row in rows} == wanted
    assert all(row.available and not row.present for row in rows)
    with pytest.raises(NoDeviceError, match="no CUDA driver is installed"):
        BACKEND.load(_compile(), Target("cuda", "sm_90"))
