"""Where the dynamic loader finds the libraries that a cached one needs, which nothing here loads.

Source: ld.so(8) and glibc's ``sysdeps/generic/dl-cache.h``. RPATH, RUNPATH, LD_LIBRARY_PATH, the loader's
cache and directories, those of CUDA and ROCm, and every environment of Python that is found are searched, as
an owner has often loaded its wheels' libraries before. So a name that is found can still fail, and one that
is not found is in none of these. Must not know any system.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from gpucache.caches import interpreters
from gpucache.errors import FormatError
from gpucache.payload.elf import Library, read_library
from gpucache.payload.reading import Reading

_CACHE = Path("/etc/ld.so.cache")
_CACHE_BYTES = 64 << 20
_FOLDERS = (
    "lib", "usr/lib", "lib64", "usr/lib64", "usr/local/lib", "lib/*-linux-*", "usr/lib/*-linux-*",
    "usr/local/cuda*/lib64", "usr/local/cuda*/targets/*/lib", "opt/rocm*/lib", "opt/intel/oneapi/*/*/lib",
)  # fmt: skip
_OF_TOOLKITS = ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "CONDA_PREFIX", "CMPLR_ROOT")
_NAME = re.compile(r"lib[\w.+-]{1,200}")
DRIVER = re.compile(r"lib(?:cuda|nvidia-[\w-]+|nvcuvid|amdhip64|hsa-runtime64|ze_loader|OpenCL)\.so[.\d]*")
"""The libraries of drivers, which a machine without their device lacks."""


def lost(path: Path, data: bytes) -> tuple[str, ...]:
    """The libraries that the one at a path needs and that are nowhere; none if it cannot be parsed, or on
    another system than Linux. Raises nothing."""
    if sys.platform != "linux":
        return ()
    try:
        library = read_library(Reading(data))
    except FormatError:
        return ()
    places = [Path(one) for one in _beside(library, path)]
    return tuple(
        name
        for name in dict.fromkeys(library.needed)
        if _NAME.fullmatch(name)
        and not any((place / name).exists() for place in places)
        and not _is_found(name)
    )


def _beside(library: Library, path: Path) -> Iterator[str]:
    """The directories of the library's own, and those of the environment."""
    for place in (*library.rpath, *library.runpath):
        yield re.sub(r"\$(?:ORIGIN|\{ORIGIN\})", lambda _: str(path.parent), place)
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"))


@cache
def _is_found(name: str) -> bool:
    with suppress(OSError, ValueError):
        if any(Path(one).exists() for one in _listed().get(name, ())):
            return True
        if any(next(Path(os.sep).glob(f"{one}/{name}"), None) for one in _FOLDERS):
            return True
        roots = filter(None, map(os.environ.get, _OF_TOOLKITS))
        if any(Path(root, below, name).exists() for root in roots for below in ("lib64", "lib")):
            return True
    return name in interpreters.libraries()


@cache
def _listed() -> dict[str, list[str]]:
    """The paths in the loader's cache by name; empty if there is none, as with musl."""
    found: dict[str, list[str]] = {}
    with suppress(OSError), _CACHE.open("rb") as file:
        for text in file.read(_CACHE_BYTES).split(b"\0"):
            if text.startswith(b"/"):
                path = os.fsdecode(text)
                found.setdefault(path.rpartition("/")[2], []).append(path)
    return found
