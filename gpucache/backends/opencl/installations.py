"""The files of OpenCL implementations, and the libraries that the ICD loader does not load.

The files that PoCL, Intel's CPU runtime and Mesa's rusticl open were traced and are listed here; a test
compares the first two. The files that the others load at their first compile are listed from their packages,
and were not traced. Of any further implementation only the library and those loaded with it are known. The
linker that PoCL runs, and its files (libgcc.a and the like), are left out, because the system owns them.

The loader is silent about a library that does not load, and about a variable whose path does not exist.
Sources: libOpenCL(7) of ocl-icd and the README of Khronos' loader. ``problems`` loads the same libraries, so
only the probe's child may call it. This module loads no PyOpenCL.

Owns the instruction sets of this CPU, which distinguish devices that report the same name.
"""

import ctypes
import platform as machine
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gpucache.backends.installation import Installation, library_at, matching, with_needed
from gpucache.backends.opencl.options import INTEL, POCL
from gpucache.units import format_list

FEATURES = (
    *(
        "sse*",
        "ssse*",
        "avx*",
        "amx*",
        "fma*",
        "f16c",
        "bmi1",
        "bmi2",
        "abm",
        "lzcnt",
        "popcnt",
        "adx",
        "aes",
    ),
    *("vaes", "pclmulqdq", "vpclmulqdq", "gfni", "sha*", "movbe", "movdir*", "cx16", "xop", "tbm", "mmx*"),
    *("3dnow*", "serialize", "rtm", "waitpkg", "hreset", "enqcmd", "cldemote", "uintr"),
)
"""Patterns of the x86 features that a code generator can use; mitigations and power features do not
affect a binary. For other CPUs all features count. A star is allowed only at the end."""
_BEGUN = tuple(pattern[:-1] for pattern in FEATURES if pattern.endswith("*"))
_HEAD_BYTES = 64 << 10
"""Enough bytes to describe one CPU; reading all of a machine with many takes long."""


@cache
def cpu_features() -> str:
    """The instruction sets of this CPU, sorted; ``unknown: <machine>`` if they cannot be read."""
    try:
        with open("/proc/cpuinfo", "rb") as file:  # noqa: PTH123
            lines = file.read(_HEAD_BYTES).decode("latin-1").splitlines()
    except OSError:
        return f"unknown: {machine.machine()}"
    for line in lines:
        label, _, value = line.partition(":")
        if label.strip() == "flags":
            return " ".join(
                sorted(flag for flag in value.split() if flag in FEATURES or flag.startswith(_BEGUN))
            )
        if label.strip() == "Features":
            return " ".join(sorted(value.split()))
    return f"unknown: {machine.machine()}"


class _Kind(NamedTuple):
    """One implementation; its directories and patterns are relative to the directory of its library."""

    name: str
    libraries: tuple[str, ...] = ()
    builtins: tuple[str, ...] | None = None
    folders: tuple[str, ...] = ("",)
    """The directories that may have its built-ins: the first that has any is used."""
    clang: tuple[str, ...] = ()
    """Built-ins that it reads next to the clang library that it was loaded with."""
    configuration: str | None = None


_SHARES = ("../share", "../../share", "/usr/local/share", "/usr/share")
_KINDS = (
    _Kind(
        "libpocl",
        libraries=("pocl/libpocl-devices-*.so",),
        builtins=("*.bc", "include/**/*"),
        folders=tuple(f"{share}/pocl" for share in ("../../pocl_binary_distribution/.libs/share", *_SHARES)),
    ),
    _Kind(
        "libintelocl",
        libraries=("libocl_svml_*.so",),
        builtins=("clbltfn*.rtl", "cllibrary*.rtl", "cllibrary*.o"),
        configuration="cl.cfg",
    ),
    _Kind(
        "libRusticlOpenCL",
        builtins=("*.spv",),
        folders=tuple(f"{folder}/clc" for folder in ("/usr/lib", *_SHARES)),
        clang=("clang/*/include/opencl-c*.h",),
    ),
    _Kind("libigdrcl", libraries=("libig[cd]*.so.*", "../libig[cd]*.so.*", "../libopencl-clang*.so.*")),
    _Kind("libamdocl", libraries=("libamd_comgr.so.*",)),
    _Kind("libnvidia-opencl", libraries=("libnvidia-nvvm*.so.*", "libnvidia-compiler*.so.*")),
)

# PoCL finds its linker through clang's driver, which looks for the version of a CUDA toolkit as it starts.
_CUDA_VERSIONS = ("include/cuda.h", "version.txt", "version.json")
_USUAL = (
    *("/usr/lib/", "/usr/lib32/", "/usr/lib64/", "/usr/share/", "/usr/local/lib/", "/usr/local/share/"),
    *("/opt/", "/nix/store/", "/gnu/store/"),
)
FOLDER = Path("/etc/OpenCL/vendors")
MOST_BYTES = 4096
_USUAL_CACHES = (".nv", ".cache/neo_compiler_cache", ".cache/mesa_shader_cache")


