"""Dr.Jit's kernels for tests, by its own rules."""

import struct
from functools import partial
from pathlib import Path

from tests.caches.opened import Cases, Environs, lay

PACKED = b"\x82 packed by LZ4, which is not unpacked here"


def head(size: int = len(PACKED), version: int = 6) -> bytes:
    """The beginning of a file: its version, sizes, and a checksum."""
    return struct.pack("<B4I16s", version, size, 8087, 576, 8, b"\x5a" * 16)


def put(root: Path, number: int = 0, data: bytes = head() + PACKED) -> Path:
    """Lay a kernel for a CPU; its file."""
    return lay(root / f"{number:032x}.llvm.v6.bin", data)


CASES: Cases = {
    "a kernel": put,
    "empty": partial(put, data=b""),
    "cut": partial(put, data=(head() + PACKED)[:-3]),
}
PLACES: Environs = {
    "below the home": ({"HOME": "/elsewhere"},),
    "moved": ({"DRJIT_CACHE_DIR": "/srv/drjit"},),
}
