"""The libraries and programs in C that these tests compile."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpucache.backends.cuda import nvrtc
from gpucache.errors import NoDeviceError
from gpucache.native import build

_HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def compiler() -> build.Compiler:
    found = build.find_compiler()
    if found is None:
        pytest.skip("no C compiler here")
    return found


@pytest.fixture(scope="session")
def library() -> Path:
    try:
        found, builtins = nvrtc.nvrtc_libraries(nvrtc.version())
    except NoDeviceError as error:
        pytest.skip(str(error))
    if found is None or builtins is None or sys.platform != "linux":
        pytest.skip("an NVRTC is stood before on Linux")
    return found


@pytest.fixture(scope="session")
def libraries(compiler: build.Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the libraries, compiled from the current sources."""
    folder = tmp_path_factory.mktemp("native")
    problems = build.build(compiler, folder, ("-Wall", "-Wextra", "-Werror"))
    assert problems == {}
    return folder


@pytest.fixture(scope="session")
def answer(libraries: Path) -> Path:
    """The library through which our own library asks the index."""
    return libraries / build.file_name("library")


@pytest.fixture(scope="session")
def layer(libraries: Path) -> Path:
    return libraries / build.file_name("opencl_layer")


@pytest.fixture(scope="session")
def opencl_headers(compiler: build.Compiler) -> None:
    """Khronos' headers, which the layer does not need."""
    command = [*compiler.command, "-xc", "-E", "-include", "CL/cl_layer.h", os.devnull]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("there is no <CL/cl_layer.h> (opencl-c-headers of Debian, opencl-headers of Fedora)")


@pytest.fixture(scope="session")
def program(
    layer: Path, compiler: build.Compiler, opencl_headers: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A program that uses OpenCL through Khronos' own loader, which Intel's runtime brings."""
    made = tmp_path_factory.mktemp("program") / "program"
    loader = Path(sys.prefix, "lib", "libOpenCL.so.1")
    if not loader.is_file():
        pytest.skip("intel-opencl-rt is not installed: no libOpenCL.so.1 below sys.prefix")
    _compile(compiler, made, _HERE / "program.c", loader, f"-L{loader.parent}", "-Wl,--allow-shlib-undefined")
    return made


@pytest.fixture(scope="session")
def wire_program(compiler: build.Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that uses the libraries' client, and stops at undefined behaviour in C."""
    return _sanitized(compiler, tmp_path_factory, "wire_program")


@pytest.fixture(scope="session")
def index_program(compiler: build.Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that reads an index like the libraries, and stops at undefined behaviour in C."""
    return _sanitized(compiler, tmp_path_factory, "index_program")


@pytest.fixture(scope="session")
def scan_program(compiler: build.Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that reads entries like the library, and stops at undefined behaviour in C."""
    return _sanitized(compiler, tmp_path_factory, "scan_program")


@pytest.fixture(scope="session")
def stopwatch_program(compiler: build.Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stopwatch") / "program"
    _compile(compiler, made, _HERE / "stopwatch_program.c", "-Wall", "-Wextra", "-Werror")
    return made


def _sanitized(compiler: build.Compiler, factory: pytest.TempPathFactory, name: str) -> Path:
    made = factory.mktemp(name) / name
    sources = (_HERE / f"{name}.c", *(build.FOLDER / source for source in build.ASKING))
    sanitized = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    try:
        _compile(compiler, made, *sources, *sanitized)
    except subprocess.CalledProcessError:
        _compile(compiler, made, *sources)  # a compiler without sanitizers
    return made


def _compile(compiler: build.Compiler, made: Path, *arguments: Path | str) -> None:
    command = [*compiler.command, "-std=c11", "-O1", "-pthread", f"-I{build.FOLDER}", "-o", made, *arguments]
    subprocess.run(command, check=True, capture_output=True)
