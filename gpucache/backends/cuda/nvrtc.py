"""NVRTC through ``cuda.bindings.nvrtc``: compiles programs, and identifies the running NVRTC by its files.

It needs no driver. Programs are compiled under one fixed file name, because NVRTC puts that name into
symbols; messages get the program's own name back. This module must not know of keys or stores.
"""

import ctypes
import os
import re
import sys
import time
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from gpucache.backends.cuda.options import FILE_NAME, refuse_side_effects, seed
from gpucache.backends.installation import (
    Installation,
    loaded,
    loaded_as,
    mark,
    marks_here,
    remembered,
    search_places,
)
from gpucache.backends.interface import Compilation
from gpucache.backends.options import refused
from gpucache.errors import CompileError, NoDeviceError, TargetError
from gpucache.keys import NOT_FOUND
from gpucache.model import Artifact, ArtifactKind, AsAsked, BuildRequest, Target, Toolchain
from gpucache.sources import Memos
from gpucache.units import printable

_TARGET = r"(sm|compute)_(\d+)([af]?)"
_IDENTITY = ("architecture",)
_RESULTS: Mapping[StrEnum, str] = {
    ArtifactKind.CUBIN: "CUBIN",
    ArtifactKind.PTX: "PTX",
    ArtifactKind.LTOIR: "LTOIR",
    ArtifactKind.OPTIXIR: "OptiXIR",
}
_CLONE_FS = 0x200
_IN_A_DIRECTORY = (
    "its debug information contains the current directory, as a thread cannot have its own on this system"
)
_MISSING = "NVRTC is not installed or does not load ({}); 'pip install nvidia-cuda-nvrtc' brings it"


def architectures() -> tuple[int, ...]:
    """The architecture numbers NVRTC builds for, such as 80 and 90; raises NoDeviceError."""
    return tuple(_call(_nvrtc().nvrtcGetSupportedArchs))


def version() -> tuple[int, int]:
    """NVRTC's version; raises NoDeviceError if there is none."""
    try:
        major, minor = _call(_nvrtc().nvrtcVersion)
    except RuntimeError as error:  # raised by the bindings when the library does not load
        raise NoDeviceError(_MISSING.format(str(error).partition("\n")[0])) from None
    return major, minor


def toolchain(target: Target) -> Toolchain:
    """NVRTC and its builtins library as this process runs them, for an architecture; raises TargetError."""
    require_target(target)
    return compiler_of(target)


def compiler_of(target: Target, memos: Memos | None = None) -> Toolchain:
    """Like ``toolchain``, but for any target: NVRTC is slow to list its targets, and a hit needs no list.

    ``memos`` keep facts about its files.
    """
    found = _toolchains.get(target)
    if found is None:
        with remembered(memos, "NVRTC"):
            fields = (("architecture", target.name), *_compiler_fields())
            found = _toolchains[target] = Toolchain("nvrtc", fields, _IDENTITY)
    return found


_toolchains: dict[Target, Toolchain] = {}


def toolchain_at(nvrtc: Path, version: tuple[int, int], target: Target, library_path: str) -> Toolchain:
    """The NVRTC of another process, for an architecture; ``library_path`` is LD_LIBRARY_PATH of that process.

    Raises NoDeviceError if its builtins library is not found.
    """
    _, (_, builtins) = search(nvrtc, version, library_path)
    fields = _fields(version, mark(nvrtc), mark(builtins))
    return Toolchain("nvrtc", (("architecture", target.name), *fields), _IDENTITY)


@cache
def _compiler_fields() -> tuple[tuple[str, str], ...]:
    number = version()
    nvrtc, builtins = nvrtc_libraries(number)
    # A link in the path of a loaded library may lead elsewhere by now.
    libraries = [_loaded(number) or nvrtc, loaded_as(_builtins_name(number)) or builtins]
    found = [path for path in libraries if path is not None]
    marks = dict(zip(found, marks_here(found), strict=True))
    return _fields(number, *(NOT_FOUND if path is None else marks[path] for path in libraries))


def _fields(version: tuple[int, int], nvrtc: str, builtins: str) -> tuple[tuple[str, str], ...]:
    return (
        ("NVRTC version", f"{version[0]}.{version[1]}"),
        ("NVRTC build id", nvrtc),
        ("NVRTC builtins build id", builtins),
    )


