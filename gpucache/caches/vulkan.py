"""Vulkan pipeline caches as programs keep them, GTK's and Blender's by place; and DXVK's shaders for Vulkan.

Every Vulkan program chooses where to store the result of ``vkGetPipelineCacheData``, so there is no common
place. Source: GTK 4, ``gdk/gdkvulkancontext.c``, whose files are named by the driver's UUID and version;
Blender 4.4, ``vk_pipeline_pool.cc``, and Godot 4, ``rendering_device_driver_vulkan.cpp``, which prepend their
own header. The data itself was checked against that of Mesa's lavapipe; no files of the three programs were
available. A driver rejects a cache with another driver's header; its own format after that is unknown.
"""

import re
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import reduce
from itertools import chain, islice
from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches import files
from gpucache.caches.binary_format import BinaryFormat
from gpucache.caches.desktop_places import VulkanPlaces
from gpucache.caches.files import Files
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, Left, Whose, hashed
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.payload import PayloadKind, describe
from gpucache.units import printable

_GTK = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d+")
_HEADS = {b"\x65\3\0\0": ("Godot", 48, 4), b"\0\xbc\0\0": ("Blender", 52, 20)}
"""Headers before a pipeline cache, by their first four bytes: the program, the length of the header, and the
offset in it of the pipeline cache's u32 size."""
_BEGINNING_BYTES = 128
_LOOKED_AT = 256
"""The number of a directory's files that are examined to identify it."""


class Vulkan(VulkanPlaces, BinaryFormat):
    """The pipelines that drivers compiled for a program, a file for each device, or for each program."""

    layout = Layout(
        [r"((?!\.goutputstream-).+)"],
        left=[Left(r"\.goutputstream-\w{6}")],
        key=hashed,
    )
    served = "the program hands it to the driver, which takes it if its header names that driver"
    kinds = frozenset({PayloadKind.VULKAN_PIPELINES})
    tells_strangers = False
    consequence = "the driver takes none of it, or breaks, until the program writes it anew"

    @classmethod
    def whose(cls, path: Path) -> Whose:
        """The owner's if one of a directory's first files begins like a pipeline cache; nothing else in other
        directories is examined, even in one that the user names."""
        with files.open_folder(path) as folder:
            found = any(_is_one(folder, found.name) for found in islice(folder.entries(), _LOOKED_AT))
        return Whose.OWN if found else Whose.UNKNOWN

    def items(self, prefix: str) -> Iterator[Files]:
        """The files that begin like a pipeline cache or have a name that only GTK gives."""
        for item in super().items(prefix):
            with item.open() as folder:
                if _GTK.fullmatch(item.names[0]) or _is_one(folder, item.names[0]):
                    yield item

    def look(self, item: Files) -> CacheEntry:
        name = item.names[0]
        program, inner, _ = _parted(item.part(name, 0, _BEGINNING_BYTES))
        program = "GTK" if _GTK.fullmatch(name) else program or name
        fields = tuple(pair for pair in describe(inner).detail if pair[0] in ("vendor", "device", "UUID"))
        return super().look(item)._replace(program=program, fields=fields, unique=program == name)

    def unwrap(self, data: bytes, *, whole: bool) -> tuple[bytes, Problem | None]:
        program, inner, size = _parted(data)
        if whole and len(inner) < size:
            detail = f"{size - len(inner)} of the bytes that {program} wrote are missing; {self.consequence}"
            return inner, Problem(FindingKind.TRUNCATED, detail)
        return inner[:size] if program else inner, None


def _parted(data: bytes) -> tuple[str, bytes, int]:
    """The program whose header begins some bytes, the bytes after it, and their size; without such a header
    all of the bytes and 0."""
    program, length, at = _HEADS.get(data[:4], ("", 0, 0))
    if len(data) < length or not program:
        return "", data, 0
    return program, data[length:], int.from_bytes(data[at : at + 4], "little")


def _is_one(folder: Folder, name: str) -> bool:
    """Whether a file begins like a pipeline cache; pipes and devices are not opened."""
    with suppress(OSError, FormatError):
        if not stat.S_ISREG(folder.lstat(name).st_mode):
            return False
        inner = _parted(files.read_part(folder, name, 0, _BEGINNING_BYTES))[1]
        return describe(inner).kind is PayloadKind.VULKAN_PIPELINES
    return False


_MAGIC, _LONGEST = b"DXVK", 64
_ROW_END = struct.Struct("<QIIQ")
_LARGEST_BYTES = 64 << 20
_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
"""The constants of 64-bit FNV-1a, which DXVK applies to eight bytes at a time, and finally to the size."""
_ANEW = "DXVK begins both files anew"


class Dxvk(Format, of="dxvk"):
    """For each program two files with its Direct3D shaders, translated for Vulkan.

    Source: DXVK 3.0, ``src/dxvk/dxvk_shader_cache.cpp``; no file written by it was available. The files are
    named by an FNV-1a hash of the last two parts of the program's path. The list (``.dxvk.lut``) begins with
    ``DXVK`` and the version after its length as u16; each row begins with the lookup data of that DXVK
    version, and ends with u64 place, u32 size, u32 size of the data after that, and u64 hash of a shader in
    ``.dxvk.bin``. Both files only grow, while one program has them open exclusively; if the version differs,
    or one of them is invalid, both are begun again. As rows differ from version to version, only the last
    shader is checked. The drivers' caches have the compiled shaders. Under Wine the directory is that of
    Windows.
    """

    layout = Layout([r"([0-9a-f]{16})\.dxvk\.lut", r"([0-9a-f]{16})\.dxvk\.bin"])

    def look(self, item: Files) -> CacheEntry:
        version = _version(item)
        problem = None
        if len(item.names) < 2:
            detail = f"its other file is gone, so {_ANEW}"
            problem = Problem(FindingKind.ORPHAN, detail)
        elif not version:
            problem = Problem(FindingKind.MISLABELLED, f"its list does not begin as DXVK's do, so {_ANEW}")
        return self.entry(item)._replace(
            artifact_kind="dxvk-shaders",
            damage=problem,
            toolchain=(("DXVK", version),) if version else (),
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
