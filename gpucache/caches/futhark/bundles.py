"""Clang's offload bundles, which HIP's compiler may return. Pure.

Source: Clang, docs/ClangOffloadBundler.rst. Little-endian: the magic text of 24 bytes, u64 number of
code objects, and for each u64 offset, u64 size, u64 length of its identifier, and the identifier,
such as ``hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-``.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
_OBJECT_LIMIT = 256
_IDENTIFIER_LIMIT = 256
_GFX = re.compile(r"gfx[0-9a-f]{3,8}")


@dataclass(frozen=True, slots=True)
class Bundle:
    """The architectures of a bundle, and what is broken about it."""

    architectures: tuple[str, ...] = ()
    problem: str | None = None


def is_bundle(data: bytes) -> bool:
    """Whether some bytes are a bundle, compressed or not."""
    return data.startswith((MAGIC, COMPRESSED_MAGIC))


def read_bundle(data: bytes) -> Bundle:
    """The architectures that a bundle names; of a compressed one nothing is read. Raises nothing."""
    if data.startswith(COMPRESSED_MAGIC):
        return Bundle()
    found: list[str] = []
    try:
        for identifier, end in _objects(data):
            found.extend(_GFX.findall(identifier))
            if end > len(data):
                return Bundle(
                    tuple(found), f"the code object {identifier} ends at byte {end}, beyond its end"
                )
    except struct.error:
        return Bundle(tuple(found), "it ends inside its list of code objects")
    return Bundle(tuple(dict.fromkeys(found)))


def _objects(data: bytes) -> Iterator[tuple[str, int]]:
    """Identifier and end of each code object; raises struct.error where the list is cut."""
    (count,) = struct.unpack_from("<Q", data, len(MAGIC))
    place = len(MAGIC) + 8
    for _ in range(min(count, _OBJECT_LIMIT)):
        offset, size, length = struct.unpack_from("<QQQ", data, place)
        if place + 24 + length > len(data) or length > _IDENTIFIER_LIMIT:
            raise struct.error
        place += 24 + length
        text = data[place - length : place].decode("ascii", "replace")
        yield "".join(char if char.isprintable() else "?" for char in text), offset + size
