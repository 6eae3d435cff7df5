"""The 48 bytes that a Futhark cache file begins with. Pure.

Source: Futhark, rts/c/cache.h (``cache_store``, ``cache_restore``).

====== ===== =================================================================
offset bytes content
====== ===== =================================================================
0      8     magic ``FUTHARK\\0``
8      8     int64: size of the whole file, 48 + payload
16     32    key, eight uint32
48     n     payload, to the end of the file
====== ===== =================================================================

Numbers are in the order of the host, which is little-endian wherever Futhark runs on a GPU. There is
no checksum. Must not know what a payload is.
"""

import struct
from dataclasses import dataclass

from gpucache.caches.futhark.keys import KEY_BYTES
from gpucache.errors import FormatError
from gpucache.outcomes import FindingKind

MAGIC = b"FUTHARK\0"
HEADER_BYTES = 48
RECOMPILED = "the program logs 'Failed to restore cache (errno: Success)', compiles again and writes over it"
_LAYOUT = struct.Struct(f"<8sq{KEY_BYTES}s")


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of itself."""

    declared_bytes: int
    """The size of the whole file; any number at all in a damaged one."""
    key: bytes


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a header, and what comes of it."""

    kind: FindingKind
    detail: str


def encode(key: bytes, payload: bytes) -> bytes:
    """A whole cache file; raises FormatError for a key that has not 32 bytes."""
    if len(key) != KEY_BYTES:
        raise FormatError(f"a Futhark key has {KEY_BYTES} bytes and this one has {len(key)}")
    return _LAYOUT.pack(MAGIC, HEADER_BYTES + len(payload), key) + payload


def read_header(start: bytes) -> Header | None:
    """The header in the first bytes of a file; None where they are too few or begin otherwise."""
    if len(start) < HEADER_BYTES or not is_futhark(start):
        return None
    _magic, declared, key = _LAYOUT.unpack_from(start)
    return Header(declared, key)


def is_futhark(start: bytes) -> bool:
    """Whether the first bytes of a file are those of a Futhark cache file."""
    return start.startswith(MAGIC)


def damage(start: bytes, size_bytes: int) -> Damage | None:
    """What is wrong with a file of this size that begins with these (at least 48, if it has them) bytes."""
    header = read_header(start)
    if header is not None:
        return _wrong_size(header.declared_bytes, size_bytes)
    if not size_bytes:
        return Damage(FindingKind.TRUNCATED, f"it is empty; {RECOMPILED}")
    if is_futhark(start) or MAGIC.startswith(start):
        what = f"it ends inside its header, after {size_bytes} of {HEADER_BYTES} bytes"
        return Damage(FindingKind.TRUNCATED, f"{what}; {RECOMPILED}")
    what = "it does not begin with the bytes of a Futhark cache file"
    return Damage(FindingKind.CORRUPT, f"{what}; a program that is given it writes over it")


def _wrong_size(declared: int, size_bytes: int) -> Damage | None:
    if declared == size_bytes:
        return None
    if declared > size_bytes:
        what = f"it has {size_bytes} of the {declared} bytes it says"
        return Damage(FindingKind.TRUNCATED, f"{what}; {RECOMPILED}")
    what = f"it says that it has {declared} bytes and has {size_bytes}, so two writers may have met"
    return Damage(FindingKind.CORRUPT, f"{what}; {RECOMPILED}")
