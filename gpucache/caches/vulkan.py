"""Vulkan pipeline caches, as programs keep them: GTK's and Blender's by place, others in a folder of yours.

Vulkan leaves it to every program where it keeps what ``vkGetPipelineCacheData`` gives, so there is no common
place. Source: GTK 4, ``gdk/gdkvulkancontext.c``, whose files are called by the driver's UUID and version;
Blender 4.4, ``vk_pipeline_pool.cc``, and Godot 4, ``rendering_device_driver_vulkan.cpp``, which put a header
of their own in front. The bytes themselves were checked against those of Mesa's lavapipe; none of the three
programs was seen to write. A driver takes no cache whose header is another's; behind that header it has its
own format, of which nothing is known here.
"""

import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from gpucache.answers.entries import FindingKind, Problem
from gpucache.answers.verify import Checked
from gpucache.caches import files
from gpucache.caches.files import Files
from gpucache.caches.files_format import BinaryFormat
from gpucache.caches.format import HOUR_NS, Look
from gpucache.caches.layout import Layout, Left, Whose, hashed
from gpucache.caches.systems import VulkanPlaces
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.payload import PayloadKind, describe

_GTK = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d+")
_HEADS = {b"\x65\3\0\0": ("Godot", 48, 4), b"\0\xbc\0\0": ("Blender", 52, 20)}
"""By their first four bytes whose headers those in front of a pipeline cache are, how long such a header is,
and where in it the u32 size of the pipeline cache stands."""
_BEGINNING_BYTES = 128
_LOOKED_AT = 256
"""Files of a folder that are looked at to learn what it is."""


class Vulkan(VulkanPlaces, BinaryFormat):
    """What drivers made of a program's pipelines, a file for each device, or for each program."""

    layout = Layout(
        [r"((?!\.goutputstream-).+)"],
        left=[Left(r"\.goutputstream-\w{6}", HOUR_NS)],
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
        """The owner's where one of a folder's first files begins as a pipeline cache does; of others nothing
        else is looked at, wherever people say that some are."""
        with files.open_folder(path) as folder:
            found = any(_is_one(folder, found.name) for found in islice(folder.entries(), _LOOKED_AT))
        return Whose.OWN if found else Whose.UNKNOWN

    def items(self, prefix: str) -> Iterator[Files]:
        """What begins as one, or is called as only GTK calls its own."""
        for item in super().items(prefix):
            with item.open() as folder:
                if _GTK.fullmatch(item.names[0]) or _is_one(folder, item.names[0]):
                    yield item

    def beside(self) -> Iterator[Checked]:
        """What a writer of GTK's did not finish, and who may write there; all else is somebody's own."""
        for one in super().beside():
            (finding,) = one.findings
            if finding.kind is FindingKind.UNTRUSTED or self.layout.left_at((Path(one.entry).name,)):
                yield one

    def is_left(self, start: bytes) -> bool:
        """The beginning of a pipeline cache, or of less."""
        return describe(start).kind is PayloadKind.VULKAN_PIPELINES

    def look(self, item: Files) -> Look:
        """Whose it is by its name or its first header, and the device that the next one names."""
        name = item.names[0]
        program, inner, _ = _parted(item.part(name, 0, _BEGINNING_BYTES))
        program = "GTK" if _GTK.fullmatch(name) else program or name
        fields = tuple(pair for pair in describe(inner).detail if pair[0] in ("vendor", "device", "UUID"))
        return replace(super().look(item), program=program, fields=fields, unique=program == name)

    def unwrap(self, data: bytes, *, whole: bool) -> tuple[bytes, Problem | None]:
        """What the driver made, behind the header of the program, which says how long it is."""
        program, inner, size = _parted(data)
        if whole and len(inner) < size:
            detail = f"{size - len(inner)} of the bytes that {program} wrote are missing; {self.consequence}"
            return inner, Problem(FindingKind.TRUNCATED, detail)
        return inner[:size] if program else inner, None


def _parted(data: bytes) -> tuple[str, bytes, int]:
    """Whose header some bytes begin with, what is behind it, and of what size that is; all of them and 0
    where they begin with none."""
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


FORMAT = Vulkan
