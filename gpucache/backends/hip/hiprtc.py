"""hipRTC by ctypes: compiles programs, and identifies the running hipRTC by its files.

It is in libamdhip64, and since ROCm 5.3 in libhiprtc too. It loads libhiprtc-builtins, which has its header,
and comgr, which has the device libraries inside and uses LLVM; all of them count. It ends the process at an
architecture that it does not know, so only those that comgr lists are compiled for. Must not know of keys or
stores.
"""

import ctypes
import os
import re
import sys
import sysconfig
import tempfile
import time
from functools import cache
from pathlib import Path

from gpucache.backends.hip.options import FILE_NAME
from gpucache.backends.installation import SYSTEM, Installation, library_at, read_library, search_places
from gpucache.backends.interface import Compilation
from gpucache.backends.options import refused
from gpucache.errors import CompileError, GpucacheError, NoDeviceError, TargetError
from gpucache.model import Artifact, ArtifactKind, AsAsked, BuildRequest, Device, Target, Toolchain
from gpucache.units import format_list, printable

_NAMES = ("libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libamdhip64.so.6", "libamdhip64.so.5")
_LOADED = ("libhiprtc-builtins", "libamd_comgr")
"""The beginnings of the names of the libraries that hipRTC loads when it compiles."""
_LAST = [f"{folder}/{sysconfig.get_config_var('MULTIARCH')}" for folder in ("/lib", "/usr/lib")]
_LAST += ["/lib64", "/usr/lib64", "/lib", "/usr/lib"]
"""The directories in which the loader looks last."""
_MADE_UP = re.compile(r"\S*/comgr-\w+/input/(CompileSource|gpucache_program\.hip)")
"""The made-up path by which hipRTC's log names the source."""
_ISA = "amdgcn-amd-amdhsa--"
_MISSING = (
    "hipRTC is not installed or does not load; Debian's libamdhip64-5 with libhiprtc-builtins5 brings it"
)


def search(hiprtc: Path, _version: tuple[int, int], library_path: str) -> tuple[list[Path], list[Path]]:
    """The paths where the loader looks in vain for a hipRTC's libraries, and its files, its own first.

    ``library_path`` is LD_LIBRARY_PATH. Raises NoDeviceError if one is not found.
    """
    passed, found = list[Path](), [hiprtc]
    for stem in _LOADED:
        places = [*search_places(hiprtc, stem, library_path), hiprtc.resolve()]  # which may be a link to it
        files = (sorted(place.parent.glob(f"{stem}.so.[0-9]*")) for place in places)
        first = next(filter(None, ([one for one in some if one.name.count(".") == 2] for some in files)), ())
        if not first:
            raise NoDeviceError(f"{stem} of {hiprtc} is not found, so its results are not cached")
        found += first
    for library in found[1:]:
        for name in (one for one in read_library(library).needed if not one.startswith(SYSTEM)):
            there = [*search_places(library, name, library_path), *(Path(one, name) for one in _LAST)]
            file = next(filter(Path.is_file, there), None)
            if file is not None and file not in found:
                passed += there[: there.index(file)]
                found.append(file)
    return passed, found


def toolchain_at(hiprtc: Path, version: tuple[int, int], target: Target, library_path: str) -> Toolchain:
    """The hipRTC of another process, for an architecture; raises NoDeviceError if it is not complete."""
    fields = Installation(tuple(search(hiprtc, version, library_path)[1])).fields()
    number = ("hipRTC version", f"{version[0]}.{version[1]}")
    return Toolchain("hiprtc", (("architecture", target.name), number, *fields), ("architecture",))


def toolchain(target: Target) -> Toolchain:
    """HipRTC as this process runs it, for an architecture; raises TargetError or NoDeviceError."""
    require_target(target)
    return toolchain_at(installation().libraries[0], version(), target, os.environ.get("LD_LIBRARY_PATH", ""))


def require_target(target: Target) -> None:
    """Raise TargetError unless hipRTC builds for the target: it would end the process."""
    if target.name.partition(":")[0] not in architectures():
        raise TargetError(
            f"hipRTC does not build for {str(target)!r}; it builds for hip: and one of "
            f"{format_list(list(architectures()), 64)}"
        )


@cache
def installation() -> Installation:
    """The files of hipRTC as this process runs it; raises NoDeviceError if there is none."""
    own = library_at(ctypes.cast(_api().hiprtcCompileProgram, ctypes.c_void_p).value or 0)
    if own is None:
        raise NoDeviceError(_MISSING)
    return Installation(tuple(search(own.resolve(), version(), os.environ.get("LD_LIBRARY_PATH", ""))[1]))


