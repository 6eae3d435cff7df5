"""The device images of an entry: the names of the kernels in them.

The images lie one behind the other with nothing between them, sorted by the name of their first
kernel. Source of what is read of SPIR-V: its specification, sections 2.3 and 2.4: the entry points of
a module come before its functions. Must not know files.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from gpucache.caches.sycl.mangled import readable
from gpucache.payload import describe

READ_BYTES = 1 << 20
"""How much of the images is searched for names."""
_MAGIC = b"\x03\x02\x23\x07"
_HEADER_BYTES = 20
_ENTRY_POINT = 15
_FUNCTION = 54
_PREAMBLE_LIMIT = 65_536
_NAME_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Kernels:
    """Names of kernels as the images have them, mangled, in the order of the images."""

    names: tuple[str, ...]
    format: str
    """What the images are, such as ``spir-v``."""

    @property
    def shown(self) -> str:
        """The first name, readable, and how many more there are; the format where the images tell no name."""
        if not self.names:
            return f"{self.format} image" if self.format else ""
        first = readable(self.names[0])
        return f"{first} and {len(self.names) - 1} more" if self.names[1:] else first


def kernels(images: bytes) -> Kernels:
    """The kernels of some images, or of the first bytes of them. Raises nothing."""
    if not images.startswith(_MAGIC):
        return Kernels((), describe(images[:4096]).kind.value if images else "")
    found = (name for start in _modules(images) for name in _entry_points(images, start))
    return Kernels(tuple(dict.fromkeys(found)), "spir-v")


def _modules(images: bytes) -> Iterator[int]:
    """Where modules begin: at their magic number, aligned, before a version and the zero of the schema."""
    start = 0
    while start >= 0:
        header = images[start : start + _HEADER_BYTES]
        aligned = start % 4 == 0 and len(header) == _HEADER_BYTES
        if aligned and header[4] == 0 and header[6:8] == b"\x01\0" and header[16:] == bytes(4):
            yield start
        start = images.find(_MAGIC, start + 4)


def _entry_points(images: bytes, start: int) -> Iterator[str]:
    start += _HEADER_BYTES
    for _ in range(_PREAMBLE_LIMIT):
        if start + 4 > len(images):
            return
        (word,) = struct.unpack_from("<I", images, start)
        end, operation = start + 4 * (word >> 16), word & 0xFFFF
        if end == start or operation == _FUNCTION:
            return
        if operation == _ENTRY_POINT:
            yield _text(images[start + 12 : min(end, start + 12 + _NAME_BYTES)])
        start = end


def _text(raw: bytes) -> str:
    text = raw.partition(b"\0")[0].decode("utf-8", "replace")
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
