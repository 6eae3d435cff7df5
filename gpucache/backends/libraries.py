"""The shared libraries that this process has loaded, and what is in their headers, such as a build id.

Sources: dladdr(3), dlinfo(3) and proc_pid_maps(5). Loaded libraries are found on Linux only. Only a few
kilobytes of a file are read. This module must not know any compiler.
"""

import ctypes
import os
import sys
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gpucache.payload.library import Library

_RTLD_DI_LINKMAP = 2


class _Info(ctypes.Structure):
    """``Dl_info``."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _LinkMap(ctypes.Structure):
    """The beginning of ``struct link_map``."""

    _fields_ = (("address", ctypes.c_void_p), ("file", ctypes.c_char_p))


def library_at(address: int) -> Path | None:
    """The file of the loaded library that contains an address."""
    if sys.platform != "linux":
        return None
    info = _Info()
    tell = getattr(ctypes.CDLL(None), "dladdr", None)  # an old libc has it elsewhere
    found = tell and tell(ctypes.c_void_p(address), ctypes.byref(info))
    return Path(os.fsdecode(info.file)) if found and info.file else None


def loaded(name: str) -> Path | None:
    """The file of a loaded library whose name begins with ``name``."""
    if sys.platform != "linux":
        return None
    try:
        maps = Path("/proc/self/maps").read_bytes()
    except OSError:
        return None
    beginning = f"/{name}".encode()
    found = (b"/" + line.partition(b"/")[2] for line in maps.split(b"\n") if beginning in line)
    named = (path for path in found if path.rpartition(b"/")[2].startswith(beginning[1:]))
    return next((Path(os.fsdecode(path)) for path in named), None)


def loaded_as(name: str) -> Path | None:
    """The file of the library that is loaded under the name by which others need it; loads nothing.

    dl_iterate_phdr(3) would also find it, but could hang: the loader is locked during its callback, a
    callback in Python waits for the interpreter, and the thread that holds the interpreter may wait for the
    loader.
    """
    if sys.platform != "linux":
        return None
    tell = getattr(ctypes.CDLL(None), "dlinfo", None)  # an old libc has it elsewhere
    try:
        handle = ctypes.CDLL(name, mode=os.RTLD_LAZY | os.RTLD_NOLOAD)._handle
    except OSError:
        return None
    link = ctypes.POINTER(_LinkMap)()
    if tell is None or tell(ctypes.c_void_p(handle), _RTLD_DI_LINKMAP, ctypes.byref(link)):
        return None
    return Path(os.fsdecode(link.contents.file or b""))


def read_library(path: Path) -> Library:
    """What a library's headers say; empty if it is none. Raises OSError."""
    from gpucache.errors import FormatError
    from gpucache.payload import elf  # what it said last time is remembered, as a rule

    try:
        with path.open("rb") as stream:
            return elf.read_library(_Stream(stream, os.fstat(stream.fileno()).st_size))
    except FormatError:
        return Library()


class _Stream(NamedTuple):
    """A library on disk: see ``gpucache.payload.elf.Source``."""

    stream: BinaryIO
    size: int

    def require(self, end: int, part: str) -> None:
        if end > self.size:
            from gpucache.payload.reading import CutError

            raise CutError(f"the {part} ends at byte {end}, beyond the file's {self.size} bytes")

    def cut(self, start: int, end: int) -> bytes:
        start, end = min(start, self.size), min(end, self.size)
        self.stream.seek(start)
        data = self.stream.read(end - start)
        if len(data) < end - start:
            from gpucache.payload.reading import CutError

            raise CutError("the file became shorter while it was read")
        return data
