"""How the libraries are compiled, shipped and found."""

import ctypes
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gpucache
from gpucache.errors import NoDeviceError
from gpucache.native import build, locate
from tests.children import run_text

_PROJECT = Path(gpucache.__file__).parents[1]
_LAYER = build.file_name("opencl_layer")


def test_the_layer_says_who_it_is(layer: Path) -> None:
    """A loader gets a name and the version of the interface, and too small a buffer is refused."""
    library = ctypes.CDLL(str(layer))
    text, size = ctypes.create_string_buffer(64), ctypes.c_size_t()
    assert library.clGetLayerInfo(0x4241, len(text), text, ctypes.byref(size)) == 0
    assert text.raw[: size.value] == b"gpucache\0"
    version = ctypes.c_uint()
    assert library.clGetLayerInfo(0x4240, 4, ctypes.byref(version), None) == 0
    assert version.value == 100
    assert library.clGetLayerInfo(0x4241, 3, text, None) == -30
    assert library.clGetLayerInfo(0x9999, len(text), text, None) == -30


def test_a_compile_does_not_count_its_wait_for_another(stopwatch_program: Path) -> None:
    """A driver's lock lets one thread compile at a time; without waiting, all of the time counts."""
    told = run_text([stopwatch_program], check=True)
    assert told.stdout == "1 1 1\n"


def test_a_library_exports_what_loaders_ask_for_alone(layer: Path) -> None:
    """Any other symbol could replace a function of the command."""
    if not (nm := shutil.which("nm")):
        pytest.skip("there is no nm here")
    listed = run_text([nm, "-D", "--defined-only", layer], check=True)
    names = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert names == {"clGetLayerInfo", "clInitLayer", "clInitLayerWithProperties"}


def test_a_library_can_be_read_by_every_user(layer: Path) -> None:
    """A command may run as somebody else."""
    assert layer.stat().st_mode & stat.S_IROTH


def test_a_compiler_that_fails_is_quoted(tmp_path: Path) -> None:
    """The error is reported for each library, and no file is left behind."""
    failing = build.Compiler((sys.executable, "-c", "raise SystemExit('it does not')"), "linux_x86_64")
    problems = build.build(failing, tmp_path)
    assert problems == dict.fromkeys(build.LIBRARIES, "it does not")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("opencl_headers")
def test_the_binary_interface_is_khronos(compiler: build.Compiler, tmp_path: Path) -> None:
    """Every value, the size of every type and the place of every function are those of Khronos' headers."""
    ours = (build.FOLDER / "opencl_abi.h").read_text()
    values = re.findall(r"^    (CL_\w+) = ", ours, re.MULTILINE)
    types = set(re.findall(r"\b(cl_[a-z_]+)[,;]", ours)) - {
        "cl_icd_dispatch",
        "cl_program_notify",
        "cl_context_notify",
    }
    functions = re.findall(r"\(\*(cl[A-Z]\w+)\)\(", ours)
    assert len(values) > 30 and len(types) > 15 and len(functions) > 20
    facts = [
        *(f'printf("{name} %d\\n", (int){name});' for name in values),
        *(f'printf("{name} %zu %d\\n", sizeof({name}), ({name})-1 < ({name})1);' for name in sorted(types)),
        *(f'printf("{name} %zu\\n", offsetof(cl_icd_dispatch, {name}));' for name in functions),
    ]
    program = "#include <stdio.h>\n#include <stddef.h>\nint main(void) {" + "\n".join(facts) + "}\n"
    told = []
    for name, header in (("ours", "opencl_abi.h"), ("theirs", "CL/cl_layer.h")):
        source, made = tmp_path / f"{name}.c", tmp_path / name
        source.write_text(f"#define CL_TARGET_OPENCL_VERSION 300\n#include <{header}>\n{program}")
        command = [*compiler.command, f"-I{build.FOLDER}", str(source), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True)
        told.append(run_text([made], check=True).stdout)
    assert told[0] == told[1]


def test_without_a_compiler_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No ``CC``, no ``cc`` and no ziglang."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert build.find_compiler() is None


@pytest.mark.parametrize(
    ("has_cc", "machine", "libc", "asked"),
    [
        (False, "x86_64", "glibc", True),
        (False, "aarch64", "glibc", True),
        (True, "x86_64", "glibc", False),
        (False, "x86_64", "musl", False),
        (False, "sparc64", "glibc", False),
    ],
)
def test_a_build_asks_for_ziglang_where_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_cc: bool, machine: str, libc: str, asked: bool
) -> None:
    """Without a compiler, on machines for which PyPI has it and whose C library it supports."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if has_cc:
        (tmp_path / "cc").touch(mode=0o755)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "libc_ver", lambda: (libc, ""))
    assert [name.partition(">")[0] for name in build.requirements()] == (["ziglang"] if asked else [])


def test_a_library_that_is_not_built_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install and what to run."""
    monkeypatch.setattr(locate, "BUILT", tmp_path)
    with pytest.raises(NoDeviceError, match="a C compiler, then run python -m"):
        locate.locate("opencl_layer")
    (tmp_path / _LAYER).touch()
    assert locate.locate("opencl_layer") == tmp_path / _LAYER


@pytest.mark.slow
@pytest.mark.parametrize("with_compiler", [True, False])
def test_a_wheel_has_the_libraries_where_there_is_a_compiler(
    libraries: Path, tmp_path: Path, with_compiler: bool
) -> None:
    """Then it is for this platform; without a compiler it is for all, and still can be made."""
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    project = tmp_path / "project"
    shutil.copytree(_PROJECT, project, ignore=shutil.ignore_patterns(".*", "lib", "__pycache__", "tests"))
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    environ = {**os.environ, "PYTHONPATH": ""}
    done = run_text(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist"],
        cwd=project,
        env=environ if with_compiler else {**environ, "PATH": str(nowhere)},
    )
    assert done.returncode == 0, done.stderr
    [wheel] = (tmp_path / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        inside = {Path(name).name for name in archive.namelist() if name.startswith("gpucache/native/lib/")}
        scripts = {name for name in archive.namelist() if ".data/scripts/" in name}
        [entry] = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        assert ("gpucache-python = " in archive.read(entry).decode()) is with_compiler
    assert inside == ({build.file_name(name) for name in build.LIBRARIES} if with_compiler else set())
    assert len(scripts) == with_compiler
    assert wheel.stem.endswith("-py3-none-any") is not with_compiler


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cc", "lacking"),
    [("musl-gcc", {"nvrtc_audit"}), ("aarch64-linux-gnu-gcc", set())],
    ids=["musl", "aarch64"],
)
def test_other_machines_and_c_libraries_compile(cc: str, lacking: set[str], tmp_path: Path) -> None:
    """But for the library for the linker of glibc, which alone knows such libraries."""
    if shutil.which(cc) is None:
        pytest.skip(f"{cc} is not installed")
    # Debian's compiler for musl knows no headers of the kernel.
    headers = ("-idirafter", "/usr/include", "-idirafter", f"/usr/include/{platform.machine()}-linux-gnu")
    compiler = build.Compiler((cc, *(headers if lacking else ())), "")
    assert build.build(compiler, tmp_path).keys() == lacking
