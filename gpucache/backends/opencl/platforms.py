"""The OpenCL platforms and devices of this machine, as targets with toolchains. Loads PyOpenCL.

This module owns the short names of platforms and devices, the mapping from a target to its device, and the
fields that identify an OpenCL compiler. It reads the driver UUID with ctypes, because PyOpenCL does not.
"""

import ctypes
import os
import platform as machine
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyopencl as cl

from gpucache.backends.installation import Installation, remembered
from gpucache.backends.opencl.installations import cpu_features, installation_of, library_of, problems, unhide
from gpucache.backends.opencl.options import INTEL, NVIDIA, OTHER, POCL
from gpucache.errors import NoDeviceError, TargetError
from gpucache.model import Device, Target, Toolchain
from gpucache.sources import Memos

_SHORT_NAMES = {
    "portable computing language": "pocl",
    "intel(r) opencl": "intel",
    "intel(r) opencl graphics": "intel-gpu",
    "nvidia cuda": "nvidia",
    "amd accelerated parallel processing": "amd",
}
_IMPLEMENTATIONS = {"pocl": POCL, "intel": INTEL, "nvidia": NVIDIA}
_DRIVER_UUID_KHR = 0x106B
_NOT_FOUND = -1001  # CL_PLATFORM_NOT_FOUND_KHR
_NEWER_POCL = "install a newer PoCL, such as Debian's pocl-opencl-icd"
_IDENTITY = ("platform name", "device name")


class Located(NamedTuple):
    """One device with the target that names it."""

    target: Target
    handle: Any


def slug(text: str) -> str:
    """A short name for the command line: lower case, without marks, with hyphens for everything else."""
    plain = re.sub(r"\((r|tm|c)\)", " ", text.lower())
    return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-") or "unnamed"


def devices() -> list[Located]:
    """Every device of every platform, each with a target that is unique on this machine."""
    platforms = _platforms()
    names = [_platform_slug(platform) for platform in platforms]
    found: list[Located] = []
    for platform, name in zip(platforms, _unique(names, platforms), strict=True):
        handles = _devices_of(platform)
        labels = _numbered([slug(handle.name) for handle in handles])
        found += [
            Located(Target("opencl", f"{name}/{label}"), handle)
            for handle, label in zip(handles, labels, strict=True)
        ]
    return found


def probe() -> list[Device]:
    """A row for every OpenCL device, then one for each failure; raises NoDeviceError if there are none."""
    failed = [*_deviceless(), *problems(os.environ)]
    rows = [_row(located) for located in devices()]
    rows += [
        Device(None, "opencl", "OpenCL", "", available=False, detail=detail, present=False)
        for detail in failed
    ]
    if not rows:
        raise NoDeviceError(
            "no OpenCL platform is found; "
            + (unhide(os.environ) or "'pip install pocl-binary-distribution' brings PoCL, which needs no GPU")
        )
    return rows


def find(target: Target) -> Any:
    """The ``pyopencl.Device`` of a target; raises TargetError."""
    for located in devices():
        if located.target == target:
            return located.handle
    raise TargetError(f"no device is {str(target)!r}; run 'gpucache devices' to see the targets")


@lru_cache(maxsize=64)
def target_of(handle: Any) -> Target:
    """The target of a ``pyopencl.Device`` on this machine."""
    for located in devices():
        if located.handle == handle:
            return located.target
    return Target("opencl", f"{_platform_slug(handle.platform)}/{slug(handle.name)}")


def toolchain(handle: Any, memos: Memos | None = None) -> Toolchain:
    """The fields that identify a device's compiler; the UUID of a board is never among them.

    ``memos`` keep facts about the files of the compiler.
    """
    found = _toolchains.get(handle)
    if found is None:
        with remembered(memos, handle.platform.name):
            found = _toolchains[handle] = _toolchain(handle)
    return found


_toolchains: dict[Any, Toolchain] = {}


def _toolchain(handle: Any) -> Toolchain:
    platform = handle.platform
    fields = [
        ("platform name", platform.name),
        ("platform vendor", platform.vendor),
        ("platform version", platform.version),
        ("device name", handle.name),
        ("device vendor", handle.vendor),
        ("device version", handle.version),
        ("driver version", handle.driver_version),
    ]
    uuid = _driver_uuid(handle)
    if uuid is not None:
        fields.append(("driver UUID", uuid))
    fields += _build(platform)
    if implementation(handle) == INTEL:
        fields += _early_configuration()
    if handle.type & cl.device_type.CPU:
        fields.append(("CPU features", cpu_features()))
    return Toolchain(implementation(handle), tuple(fields), _IDENTITY)


def installation(handle: Any) -> Installation:
    return installation_of(handle.platform.int_ptr)


@cache
def installations() -> tuple[Installation, ...]:
    return tuple(installation_of(platform.int_ptr) for platform in _platforms())


@lru_cache(maxsize=16)
def _build(platform: Any) -> tuple[tuple[str, str], ...]:
    return installation_of(platform.int_ptr).fields()


def _configuration() -> str | None:
    """The digest of the file in the current directory that Intel's runtime reads; None if it is missing."""
    path = Path("cl.cfg")
    try:
        if not path.is_file():
            return None  # reading a pipe would wait for its writer
        import hashlib

        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


_AT_IMPORT = _configuration()


