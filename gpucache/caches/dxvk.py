"""DXVK's shader cache: for each program its Direct3D shaders, translated for Vulkan.

Source: DXVK 3.0, ``src/dxvk/dxvk_shader_cache.cpp``; no file written by it was available. Two files are named
by an FNV-1a hash of the last two parts of the program's path. The list (``.dxvk.lut``) begins with ``DXVK``
and the version after its length as u16; each row begins with the lookup data of that DXVK version, and ends
with u64 place, u32 size, u32 size of the data after that, and u64 hash of a shader in ``.dxvk.bin``. Both
files only grow, while one program has them open exclusively; if the version differs, or one of them is
invalid, both are begun again. As rows differ from version to version, only the last shader is checked. The
drivers' caches have the compiled shaders. Under Wine the directory is that of Windows.
"""

import struct
from collections.abc import Iterator
from functools import reduce
from itertools import chain

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.desktop_places import DxvkPlaces
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.layout import Layout
from gpucache.errors import FormatError
from gpucache.units import printable

_MAGIC, _LONGEST = b"DXVK", 64
_ROW_END = struct.Struct("<QIIQ")
_LARGEST_BYTES = 64 << 20
_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
"""The constants of 64-bit FNV-1a, which DXVK applies to eight bytes at a time, and finally to the size."""
_ANEW = "DXVK begins both files anew"


class Dxvk(DxvkPlaces, FilesFormat):
    """Two files for each program."""

    layout = Layout([r"([0-9a-f]{16})\.dxvk\.lut", r"([0-9a-f]{16})\.dxvk\.bin"])
    wanted = {"key": "the 16 hex digits of its files' names"}
    opaque = "its files name shaders and no program; DXVK_LOG_LEVEL=debug logs each hit and miss"
    absent = "no program's files have this name: it never ran, or they were removed"
    served = "DXVK of this version would use it"
    shows = "a file that begins as DXVK's do"
    key_digits = 16

    def look(self, item: Files) -> CacheEntry:
        version = _version(item)
        problem = None
        if len(item.names) < 2:
            detail = f"its other file is gone, so {_ANEW}"
            problem = Problem(FindingKind.ORPHAN, detail)
        elif not version:
            problem = Problem(FindingKind.CORRUPT, f"its list does not begin as DXVK's do, so {_ANEW}")
        return self.entry(item)._replace(
            artifact_kind="dxvk-shaders",
            damage=problem,
            toolchain=(("DXVK", version),) if version else (),
            shows=bool(version),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        """Check the last row of the list, and its shader; only DXVK can locate the others."""
        if problem := self.look(item).damage:
            yield problem
            return
        lut, shaders = item.names
        begins = len(_MAGIC) + 2
        start = begins + int.from_bytes(item.part(lut, len(_MAGIC), 2), "little")
        end = item.seen[lut].st_size
        if end == start:  # a program that had none compiled
            return
        row = item.part(lut, max(start, end - _ROW_END.size), _ROW_END.size)
        at, size, more, digest = _ROW_END.unpack(row.rjust(_ROW_END.size, b"\xff"))
        if at + size + more > item.seen[shaders].st_size:
            detail = f"the last row of its list points beyond its shaders' end, so {_ANEW}"
            yield Problem(FindingKind.TRUNCATED, detail)
        elif size <= _LARGEST_BYTES and _hash(item.part(shaders, at, size)) != digest:
            detail = f"the hash of its last shader is not that of its list, so {_ANEW}"
            yield Problem(FindingKind.CORRUPT, detail)

    def payload(self, item: Files) -> bytes:
        if len(item.names) < 2:
            raise FormatError(f"{item.path} has no file of shaders next to it, or no list")
        return item.read(item.names[1], 1 << 30)


def _version(item: Files) -> str:
    """The version in the list's header; empty if it has none."""
    start = item.part(item.names[0], 0, len(_MAGIC) + 2 + _LONGEST)
    length = int.from_bytes(start[4:6], "little")
    version = start[6 : 6 + length]
    whole = start.startswith(_MAGIC) and 0 < length <= _LONGEST and len(version) == length
    return printable(version) if whole else ""


def _hash(data: bytes) -> int:
    words = (int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8))
    return reduce(lambda digest, word: (digest ^ word) * _PRIME & _MASK, chain(words, (len(data),)), _OFFSET)
