"""The three files of an entry, each read with its bound. Must not judge them."""

import re

from gpucache.caches import files
from gpucache.caches.pyopencl import names, sources
from gpucache.caches.pyopencl.pickled import LARGEST_BYTES as LARGEST_INFO_BYTES
from gpucache.caches.pyopencl.pickled import Info, read_info
from gpucache.folders import Folder
from gpucache.payload import PayloadInfo, PayloadKind

LARGEST_SOURCE_BYTES = 64 << 20
LARGEST_BINARY_BYTES = 1 << 30
"""The largest that is given out."""
CHECKED_BINARY_BYTES = 256 << 20
"""The largest that is looked into."""
_OPTIONS = re.compile(r"^Options used by backend compiler: (.{0,65536})$", re.MULTILINE)
_DEVICES = {PayloadKind.INTEL_CPU: "Intel CPU", PayloadKind.INTEL_GPU: "Intel GPU"}


def read_source(inner: Folder) -> bytes:
    """The source as its program wrote it; raises FormatError, OSError."""
    return sources.as_written(files.read(inner, names.SOURCE, LARGEST_SOURCE_BYTES))


def read_binary(inner: Folder) -> bytes:
    """The compiled bytes; raises FormatError, OSError."""
    return files.read(inner, names.BINARY, LARGEST_BINARY_BYTES)


def info_of(inner: Folder) -> Info:
    """What the entry says of its build; raises FormatError, OSError."""
    return read_info(files.read(inner, names.INFO, LARGEST_INFO_BYTES))


def logged_options(log: str) -> str | None:
    """The options in a build log, all of them in one line; Intel's compilers alone write them there."""
    match = _OPTIONS.search(log)
    return match[1] if match is not None and match[1].isprintable() else None


def device_of(info: PayloadInfo) -> str:
    """What a binary says of its device; empty where it says nothing."""
    if info.architecture is not None:
        return info.architecture
    told = dict(info.detail)
    return told.get("device", "") if info.kind is PayloadKind.RUSTICL else _DEVICES.get(info.kind, "")