def _early_configuration() -> list[tuple[str, str]]:
    """The settings that were in the current directory when Intel's library was loaded.

    The runtime reads some settings, such as the CPU to compile for, only when it is loaded. That moment is
    over, so both the present files and the files at the import of this module count. Settings that are read
    at each build are covered with the headers.
    """
    early = dict.fromkeys(found for found in (_AT_IMPORT, _configuration()) if found)
    return [("configuration at the start", found) for found in early]


def implementation(handle: Any) -> str:
    """The name of the implementation, whose rules apply to a device's compiler."""
    return _IMPLEMENTATIONS.get(_platform_slug(handle.platform), OTHER)


def _platforms() -> list[Any]:
    try:
        return list(cl.get_platforms())
    except cl.LogicError as error:
        if error.code == _NOT_FOUND:
            return []
        raise


def _devices_of(platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.Error:
        return []  # raised by a platform without devices


def _deviceless() -> Iterator[str]:
    """A sentence for each platform that is installed but shows no device."""
    for platform in _platforms():
        if not _devices_of(platform):
            named = f"{platform.name.strip()} ({' '.join(platform.version.split()[:4])})"
            makes = _IMPLEMENTATIONS.get(_platform_slug(platform)) == POCL
            remedy = (
                "it shows none without a writable cache, so set POCL_CACHE_DIR to a writable directory"
                if makes
                else "check its driver"
            )
            yield f"the platform {named} is installed and shows no device; {remedy}"


def _platform_slug(platform: Any) -> str:
    return _SHORT_NAMES.get(platform.name.strip().lower(), slug(platform.name))


def _unique(names: list[str], platforms: list[Any]) -> list[str]:
    """Names with a version where platforms share a name, so that the order of platforms does not matter."""
    counts, unique = Counter(names), []
    for name, platform in zip(names, platforms, strict=True):
        if counts[name] > 1:
            handles = _devices_of(platform)
            name = f"{name}-{slug(handles[0].driver_version if handles else platform.version)}"
        unique.append(name)
    return _numbered(unique)


def _numbered(names: list[str]) -> list[str]:
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return numbered


def _row(located: Located) -> Device:
    handle = located.handle
    problem = _why_not(handle)
    return Device(
        target=located.target,
        backend="opencl",
        name=handle.name.strip(),
        driver_version=handle.driver_version,
        available=not problem,
        detail=problem or f"{_kind(handle)}, {handle.platform.name}, {handle.version.strip()}",
        toolchain=toolchain(handle),
        files=tuple(map(str, installation(handle).files)),
    )


def _why_not(handle: Any) -> str:
    """Why no program can be compiled for a device, with the remedy; empty if one can."""
    if not handle.compiler_available:
        kind = cl.device_type.to_string(handle.type & ~cl.device_type.DEFAULT, "%d")
        return f"{kind} without a compiler: its programs are built elsewhere"
    if implementation(handle) == POCL and handle.type & cl.device_type.CPU and not _knows_cpu(handle):
        remedy = "use another platform"
        if [_platform_slug(one) for one in _platforms()].count("pocl") == 1:
            other = unhide(os.environ, "*pocl*.icd")
            remedy = f"{other or _NEWER_POCL}, or {remedy}"
        return (
            f"PoCL {handle.driver_version} has an LLVM that does not know this CPU, so it compiles "
            f"nothing; {remedy}"
        )
    return ""


def _knows_cpu(handle: Any) -> bool:
    """Whether the LLVM of a PoCL knows this CPU; True if that cannot be determined.

    PoCL compiles for the CPU that LLVM names. LLVM calls a CPU that it does not know ``generic``, and Clang
    has no CPU of that name for x86-64, so every build fails. A PoCL that is built for many CPUs, as from 5.0
    on and in Debian's 3.1, chooses one by its instruction sets instead, and has ``pocl_get_distro_cpu_name``.
    """
    if not sys.platform.startswith("linux") or machine.machine() != "x86_64":
        return True
    path = library_of(handle.int_ptr)  # several PoCLs may be loaded
    try:
        library = None if path is None else ctypes.CDLL(str(path))
    except OSError:
        return True
    ask = getattr(library, "pocl_get_llvm_cpu_name", None)
    if ask is None or hasattr(library, "pocl_get_distro_cpu_name"):
        return True
    ask.restype = ctypes.c_char_p  # a few bytes of malloc that are never freed
    return ask() != b"generic"


def _kind(handle: Any) -> str:
    for flag, word in ((cl.device_type.GPU, "GPU"), (cl.device_type.CPU, "CPU")):
        if handle.type & flag:
            return word
    return "accelerator"


def _driver_uuid(handle: Any) -> str | None:
    """The hex CL_DRIVER_UUID_KHR of cl_khr_device_uuid; None if the device has none."""
    if "cl_khr_device_uuid" not in handle.extensions.split():
        return None
    # PyOpenCL's extension module links the ICD loader, so the loader's functions are found through it.
    query = ctypes.CDLL(cl._cl.__file__).clGetDeviceInfo
    buffer = ctypes.create_string_buffer(16)
    status = query(ctypes.c_void_p(handle.int_ptr), _DRIVER_UUID_KHR, 16, buffer, None)
    return buffer.raw.hex() if status == 0 else f"probe failed with {status}"
