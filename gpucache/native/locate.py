"""Where the libraries of this directory are, once built. Every command under ``run`` waits for this."""

# Paths are text, and ``build``, which has the same two names, is not imported.
# ruff: noqa: PTH113, PTH118, PTH120

import os
import sys

TYPE_CHECKING = False  # the one of typing
if TYPE_CHECKING:
    from pathlib import Path

BUILT = os.path.join(os.path.dirname(__file__), "lib")
_GLIBC: "dict[str, tuple[int, int]]" = {"nvrtc_audit": (2, 35)}
"""The oldest glibc that a library is for: older ones slow every call of a program that is audited."""


def locate(library: str) -> "Path":
    """The file of a library by its name, such as ``opencl_layer``; raises NoDeviceError if it is missing."""
    from pathlib import Path

    from gpucache.errors import NoDeviceError

    path, problem = find(library)
    if problem:
        raise NoDeviceError(problem)
    return Path(path)


def find(library: str) -> tuple[str, str]:
    """The path of a library, and why it cannot be used; empty if it can."""
    name = f"libgpucache_{library}.so"
    path = os.path.join(BUILT, name)
    if not os.path.isfile(path):
        if sys.platform != "linux":
            return path, f"{name} exists for Linux only; run the command there"
        return path, (
            f"{name} is not built; install gpucache's wheel for this platform, or a C compiler, "
            "then run python -m gpucache.native.build"
        )
    if library in _GLIBC and _glibc() < _GLIBC[library]:
        oldest = ".".join(map(str, _GLIBC[library]))
        return path, f"{name} needs glibc {oldest} or newer; run the command on a newer system"
    return path, ""


def _glibc() -> tuple[int, ...]:
    """The version of this system's glibc; empty for another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, OSError, ValueError):
        return ()
    return tuple(int(part) for part in version.split(".") if part.isdecimal()) if name == "glibc" else ()
