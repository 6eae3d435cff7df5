"""Where the libraries of this folder are, once they are built."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from gpucache.errors import NoDeviceError
from gpucache.native.build import BUILT, file_name

_GLIBC: Mapping[str, tuple[int, int]] = {"nvrtc_audit": (2, 35)}
"""The oldest glibc that a library is for: older ones slow every call of a program that is audited."""


def locate(library: str) -> Path:
    """The file of a library by its name, such as ``opencl_layer``; raises NoDeviceError where it is not."""
    path = BUILT / file_name(library)
    if library in _GLIBC and path.is_file() and _glibc() < _GLIBC[library]:
        oldest = ".".join(map(str, _GLIBC[library]))
        raise NoDeviceError(f"{path.name} needs glibc {oldest} or newer; run the command on a newer system")
    if path.is_file():
        return path
    if sys.platform != "linux":
        raise NoDeviceError(f"{path.name} exists for Linux only; run the command there")
    raise NoDeviceError(
        f"{path.name} is not built; install gpucache's wheel for this platform, or a C compiler, "
        "then run python -m gpucache.native.build"
    )


def _glibc() -> tuple[int, ...]:
    """The version of this system's glibc; empty for another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, OSError, ValueError):
        return ()
    return tuple(int(part) for part in version.split(".") if part.isdecimal()) if name == "glibc" else ()
