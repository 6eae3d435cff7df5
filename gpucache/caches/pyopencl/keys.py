"""The MD5 that names an entry, made as PyOpenCL makes it. Pure but for where PyOpenCL is installed.

Source: ``get_cache_key`` and ``get_device_cache_id`` in ``pyopencl/cache.py``, ``_process_build_options`` in
``pyopencl/__init__.py``, ``pyopencl/version.py``. PyOpenCL is found, never imported.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from gpucache.errors import UsageError

FORCED = "PYOPENCL_BUILD_OPTIONS"
_VERSION = re.compile(r"(\d{1,6}(?:\.\d{1,6}){0,5})[a-z0-9]{0,16}")
_OCLGRIND = ("-D", "PYOPENCL_USING_OCLGRIND")
_OWN_FOLDER = re.compile(r'"?.*[/\\]pyopencl[/\\]cl"?')


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """What a key holds of a device, as OpenCL tells it; in the order in which people are asked."""

    platform_name: str
    platform_vendor: str
    platform_version: str
    vendor: str
    name: str
    version: str
    driver_version: str

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The texts by their labels."""
        return tuple(zip(LABELS, astuple(self), strict=True))


LABELS = (
    "platform name", "platform vendor", "platform version", "device vendor", "device name",
    "device version", "driver version",
)  # fmt: skip


def candidate_key(source: bytes, options: Sequence[str], device: DeviceIdentity, version: str) -> str:
    """The key of a source with all options that a build has; raises UsageError for no version of PyOpenCL."""
    return Keyed(source, options)(device, version_numbers(version))


class Keyed:
    """The keys of one source with its options, for any device and version."""

    __slots__ = ("_begun",)

    def __init__(self, source: bytes, options: Sequence[str]) -> None:
        self._begun = hashlib.md5(source, usedforsecurity=False)
        self._begun.update(" ".join(options).encode("utf-8", "surrogateescape"))

    def __call__(self, device: DeviceIdentity, version: tuple[int, ...]) -> str:
        """The key, as 32 lower-case hex digits."""
        identity = (
            version,
            device.platform_vendor,
            device.platform_name,
            device.platform_version,
            device.vendor,
            device.name,
            device.version,
            device.driver_version,
        )
        hasher = self._begun.copy()
        hasher.update(str(identity).encode("utf-8", "surrogateescape"))
        return hasher.hexdigest()


def version_numbers(text: str) -> tuple[int, ...]:
    """The numbers of a version, such as ``(2026, 1, 4)``; raises UsageError."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a version of PyOpenCL; write one such as 2026.1.4")
    return tuple(int(number) for number in match[1].split("."))


def installed_version() -> str:
    """The version of PyOpenCL beside this tool; raises UsageError where there is none."""
    try:
        return version("pyopencl")
    except PackageNotFoundError as error:
        raise UsageError(
            "there is no PyOpenCL beside gpucache; say which with pyopencl=VERSION, and its -I folder "
            "among the options"
        ) from error


def all_options(given: Sequence[str], device: DeviceIdentity, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Options with all that PyOpenCL adds; those that name its ``-I`` folder already are left alone."""
    if any(_OWN_FOLDER.fullmatch(option.removeprefix("-I").strip()) for option in given):
        return tuple(given)
    platform = _OCLGRIND if device.platform_name == "Oclgrind" else ()
    return (*given, "-I", _include_folder(), *platform, *environ.get(FORCED, "").split())


def include_path(options: Sequence[str]) -> tuple[str, ...]:
    """The folders where PyOpenCL looks for headers, in order: ``_find_include_path``."""
    found = ["."]
    rest = iter(options)
    for option in rest:
        text = option.strip()
        if text.startswith(("-I", "/I")):
            found.append(_unquoted(next(rest, "") if len(text) == 2 else text[2:].lstrip()))
    return tuple(folder for folder in found if folder)


def _include_folder() -> str:
    places: list[str] = []
    with suppress(ImportError, ValueError):
        spec = find_spec("pyopencl")
        places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise UsageError(
            "there is no PyOpenCL beside gpucache; give its -I folder among the options, "
            "such as options='-I /usr/lib/python3/dist-packages/pyopencl/cl'"
        )
    folder = str(Path(places[0]).absolute() / "cl")
    return f'"{folder}"' if " " in folder else folder


def _unquoted(folder: str) -> str:
    quoted = len(folder) > 1 and folder.startswith('"') and folder.endswith('"')
    return folder[1:-1] if quoted else folder
