"""Which files an OpenCL implementation is made of, told from the library that a platform belongs to.

PoCL, Intel's CPU runtime and Mesa's rusticl were traced: what they open is here, which a test holds for
the first two. What the others load only when they first compile is listed as their packages have it, and
was not traced; of those and of any further one there are the library and what was loaded with it. Left
out are the linker that PoCL runs and what that reads (libgcc.a and the like): they are the system's.
Loads no PyOpenCL.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpucache.backends.installation import Installation, matching, with_needed
from gpucache.backends.libraries import library_at


@dataclass(frozen=True, slots=True)
class _Kind:
    """One implementation; folders and patterns are meant from the folder of its library."""

    name: str
    """How the names of its library begin."""
    libraries: tuple[str, ...] = ()
    """Libraries that it loads when it needs them."""
    builtins: tuple[str, ...] | None = None
    folders: tuple[str, ...] = ("",)
    """Where its built-ins may lie: the first of these that holds any."""
    clang: tuple[str, ...] = ()
    """Those that it reads beside the library of clang that it was loaded with."""
    configuration: str | None = None
    """A file beside its library that it configures itself from."""


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


def library_of(handle: int) -> Path | None:
    """The library that a platform or a device belongs to, given as an address.

    Its first field is the implementation's table of functions (cl_khr_icd), which lies in its library. A
    table that lies elsewhere tells nothing, and is not followed.
    """
    table = ctypes.c_void_p.from_address(handle).value if handle else None
    return library_at(table) if table else None


def installation_of(platform: int) -> Installation:
    """The files behind a ``cl_platform_id``, given as an address."""
    library = library_of(platform)
    if library is None:
        return Installation(())
    kind = next((kind for kind in _KINDS if library.name.startswith(kind.name)), _Kind(""))
    folder, libraries = library.parent, with_needed(library)
    return Installation(
        (*libraries, *matching(folder, kind.libraries)),
        None if kind.builtins is None else _builtins(libraries, kind, kind.builtins),
        None if kind.configuration is None else matching(folder, (kind.configuration,)),
    )


def _builtins(libraries: Sequence[Path], kind: _Kind, patterns: Sequence[str]) -> tuple[Path, ...]:
    found = (matching(libraries[0].parent / folder, patterns) for folder in kind.folders)
    clangs = (path.resolve().parent for path in libraries if path.name.startswith("libclang-cpp."))
    headers = (path for clang in clangs for path in matching(clang, kind.clang))
    return (*next(filter(None, found), ()), *headers)
