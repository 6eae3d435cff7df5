"""Many entries of an open directory, read by one call of C; what that is in doubt about is left to ``scan``.

``native/scan.c`` reads and checks each as ``scan.by_head`` and ``scan.by_content`` do. Must not know what an
entry says.
"""

import ctypes
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from gpucache.folders import Folder
from gpucache.native.locate import find
from gpucache.store.description import Parts
from gpucache.store.format import HEADER
from gpucache.store.interface import FileIdentity

LEAST = 8
"""The number of entries of a directory from which on loading the library is worth it."""
_AT_ONCE = 64
_OF_HEADS, _ROOM = 32 << 10, 1 << 20
"""The most bytes of heads that a call reads, and of entries: a larger one is in doubt."""
_SEEN = struct.Struct("=5Q4I2Q2I32s8s")
"""``struct seen``: inode, size, mtime, allocated bytes, where its bytes begin, parts and size of its head,
size and SHA-256 of the payload, and its architecture if it is plainly sound PTX."""
_PARTS = slice(5, 11)
_HEADER = HEADER.size

Seen = tuple[str, FileIdentity, int, bytes, Parts, bytes, bytes, bytes]
"""Name, identity, allocated bytes, and the head, which is empty if the entry is in doubt, and its parts. Of
one that was read whole also the payload, its SHA-256, and instead of the payload the architecture of PTX
without a fault, padded with zeros: every sum is checked, and the key."""


@cache
def _look() -> Any:
    """The function in C; None where it is not built, or was before it had this one."""
    path, problem = find("library")
    try:
        look = None if problem else ctypes.CDLL(path).gpucache_look_at
    except (OSError, AttributeError):
        return None
    if look is not None:
        text, size, place = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p
        look.argtypes = (ctypes.c_int, text, size, ctypes.c_int, place, place, size)
        look.restype = size
    return look


class Together:
    """Reads the entries of one directory after the other: their heads, or ``whole``."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._room = bytearray(_ROOM if whole else _OF_HEADS)
        self._seen = bytearray(_AT_ONCE * _SEEN.size)

    def read(self, folder: Folder, names: Sequence[str]) -> Iterator[Seen] | None:
        """The entries of a directory by their names; None if only Python can read them."""
        look = _look() if len(names) >= LEAST and folder.fd is not None else None
        return None if look is None else self._read(look, folder.fd, names)

    def _read(self, look: Any, fd: int | None, names: Sequence[str]) -> Iterator[Seen]:
        room, seen = memoryview(self._room), memoryview(self._seen)
        at = [(ctypes.c_char * len(one)).from_buffer(one) for one in (seen, room)]
        while names:
            some = names[:_AT_ONCE]
            done = look(fd, "".join(some).encode(), len(some), self._whole, *at, len(room))
            rows = _SEEN.iter_unpack(seen[: done * _SEEN.size])
            for name, row in zip(some, rows, strict=False):
                inode, size, mtime_ns, allocated, begin, *_, head, payload, digest, ptx = row
                end, text = begin + size, room[begin + _HEADER : begin + _HEADER + head].tobytes()
                content = room[end - payload : end].tobytes() if self._whole and not ptx[0] else b""
                identity = FileIdentity(inode, size, mtime_ns)
                yield name, identity, allocated, text, row[_PARTS], content, digest, ptx
            names = names[done:]
