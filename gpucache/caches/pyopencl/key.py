"""The MD5 by which PyOpenCL names an entry: of the source, all options as they were given, and the device.

So ``-DN=4`` and ``-D N=4`` have two keys. Source: ``get_cache_key`` and ``get_device_cache_id`` in
``pyopencl/cache.py``, ``_process_build_options`` in ``pyopencl/__init__.py``, ``pyopencl/version.py``.
PyOpenCL is found, never imported.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from gpucache.errors import UsageError

LABELS = (
    "platform name", "platform vendor", "platform version", "device vendor", "device name",
    "device version", "driver version",
)  # fmt: skip
_FORCED = "PYOPENCL_BUILD_OPTIONS"
_VERSION = re.compile(r"(\d{1,6}(?:\.\d{1,6}){0,5})[a-z0-9]{0,16}")
_OWN_FOLDER = re.compile(r'"?.*[/\\]pyopencl[/\\]cl"?')
_NOT_INSTALLED = "PyOpenCL is not installed with gpucache; give pyopencl=VERSION, and its -I directory among "


class DeviceIdentity(NamedTuple):
    """The part of a key for a device, as OpenCL reports it; in the order of ``LABELS``."""

    platform_name: str
    platform_vendor: str
    platform_version: str
    vendor: str
    name: str
    version: str
    driver_version: str


def key_of(source: bytes, options: str, device: DeviceIdentity, version: tuple[int, ...]) -> str:
    """The key of a source with all options of a build, as 32 lower-case hex digits."""
    platform, vendor, *others = device
    hasher = hashlib.md5(source, usedforsecurity=False)
    for one in (options, str((version, vendor, platform, *others))):
        hasher.update(one.encode("utf-8", "surrogateescape"))
    return hasher.hexdigest()


def version_numbers(text: str) -> tuple[int, ...]:
    """The numbers of a version, such as ``(2026, 1, 4)``, of the one installed if it is empty; raises
    UsageError."""
    try:
        match = _VERSION.fullmatch(text or version_of("pyopencl"))
    except PackageNotFoundError:
        raise UsageError(f"{_NOT_INSTALLED}the options") from None
    if match is None:
        raise UsageError(f"{text!r} is not a version of PyOpenCL; write one such as 2026.1.4")
    return tuple(int(number) for number in match[1].split("."))


def all_options(given: Sequence[str], environ: Mapping[str, str]) -> str:
    """Options with all that PyOpenCL adds; options that name its ``-I`` directory are left unchanged."""
    if any(_OWN_FOLDER.fullmatch(option.removeprefix("-I").strip()) for option in given):
        return " ".join(given)
    places: list[str] = []
    with suppress(ImportError, ValueError):
        spec = find_spec("pyopencl")
        places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise UsageError(
            f"{_NOT_INSTALLED}the options, such as '-I /usr/lib/python3/dist-packages/pyopencl/cl'"
        )
    folder = str(Path(places[0]).absolute() / "cl")
    quoted = f'"{folder}"' if " " in folder else folder
    return " ".join((*given, "-I", quoted, *environ.get(_FORCED, "").split()))


def read_devices(given: Sequence[str]) -> tuple[DeviceIdentity, ...]:
    """Devices, each as one text with slashes or one device as seven; raises UsageError."""
    parts = [text.split("/") for text in given]
    if all(len(one) == len(LABELS) for one in parts):
        return tuple(DeviceIdentity(*one) for one in parts)
    if len(given) == len(LABELS):
        return (DeviceIdentity(*given),)
    raise UsageError(
        f"a device is {len(LABELS)} texts: {'/'.join(LABELS)}; where one of them has a slash, give device= "
        f"{len(LABELS)} times"
    )
