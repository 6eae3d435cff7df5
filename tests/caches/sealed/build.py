"""Files that show that they are whole for tests, by the rules of their owners."""

import struct
import zlib
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from xxhash import xxh3_128_digest

from gpucache.caches.sealed import _rustc_hash
from tests.caches.opened import lay

_NAMES = b"\3\0\0\0GPU" * 3


def _firefox(number: int, data: bytes) -> tuple[str, bytes]:
    rest = struct.pack("<Q", len(data)) + data + struct.pack("<IQ", 0x875F, number)
    return f"{number:016x}", b"\x32\xad\x54\xb1" + struct.pack("<Q", _rustc_hash(rest)) + rest


def _qt(number: int, data: bytes) -> tuple[str, bytes]:
    head = struct.pack("<4I", 0x5174, 3, 0x60C00, 8) + _NAMES + struct.pack("<II", 0x875F, len(data))
    return f"{number:040x}", head + bytes(-len(head) % 4) + data


def _hub(number: int, data: bytes) -> tuple[str, bytes]:
    return f"kernels--org--name/blobs/{sha256(data).hexdigest()}", data


def _modular(number: int, data: bytes) -> tuple[str, bytes]:
    return f".mojo_cache/mojo/transform/1.2/{number:043x}", data + xxh3_128_digest(data)[::-1]


MADE: Mapping[str, Callable[[int, bytes], tuple[str, bytes]]] = {
    "firefox": _firefox,
    "hub-kernels": _hub,
    "modular": _modular,
    "mpv": lambda number, data: (f"{number:064X}", b"mpv shader cache v1\n\x5f\x87\0\0" + data),
    "qt": _qt,
    "tunableop": lambda number, data: (
        f"tunableop_results{number}.csv",
        b"Validator,PT_VERSION,2.15\nGemm,nt_25088_4096_64,Default,%d\n" % len(data),
    ),
}  # fmt: skip
"""By system the name and the content of a file, from a number and what its driver or compiler made."""


def _binary(number: int) -> bytes:
    code = b"binary %d of a driver" % number * 9
    return struct.pack("<I20sII", 0, b"", len(code), zlib.crc32(code) ^ 0xFFFFFFFF) + code


def made(name: str, number: int = 0) -> bytes:
    return MADE[name](number, _binary(number))[1]


def put(name: str, root: Path, number: int = 0) -> Path:
    """Lay a file; it."""
    place, data = MADE[name](number, _binary(number))
    if name == "firefox":
        lay(root / "startup_shaders", b"")
    return lay(root / place, data)
