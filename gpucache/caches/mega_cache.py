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
from collections.abc import Iterator
from pathlib import Path

from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches import pickles
from gpucache.caches.inductor import NAMES
from gpucache.errors import FormatError
from gpucache.payload.reading import OnDisk
from gpucache.units import format_count, printable

_VERSION = (1).to_bytes(8, "big")
LARGEST_BYTES = 1 << 30
_GRAPHS = frozenset({"inductor", "aot_autograd"})


def begins(start: bytes) -> bool:
    return start[4:12] == _VERSION


def is_at(path: Path) -> bool:
    """Whether a file is a mega-cache; raises OSError."""
    with path.open("rb") as stream:
        return begins(stream.read(12))


def described(disk: OnDisk) -> str:
    """The artifacts in a mega-cache, as a clause; raises FormatError if PyTorch would or should refuse it."""
    if disk.size > LARGEST_BYTES:
        return "it is too large to be checked"
    found, problem = artifacts(disk.cut(0, disk.size))
    if problem:
        raise FormatError(problem.detail)
    return "it has " + ", ".join(
        f"{format_count(count, 'artifact')} of {kind}" for kind, count in found.items()
    )


def artifacts(data: bytes) -> tuple[Counter[str], Problem | None]:
    """How many artifacts of each kind there are before the first problem."""
    found = Counter[str]()
    if zlib.crc32(data[4:]).to_bytes(4, "big") != data[:4]:
        detail = "its CRC-32 is not that of its content; PyTorch warns and compiles again"
        return found, Problem(FindingKind.CORRUPT, detail)
    try:
        for kind, content in _parts(data):
            found[kind] += 1
            if kind in _GRAPHS and (wrong := pickles.problem(content, NAMES)):
                detail = f"artifact {found[kind]} of {kind} {wrong.detail}; PyTorch runs it"
                return found, wrong._replace(detail=detail)
    except FormatError as error:
        return found, Problem(FindingKind.TRUNCATED, str(error))
    return found, None


def _parts(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The kind and the content of each artifact; raises FormatError."""
    at = 12

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
            yield kind, part()


def _text(data: bytes) -> str:
    try:
        return printable(b64decode(data, validate=True).decode())
    except ValueError:
        raise FormatError("a name in it is no Base64") from None