def library_of(handle: int) -> Path | None:
    """The library of a platform or device, given as an address.

    Its first field points to the implementation's function table (cl_khr_icd), which is in its library. A
    table elsewhere is not followed.
    """
    table = ctypes.c_void_p.from_address(handle).value if handle else None
    return library_at(table) if table else None


def installation_of(platform: int) -> Installation:
    library = library_of(platform)
    if library is None:
        return Installation(())
    kind = next((kind for kind in _KINDS if library.name.startswith(kind.name)), _Kind(""))
    folder, libraries = library.parent, with_needed(library)
    builtins = (matching(folder / place, kind.builtins or ()) for place in kind.folders)
    clangs = (path.resolve().parent for path in libraries if path.name.startswith("libclang-cpp."))
    headers = (path for clang in clangs for path in matching(clang, kind.clang))
    return Installation(
        (*libraries, *matching(folder, kind.libraries)),
        None if kind.builtins is None else (*next(filter(None, builtins), ()), *headers),
        None if kind.configuration is None else matching(folder, (kind.configuration,)),
    )


def own_files(implementation: str, installations: Iterable[Installation]) -> tuple[str, ...]:
    """The files that a compiler may read and that are not inputs of a program; directories end in a slash.

    ``installations`` are all platforms', because the loader starts all of them, whichever compiles. An
    implementation that was never traced may read everything in the usual directories of such files.
    """
    here = tuple(installations)
    ptxas = shutil.which("ptxas")
    toolkits = [Path("/usr/local/cuda"), *Path("/usr/local").glob("cuda-*"), Path("/usr/lib/cuda")]
    toolkits += [Path(ptxas).parents[1]] if ptxas else []
    files = (
        *(str(path) for each in here for path in each.files),
        *(str(toolkit / name) for toolkit in toolkits for name in _CUDA_VERSIONS),
    )
    if implementation in (POCL, INTEL):
        return files
    beside = (f"{path.parent}/" for each in here for path in each.libraries)
    return (*files, *_USUAL, *beside, *(f"{Path.home() / name}/" for name in _USUAL_CACHES))


def problems(environ: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each problem that the loader silently ignores; none on systems other than Linux."""
    if not sys.platform.startswith("linux"):
        return
    variable, place = _vendors(environ)
    if place.is_dir():
        for file in sorted(place.glob("*.icd")):
            yield from _unloadable(file)
    elif place.suffix == ".icd":
        file = place if "/" in str(place) else FOLDER / place
        yield from _unloadable(file) if file.is_file() else [_nowhere(variable, place)]
    elif variable and "/" in str(place) and not place.exists():
        yield _nowhere(variable, place)
    elif variable:
        yield from _refused(str(place), f"{variable} names {place}")
    for library in filter(None, environ.get("OCL_ICD_FILENAMES", "").split(":")):
        yield from _refused(library, f"OCL_ICD_FILENAMES names {library}")


def unhide(environ: Mapping[str, str], pattern: str = "*.icd") -> str:
    """The remedy if a variable hides drivers of the system from the loader; empty if it hides none."""
    variable, place = _vendors(environ)
    files = sorted(FOLDER.glob(pattern)) if place != FOLDER else []
    hidden = [str(file) for file in files if file.name != place.name]
    return f"unset {variable}, which hides {format_list(hidden)}" if hidden else ""


def _vendors(environ: Mapping[str, str]) -> tuple[str, Path]:
    """The set variable that names the loader's ICD files, if any, and the place of the files."""
    variable = next((name for name in ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH") if environ.get(name)), "")
    return variable, Path(environ[variable]) if variable else FOLDER


def _nowhere(variable: str, place: Path) -> str:
    return f"{variable} names {place}, which does not exist; correct or unset it"


def _unloadable(file: Path) -> Iterator[str]:
    try:
        with file.open(encoding="utf-8", errors="surrogateescape") as lines:
            library = lines.read(MOST_BYTES).strip()
    except OSError as error:
        yield f"{file} cannot be read ({error.strerror}), so its driver is not loaded; fix its permissions"
        return
    yield from _refused(library, f"{file} names {library}")


def _refused(library: str, told: str) -> Iterator[str]:
    """Why the system's linker does not load a library, in its own words."""
    try:
        ctypes.CDLL(library)
    except (OSError, ValueError) as error:
        yield f"{told}, which does not load: {error}; install its dependencies, or remove the reference to it"
