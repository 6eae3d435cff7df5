"""hipRTC's options, its targets, and what of the machine is in a key."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from gpucache.backends import installation
from gpucache.backends.hip import BACKEND, hiprtc
from gpucache.backends.hip.options import VARIABLES, request_as_asked
from gpucache.engine.prepare import Prepared, holds_paths, prepare
from gpucache.errors import NoDeviceError, OptionError, TargetError
from gpucache.model import ArtifactKind, BuildRequest, Language, Program, Target, Toolchain
from tests.children import run_python
from tests.hip import need_hip

_TOOLCHAIN = Toolchain("hiprtc", (("architecture", "gfx90a"), ("compiler build", "1")), ("architecture",))
_SOURCE = b'extern "C" __global__ void one(int *out) { *out = 1; }'


def _asked(
    *options: str,
    source: bytes = _SOURCE,
    cwd: str = "/nowhere",
    environ: Mapping[str, str] = MappingProxyType({}),
) -> Prepared:
    request = request_as_asked(source, "one.hip", options, version=(9, 0), cwd=cwd)
    return prepare(BACKEND, request, _TOOLCHAIN, environ)


def _request(*options: str, target: str = "gfx90a", source: bytes = _SOURCE) -> BuildRequest:
    program = Program("one", Language.HIP_CPP, source)
    return BuildRequest(program, Target("hip", target), options, artifact_kind=ArtifactKind.CODE_OBJECT)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--offload-arch=gfx90a", "--gpu-architecture=gfx1030"),
        *(
            ("--offload-arch=gfx90a", one)
            for one in ("-g", "-save-temps", "-isystem/x", "-Wp,-MD,x", "-fplugin=x.so", "-fsanitize=address")
        ),
        ("--offload-arch=gfx90a", "-mllvm", "-debug-only=x"),
        ("--offload-arch=gfx90a", "-include", "x.h"),
    ],
)
def test_what_a_key_would_not_cover_is_refused(options: tuple[str, ...]) -> None:
    """The GPU of the machine as target, files that options read or write, and paths that are made up."""
    with pytest.raises(OptionError):
        _asked(*options)


@pytest.mark.parametrize(
    "options",
    [
        ("-O2",),
        ("-ffast-math",),
        ("-DA=2",),
        ("-mllvm", "-amdgpu-early-inline-all=true"),
        ("-mcumode",),
        ("-fgpu-rdc",),
    ],
)
def test_each_option_is_in_the_key(options: tuple[str, ...]) -> None:
    """An option more makes another key, and the target's spelling none."""
    plain = _asked("--offload-arch=gfx90a", "-DA=1")
    assert _asked("--offload-arch=gfx90a", "-DA=1", *options).key != plain.key
    assert _asked("--gpu-architecture=gfx90a", "-D", "A=1").key == plain.key


def test_relocatable_code_is_bitcode() -> None:
    """With -fgpu-rdc hipRTC gives bitcode, which its linker takes."""
    assert _asked("--offload-arch=gfx90a", "-fgpu-rdc").request.artifact_kind is ArtifactKind.BITCODE


def test_a_source_that_tells_its_name_is_kept_for_the_directory_of_temporary_files() -> None:
    """Comgr makes up the rest of the path of each source."""
    source = b"int one = sizeof(__FILE__);"
    environs: tuple[dict[str, str], ...] = (
        {},
        {"TMPDIR": "/tmp"},
        {"TMPDIR": "/1", "TMP": "/2"},
        {"TMP": "/2"},
    )
    found = [_asked("--offload-arch=gfx90a", source=source, environ=one) for one in environs]
    assert [holds_paths(one, b"") for one in (*found, _asked("--offload-arch=gfx90a"))] == [True] * 4 + [
        False
    ]
    assert found[0].located_key == found[1].located_key
    assert len({one.located_key for one in found}) == 3


def test_headers_of_the_compiler_in_the_current_directory_are_refused(tmp_path: Path) -> None:
    """Comgr's clang looks for its own headers below the current directory."""
    assert _asked("--offload-arch=gfx90a", cwd=str(tmp_path)).refusal is None
    (tmp_path / "lib/clang").mkdir(parents=True)
    assert _asked("--offload-arch=gfx90a", cwd=str(tmp_path)).refusal


