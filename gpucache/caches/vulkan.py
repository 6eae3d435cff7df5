"""Vulkan pipeline caches, as programs keep them: GTK's and Blender's by place, others in a given directory.

Every Vulkan program chooses where to store the result of ``vkGetPipelineCacheData``, so there is no common
place. Source: GTK 4, ``gdk/gdkvulkancontext.c``, whose files are named by the driver's UUID and version;
Blender 4.4, ``vk_pipeline_pool.cc``, and Godot 4, ``rendering_device_driver_vulkan.cpp``, which prepend their
own header. The data itself was checked against that of Mesa's lavapipe; no files of the three programs were
available. A driver rejects a cache with another driver's header; its own format after that is unknown.
"""

import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.verify import Checked
from gpucache.caches import files
from gpucache.caches.desktop_places import VulkanPlaces
from gpucache.caches.files import Files
from gpucache.caches.files_format import BinaryFormat
from gpucache.caches.layout import Layout, Left, Whose, hashed
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.payload import PayloadKind, describe

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
    opaque = "its header names a device and a driver, and nothing says which pipelines are in it"
    served = "the program hands it to the driver, which takes it if its header names that driver"
    key_digits = 40
    kinds = frozenset({PayloadKind.VULKAN_PIPELINES})
    consequence = "the driver takes none of it, or breaks, until the program writes it anew"
    shows = "a Vulkan pipeline cache"

    @classmethod
    def whose(cls, path: Path) -> Whose:
        """The owner's if one of a directory's first files begins like a pipeline cache; nothing else in other
        directories is examined, even in one that the user names."""
        with files.open_folder(path) as folder:
            found = any(_is_one(folder, found.name) for found in islice(folder.entries(), _LOOKED_AT))
        return Whose.OWN if found else Whose.UNKNOWN

    def items(self, prefix: str) -> Iterator[Files]:
        """The files that begin like one, or are named as only GTK names its own."""
        for item in super().items(prefix):
            with item.open() as folder:
                if _GTK.fullmatch(item.names[0]) or _is_one(folder, item.names[0]):
                    yield item

    def beside(self) -> Iterator[Checked]:
        for one in super().beside():
            (finding,) = one.findings
            if finding.kind is FindingKind.UNTRUSTED or self.layout.left_at((Path(one.entry).name,)):
                yield one

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
    """Whether a file begins so; a pipe or a device is not opened, as its other end may notice."""
    with suppress(OSError, FormatError):
        if not stat.S_ISREG(folder.lstat(name).st_mode):
            return False
        inner = _parted(files.read_part(folder, name, 0, _BEGINNING_BYTES))[1]
        return describe(inner).kind is PayloadKind.VULKAN_PIPELINES
    return False