def installation() -> Installation:
    """The files of NVRTC as this process runs it; raises NoDeviceError if there is none."""
    return Installation(tuple(path for path in nvrtc_libraries(version()) if path is not None))


def nvrtc_libraries(version: tuple[int, int]) -> tuple[Path | None, Path | None]:
    """The loaded NVRTC and the builtins library that it will use; it reads no other files of its own."""
    known = _loaded(version)  # as cuda.bindings finds it; others read long lists
    # Not what a link leads to: the loader looks for the builtins beside the link.
    nvrtc = known.absolute() if known is not None else loaded("libnvrtc.so")
    if nvrtc is None:
        return None, None
    return nvrtc, find_builtins(nvrtc, _builtins_name(version))


def _loaded(version: tuple[int, int]) -> Path | None:
    """NVRTC's library. Below ``gpucache run`` our library has its name, and loads it by another one."""
    if sys.platform == "win32":  # nvrtc64_130_0.dll of 13.5; the bindings loaded it in this way, too
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("nvrtc").abs_path
        return Path(path) if path else None
    return loaded_as(f"gpucache-nvrtc.so.{version[0]}") or loaded_as(f"libnvrtc.so.{version[0]}")


def _builtins_name(version: tuple[int, int]) -> str:
    if sys.platform == "win32":
        return f"nvrtc-builtins64_{version[0]}{version[1]}.dll"
    return f"libnvrtc-builtins.so.{version[0]}.{version[1]}"


def find_builtins(nvrtc: Path, name: str) -> Path | None:
    """The builtins library that NVRTC has loaded or will load. Source: ld.so(8).

    This needs no compile: it searches as the loader does when NVRTC loads them.
    """
    found = loaded_as(name)
    if found is not None:
        return found.resolve()
    return next(filter(Path.is_file, search_places(nvrtc, name, os.environ.get("LD_LIBRARY_PATH", ""))), None)


def search(nvrtc: Path, version: tuple[int, int], library_path: str) -> tuple[list[Path], list[Path]]:
    """The paths where the loader looks in vain for an NVRTC's builtins library, and both libraries' files.

    ``library_path`` is LD_LIBRARY_PATH. Raises NoDeviceError if they are not found.
    """
    passed: list[Path] = []
    for path in search_places(nvrtc, _builtins_name(version), library_path):
        if path.is_file():
            return passed, [nvrtc, path]
        passed.append(path)
    raise NoDeviceError(f"the builtins library of {nvrtc} is not found, so its results are not cached")


def require_target(target: Target) -> None:
    match = re.fullmatch(_TARGET, target.name)
    major, minor = version()
    numbers = architectures()
    if match is None or int(match[2]) not in numbers:
        raise TargetError(
            f"NVRTC {major}.{minor} does not build for {str(target)!r}; it builds for "
            f"cuda:sm_N and cuda:compute_N with N one of {', '.join(map(str, numbers))}"
        )


def compile_as_asked(request: BuildRequest) -> Artifact:
    """Compile with options that a plan refuses, for a result that is never cached; raises CompileError."""
    linked = ("-dlto",) if request.artifact_kind is ArtifactKind.LTOIR else ()
    folders = (f"-I{directory}" for directory in request.include_dirs)
    return _compile(request, (f"-arch={request.target.name}", *linked, *request.options, *folders))


def compile_exactly(request: BuildRequest, options: tuple[str, ...]) -> Artifact:
    """Compile with only these options, as another system would; raises CompileError, OptionError."""
    refuse_side_effects(options)
    return _compile(request, options)


def compile_source(request: BuildRequest, compilation: Compilation) -> Artifact:
    """Compile to the request's artifact kind; raises CompileError with the log under the program's name."""
    command = (*seed(request, compilation.inputs.options), *compilation.command)
    if not (compilation.holds_paths or compilation.lists_files or request.asked):
        return _compile(request, command)
    from concurrent.futures import ThreadPoolExecutor

    folder = request.cwd if request.asked else compilation.inputs.folder or "/"
    try:
        with ThreadPoolExecutor(1) as thread:
            artifact = thread.submit(_compile_in, folder, request, command).result()
    except RuntimeError:  # a program that is ending cannot start threads
        artifact = None
    if artifact is not None:
        return artifact
    artifact = _compile(request, command)
    # Line information contains the current directory for a file to which a ``#line`` gives a relative name.
    told = request.artifact_kind is ArtifactKind.LTOIR or _here() in artifact.payload
    lost = compilation.holds_paths or request.asked or told
    return artifact._replace(refusal=_IN_A_DIRECTORY) if lost else artifact