@pytest.mark.parametrize(
    "name", ["CPATH", "CPLUS_INCLUDE_PATH", "HIPRTC_COMPILE_OPTIONS_APPEND", "ROCM_PATH"]
)
def test_each_variable_is_in_the_key(name: str) -> None:
    """A variable is absent, set, and set to another value: three keys."""
    keys = {
        prepare(BACKEND, _request(), _TOOLCHAIN, environ).key for environ in ({}, {name: "/1"}, {name: "/2"})
    }
    assert len(keys) == 3
    assert VARIABLES.among({name: "/1", "HOME": "/", "ROCR_VISIBLE_DEVICES": "0"}) == ((name, "/1"),)


def test_a_relative_directory_of_rocm_is_refused() -> None:
    """It would depend on the current directory."""
    assert prepare(BACKEND, _request(), _TOOLCHAIN, {"ROCM_PATH": "rocm"}).refusal


def test_it_matters_where_a_header_of_the_system_is(tmp_path: Path) -> None:
    """HipRTC does not search all that may be searched, so one that moves may be another program's."""
    places = tmp_path / "include", tmp_path / "hip/include"
    for one in places:
        one.mkdir(parents=True)
    request = _request(source=b"#if __has_include(<one.h>)\n#include <one.h>\n#endif\n" + _SOURCE)
    (places[0] / "one.h").write_text("")
    before = prepare(BACKEND, request, _TOOLCHAIN, {"ROCM_PATH": str(tmp_path)})
    (places[0] / "one.h").rename(places[1] / "one.h")
    assert prepare(BACKEND, request, _TOOLCHAIN, {"ROCM_PATH": str(tmp_path)}).key != before.key


@pytest.fixture(scope="module")
def files() -> Iterator[Path]:
    need_hip()
    yield hiprtc.installation().libraries[0]


def test_the_builds_of_all_libraries_are_in_the_toolchain(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HipRTC, its header, comgr and LLVM: another file of any of them is another compiler."""
    for known in ("_marks", "_contents"):  # else each later build here is of a compiler that was replaced
        monkeypatch.setattr(installation, known, dict(getattr(installation, known)))
    target, found = Target("hip", "gfx90a"), hiprtc.search(files, (9, 0), "")[1]
    assert {path.name.partition(".")[0] for path in found} > {
        "libamdhip64",
        "libhiprtc-builtins",
        "libamd_comgr",
    }
    plain = hiprtc.toolchain_at(files, (9, 0), target, "")
    assert plain == hiprtc.toolchain(target)
    for path in found[1:]:
        other = tmp_path / path.name
        other.write_bytes(b"another library")
        assert hiprtc.toolchain_at(files, (9, 0), target, str(tmp_path)) != plain
        other.unlink()
    assert hiprtc.toolchain_at(files, (9, 0), target, str(tmp_path)) == plain
    with pytest.raises(NoDeviceError):
        hiprtc.search(tmp_path / files.name, (9, 0), "")
    (tmp_path / "libhiprtc.so").symlink_to(files)  # as programs make a toolkit's name for it
    assert hiprtc.search(tmp_path / "libhiprtc.so", (9, 0), "")[1][1:] == found[1:]


def test_an_unknown_architecture_does_not_end_the_process(files: Path) -> None:
    """HipRTC itself would end it."""
    with pytest.raises(TargetError):
        hiprtc.compile_command(_request(target="gfx9999"), ("--offload-arch=gfx9999",))


@pytest.mark.slow
def test_a_program_is_compiled_once(files: Path, tmp_path: Path) -> None:
    """The library compiles after a miss, then hits; it passes on errors, and options that are not known."""
    script = (
        "import gpucache.hip as hip; from gpucache.errors import CompileError\n"
        "source = 'template <class T> __global__ void one(T *out) { *out = N; }'\n"
        "def made(**more): return hip.compile_program("
        "source, target='gfx90a', name_expressions=['one<int>'], **more)\n"
        "code = made(options=['-DN=2'])\n"
        "print(code.code[:4], dict(code.lowered_names), made(options=['-DN=2']) == code)\n"
        "try: made()\n"
        "except CompileError as error: print('N' in error.log)\n"
        "print(made(options='-DN=2 -g').code != code.code)\n"
    )
    environ = {"GPUCACHE_DIR": str(tmp_path / "root"), "GPUCACHE_LOG": "info"}
    printed = run_python("-c", script, env=environ)
    assert printed.splitlines() == ["b'\\x7fELF' {'one<int>': '_Z3oneIiEvPT_'} True", "True", "True"]
    assert run_python("-c", script, env=environ) == printed
    assert len([*(tmp_path / "root").rglob("*.gpc")]) == 1
