"""Shared libraries: which of them this process runs, and what each says of itself.

Sources: the System V gABI for program headers and the dynamic section, ``NT_GNU_BUILD_ID`` of the GNU
tools, dladdr(3), dlinfo(3) and proc_pid_maps(5). What a process runs is told on Linux only; elsewhere nothing
is found. Files are read a few kilobytes each, and read as 64-bit and little-endian ones, as all
machines are that compilers of ours run on. Must not know any compiler.
"""

import ctypes
import os
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gpucache.keys import NOT_FOUND

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_NT_GNU_BUILD_ID = 3
_DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 1, 5, 15, 29
_RTLD_DI_LINKMAP = 2
_ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_MOST_BYTES = 1024**2
"""No table that is read here is larger."""
_LONGEST_TEXT = 4096


@dataclass(frozen=True, slots=True)
class Library:
    """What a shared library says of itself."""

    build_id: str = NOT_FOUND
    """In hex."""
    needed: tuple[str, ...] = ()
    """The names of libraries that are loaded with it."""
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


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
    """The file of the loaded library that an address lies in."""
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
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    paths = ("/" + path for _, slash, path in (line.partition("/") for line in lines) if slash)
    return next((Path(path) for path in paths if path.rpartition("/")[2].startswith(name)), None)


def loaded_as(name: str) -> Path | None:
    """The file of the library that is loaded under the name by which others need it; loads nothing.

    Not asked with dl_iterate_phdr(3): the loader is locked while it calls back, a callback in Python waits
    for the interpreter, and the thread that holds the interpreter may wait for the loader.
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
    """Build id, needed names and search paths of a library; empty where it has none or does not read."""
    try:
        with path.open("rb") as stream:
            return _read(stream)
    except (OSError, ValueError, struct.error):
        return Library()  # the build id stays NOT_FOUND, which never equals a real one


def _read(stream: BinaryIO) -> Library:
    header = _at(stream, 0, 64)
    if not header.startswith(_ELF64_LITTLE_ENDIAN):
        return Library()
    (place,) = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    table = _at(stream, place, size * count)
    rows = [struct.unpack_from("<IIQQQQQ", table, number * size) for number in range(count)]
    segments = [(kind, offset, address, length) for kind, _, offset, address, _, length, _ in rows]
    build_id, tags = NOT_FOUND, list[tuple[int, int]]()
    for kind, offset, _, length in segments:
        if kind == _PT_NOTE:
            build_id = _build_id(_at(stream, offset, length)) or build_id
        elif kind == _PT_DYNAMIC:
            data = _at(stream, offset, length)
            tags += struct.iter_unpack("<qQ", data[: len(data) // 16 * 16])
    strings = dict(tags).get(_DT_STRTAB, 0)
    inside = (one for one in segments if one[0] == _PT_LOAD and one[2] <= strings < one[2] + one[3])
    _, offset, address, _ = next(inside, (0, 0, 0, 0))

    def texts(wanted: int) -> tuple[str, ...]:
        places = (offset + strings - address + value for tag, value in tags if tag == wanted)
        return tuple(os.fsdecode(_text(stream, place)) for place in places)

    return Library(build_id, texts(_DT_NEEDED), _places(texts(_DT_RPATH)), _places(texts(_DT_RUNPATH)))


def _text(stream: BinaryIO, offset: int) -> bytes:
    stream.seek(offset)
    return stream.read(_LONGEST_TEXT).partition(b"\0")[0]


def _at(stream: BinaryIO, offset: int, length: int) -> bytes:
    """Some bytes of a file; raises ValueError where it is too short or they are too many."""
    if length > _MOST_BYTES:
        raise ValueError("no table of a library is that large")
    stream.seek(offset)
    data = stream.read(length)
    if len(data) < length:
        raise ValueError("the file ends before its table does")
    return data


def _build_id(notes: bytes) -> str | None:
    """The build id among the notes of a segment."""
    place = 0
    while place + 12 <= len(notes):
        name, length, kind = struct.unpack_from("<III", notes, place)
        place += 12 + (name + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[place - 4 : place] == b"GNU\0":
            return notes[place : place + length].hex()
        place += length + 3 & ~3
    return None


def _places(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(place for text in texts for place in text.split(":") if place)
