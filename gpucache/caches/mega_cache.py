"""The mega-caches of ``torch.compiler.save_cache_artifacts``, which a program stores as it likes.

Source: PyTorch 2.13 (PyPI), ``torch/compiler/_cache.py`` and ``torch/utils/_appending_byte_serializer.py``;
checked against one that it wrote for a CPU. A CRC-32 of the rest, version 1, and for each kind of
artifact its name, the number of artifacts, and the key and content of each. Numbers have 8 bytes and are
big-endian; names and keys are in Base64, with their length before them. PyTorch unpickles graphs; those of
other kinds, as ``pgo`` and ``autotune``, are not looked into.
"""

import zlib
from base64 import b64decode
from collections import Counter
from pathlib import Path

from gpucache.caches import pickles
from gpucache.caches.inductor import NAMES
from gpucache.errors import FormatError
from gpucache.payload.reading import OnDisk
from gpucache.units import format_count, printable

_VERSION = (1).to_bytes(8, "big")
_LARGEST_BYTES = 1 << 30
_GRAPHS = frozenset({"inductor", "aot_autograd"})


def begins(start: bytes) -> bool:
    """Whether bytes begin as a mega-cache with a checksum."""
    return start[4:12] == _VERSION


def is_at(path: Path) -> bool:
    """Whether a file is one; raises OSError."""
    with path.open("rb") as stream:
        return begins(stream.read(12))


def described(disk: OnDisk) -> str:
    """The artifacts in one, as a clause; raises FormatError if PyTorch refuses or should not read it."""
    if disk.size > _LARGEST_BYTES:
        return "it is too large to be checked"
    data = disk.cut(0, disk.size)
    if zlib.crc32(data[4:]).to_bytes(4, "big") != data[:4]:
        raise FormatError("its CRC-32 is not that of its content; PyTorch warns and compiles again")
    at, found = 12, Counter[str]()

    def number() -> int:
        nonlocal at
        at += 8
        if at > len(data):
            raise FormatError(f"it is cut at byte {len(data)}")
        return int.from_bytes(data[at - 8 : at], "big")

    def part() -> bytes:
        nonlocal at
        size = number()
        if size > len(data) - at:
            raise FormatError(f"a part of {size} bytes at byte {at} is cut")
        at += size
        return data[at - size : at]

    while at < len(data):
        kind = _text(part())
        for _ in range(number()):
            part()
            content = part()
            found[kind] += 1
            if kind in _GRAPHS and (wrong := pickles.problem(content, NAMES)):
                raise FormatError(f"artifact {found[kind]} of {kind} {wrong.detail}; PyTorch runs it")
    return "it has " + ", ".join(
        f"{format_count(count, 'artifact')} of {kind}" for kind, count in found.items()
    )


def _text(data: bytes) -> str:
    try:
        return printable(b64decode(data, validate=True).decode())
    except ValueError:
        raise FormatError("a name in it is no Base64") from None