def _here() -> bytes:
    """The current directory; empty if it is gone; for the root, bytes that no artifact contains."""
    try:
        return os.getcwdb().rstrip(b"/") or b"\0/\0"  # noqa: PTH109 - as NVRTC spells it
    except OSError:
        return b""


def _compile_in(folder: str, request: BuildRequest, command: tuple[str, ...]) -> Artifact | None:
    """Compile in a directory of this thread only; None if a thread cannot have its own.

    NVRTC writes the current directory into debug information, and no option prevents it. Only Linux can give
    a thread its own directory, and a sandbox may forbid it.
    """
    if not sys.platform.startswith("linux") or ctypes.CDLL(None).unshare(_CLONE_FS) != 0:
        return None
    try:
        os.chdir(folder)
    except OSError:
        return None
    return _compile(request, command)


def _compile(request: BuildRequest, command: tuple[str, ...]) -> Artifact:
    if request.artifact_kind is ArtifactKind.CUBIN and request.target.name.startswith("compute_"):
        raise CompileError(f"{request.target} yields PTX, not a cubin; use cuda:sm_N")
    api = _nvrtc()
    from gpucache.checks.calls import instrumented

    started = time.perf_counter_ns()
    source, _, _ = instrumented(request).source.partition(b"\0")  # NVRTC stops reading there
    asked = request.asked or AsAsked(FILE_NAME)
    names = [os.fsencode(name) for name, _ in asked.headers]
    texts = [text for _, text in asked.headers]
    name = os.fsencode(asked.file_name)
    handle = _call(api.nvrtcCreateProgram, source, name, len(names), texts, names)
    try:
        for expression in request.name_expressions:
            _call(api.nvrtcAddNameExpression, handle, expression.encode())
        options = [option.encode(errors="surrogateescape") for option in command]
        (status,) = api.nvrtcCompileProgram(handle, len(options), options)
        log = _log(handle, request)
        if status != api.nvrtcResult.NVRTC_SUCCESS:
            why = "" if log else f" ({_text(status)})"
            raise CompileError(f"{refused(request.program.name, log)}{why}", log)
        return Artifact(
            kind=request.artifact_kind,
            payload=_output(handle, _RESULTS[request.artifact_kind]),
            build_log=log,
            compile_ns=time.perf_counter_ns() - started,
            lowered_names={
                name: _call(api.nvrtcGetLoweredName, handle, name.encode()).decode()
                for name in request.name_expressions
            },
        )
    finally:
        api.nvrtcDestroyProgram(handle)


def _log(handle: Any, request: BuildRequest) -> str:
    api = _nvrtc()
    size = _call(api.nvrtcGetProgramLogSize, handle)
    if size <= 1:
        return ""
    buffer = bytes(size)  # NVRTC fills it in place
    _call(api.nvrtcGetProgramLog, handle, buffer)
    if request.asked:
        return buffer[:-1].decode(errors="surrogateescape")
    name = printable(request.program.name, None)
    return buffer.decode("utf-8", "replace").strip("\0\n ").replace(FILE_NAME, name)


def _output(handle: Any, kind: str) -> bytes:
    api = _nvrtc()
    payload = bytes(_call(getattr(api, f"nvrtcGet{kind}Size"), handle))  # filled in place
    _call(getattr(api, f"nvrtcGet{kind}"), handle, payload)
    return payload


def _call(function: Any, *arguments: Any) -> Any:
    """Call NVRTC and return its result, or a tuple of several; raises CompileError on an error code."""
    status, *results = function(*arguments)
    if status != _nvrtc().nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC returned {_text(status)} from {function.__name__}")
    return results[0] if len(results) == 1 else tuple(results)


def _text(status: Any) -> str:
    return str(status.name).removeprefix("NVRTC_ERROR_").replace("_", " ").lower()


@cache
def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise NoDeviceError(_MISSING.format(error)) from None
    return nvrtc