def own_files() -> tuple[str, ...]:
    """The files of hipRTC, and the directories of its temporary files and of compilers that it looks at."""
    places = (tempfile.gettempdir(), "/usr/lib/gcc", "/lib/gcc", "/usr/local/cuda", "/opt")
    real = (place for one in places for place in (one, os.path.realpath(one)))
    return (*map(str, installation().files), *(f"{place}/" for place in dict.fromkeys(real)))


def version() -> tuple[int, int]:
    """The version of the interface, which is 9.0 in all releases so far; raises NoDeviceError."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call("hiprtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


@cache
def architectures() -> tuple[str, ...]:
    """The architectures that comgr lists, such as ``gfx90a``; raises NoDeviceError."""
    path = next(path for path in installation().libraries if path.name.startswith("libamd_comgr"))
    try:
        comgr = ctypes.CDLL(str(path))
    except OSError as error:
        raise NoDeviceError(f"{_MISSING} ({error})") from None
    count, name = ctypes.c_size_t(), ctypes.c_char_p()
    comgr.amd_comgr_get_isa_count(ctypes.byref(count))
    found = list[str]()
    for number in range(count.value):
        comgr.amd_comgr_get_isa_name(ctypes.c_size_t(number), ctypes.byref(name))
        found.append((name.value or b"").decode().removeprefix(_ISA).partition(":")[0])
    return tuple(dict.fromkeys(found))


def probe() -> list[Device]:
    """A row for each architecture, or one that says why there is none."""
    try:
        files, found = tuple(map(str, installation().files)), list[Device]()
        for name in architectures():
            target, detail = Target("hip", name), "hipRTC needs no device to build for it"
            found.append(Device(target, "hip", name, "", True, detail, toolchain(target), False, files))
    except GpucacheError as error:
        return [Device(None, "hip", "hipRTC", "", available=False, detail=str(error), present=False)]
    return found


def compile_source(request: BuildRequest, compilation: Compilation) -> Artifact:
    """Compile to the request's artifact kind; raises CompileError with the log under the program's name."""
    return compile_command(request, compilation.command)


def as_given(request: BuildRequest) -> tuple[str, ...]:
    """The command for a request that cannot be planned; its result is never cached."""
    folders = (f"-I{directory}" for directory in request.include_dirs)
    return (f"--gpu-architecture={request.target.name}", *folders, *request.options)


def compile_command(request: BuildRequest, command: tuple[str, ...]) -> Artifact:
    """Compile with exactly these options; raises CompileError."""
    require_target(request.target)
    started = time.perf_counter_ns()
    asked = request.asked or AsAsked(FILE_NAME)
    source, _, _ = request.program.source.partition(b"\0")
    names, texts = ([os.fsencode(name) for name, _ in asked.headers], [text for _, text in asked.headers])
    handle = ctypes.c_void_p()
    _call(
        "hiprtcCreateProgram",
        ctypes.byref(handle),
        source,
        os.fsencode(asked.file_name),
        len(names),
        _strings(texts),
        _strings(names),
    )
    try:
        for expression in request.name_expressions:
            _call("hiprtcAddNameExpression", handle, expression.encode())
        options = [option.encode(errors="surrogateescape") for option in command]
        status = _api().hiprtcCompileProgram(handle, len(options), _strings(options))
        log = _result(handle, "ProgramLog").decode(errors="surrogateescape")
        if request.asked is None:
            log = _MADE_UP.sub(printable(request.program.name, None), log).strip()
        if status:
            raise CompileError(refused(request.program.name, log), log)
        lowered = {}
        for expression in request.name_expressions:
            name = ctypes.c_char_p()
            _call("hiprtcGetLoweredName", handle, expression.encode(), ctypes.byref(name))
            lowered[expression] = (name.value or b"").decode()
        payload = _result(handle, "Bitcode" if request.artifact_kind is ArtifactKind.BITCODE else "Code")
        spent = time.perf_counter_ns() - started
        return Artifact(request.artifact_kind, payload, log, spent, lowered)
    finally:
        _api().hiprtcDestroyProgram(ctypes.byref(handle))


def _result(handle: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _call(f"hiprtcGet{what}Size", handle, ctypes.byref(size))
    data = ctypes.create_string_buffer(size.value)
    if size.value:
        _call(f"hiprtcGet{what}", handle, data)
    return data.raw


def _strings(texts: list[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*texts)


def _call(name: str, *arguments: object) -> None:
    """Call hipRTC; raises CompileError on an error code."""
    function = getattr(_api(), name, None)
    if function is None:
        raise CompileError(f"this hipRTC has no {name}")
    if status := function(*arguments):
        raise CompileError(f"hipRTC returned {status} from {name}")


@cache
def _api() -> ctypes.CDLL:
    for name in _NAMES if sys.platform == "linux" else ():
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NoDeviceError(_MISSING)
