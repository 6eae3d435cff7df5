"""Makes PyOpenCL's caches from their format: entries, pickles of any protocol, a device."""

import hashlib
import os
import pickle
import struct
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gpucache.answers.entries import CacheEntry, Location
from gpucache.caches.interface import Cache
from gpucache.caches.pyopencl.key import DeviceIdentity, all_options, key_of, version_numbers
from gpucache.caches.registry import of_others
from tests.caches.opened import Environs
from tests.payload import build

SYSTEM = of_others("pyopencl")

SOURCE = b"__kernel void show(__global int *out) { out[get_global_id(0)] = 7; }\n"
DEVICE = DeviceIdentity("rusticl", "Mesa", "OpenCL 3.0", "AMD", "a device", "OpenCL 3.0", "26.2.6")
DEVICE_TEXT = "/".join(DEVICE).encode()
VERSION = "2026.1.4"
DEFEAT = b"\n\n__constant int pyopencl_defeat_cache_" + b"0123456789abcdef" * 2 + b" = 0;"
Dependency = tuple[str, float, str]


@dataclass(frozen=True)
class _SourceInfo:
    dependencies: list[Dependency]
    log: str | None


_SourceInfo.__module__ = "pyopencl.cache"


def pickled(value: object, protocol: int) -> bytes:
    """The pickle of a value, made while ``pyopencl.cache`` has a class ``_SourceInfo``."""
    module: Any = types.ModuleType("pyopencl.cache")
    module._SourceInfo = _SourceInfo
    with patch.dict(sys.modules, {"pyopencl": types.ModuleType("pyopencl"), "pyopencl.cache": module}):
        return pickle.dumps(value, protocol)


def info(dependencies: Sequence[Dependency] = (), log: str | None = "", protocol: int = 4) -> bytes:
    return pickled(_SourceInfo(list(dependencies), log), protocol)


def binary(name: bytes = b"a device", string: bytes = b"text") -> bytes:
    """A binary of Mesa's rusticl with an OpString."""
    string += bytes(4 - len(string) % 4)
    spirv = build.spirv("<", (7, 1, *struct.unpack(f"<{len(string) // 4}I", string)))
    return b"rusticl\0" + struct.pack("<4I", 1, len(name), len(spirv), 4) + name + spirv


def header(path: Path, content: bytes) -> Dependency:
    """A header on disk, as PyOpenCL records it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path), path.stat().st_mtime, hashlib.md5(content).hexdigest()


def touch(path: Path) -> None:
    os.utime(path, (1, 1))


def write(
    root: Path, key: str, *, source: bytes = SOURCE, data: bytes | None = None, told: bytes = b""
) -> Path:
    folder = root / key
    folder.mkdir(parents=True)
    (folder / "source.cl").write_bytes(source + DEFEAT)
    (folder / "binary").write_bytes(binary() if data is None else data)
    (folder / "info").write_bytes(told or info())
    return folder


def keyed(source: bytes = SOURCE, options: Sequence[str] = (), version: str = VERSION) -> str:
    """The key of a source for the device."""
    return key_of(source, all_options(options, {}), DEVICE, version_numbers(version))


def opened(root: Path) -> Cache:
    return SYSTEM.open(Location("pyopencl", str(root), "--cache", enabled=True))


def only(cache: Cache) -> CacheEntry:
    (entry,) = cache.scan()
    return entry


_AT = {"XDG_CACHE_HOME": "{tmp}"}
PLACES: Environs = {
    "by XDG_CACHE_HOME": (_AT,),
    **{
        f"PYOPENCL_NO_CACHE={value}": ({**_AT, "PYOPENCL_NO_CACHE": value},)
        for value in ("0", "FALSE", "1", "on", "", "maybe")
    },
    "a relative home": ({"HOME": "me"},),
}
