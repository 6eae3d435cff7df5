"""Mesa's caches for tests, by its own rules from given bytes."""

import hashlib
import struct
import sys
import zlib
from pathlib import Path

PACKED = b"(\xb5/\xfd what Mesa packed"
DRIVER, GPU = "d9e6bb091aed2da05225108270c7712393c703ad", "llvmpipe"


def key(number: int) -> str:
    return hashlib.sha1(b"%d" % number).hexdigest()


def file_bytes(packed: bytes = PACKED, keys: int | None = None) -> bytes:
    """An entry as Mesa writes it; with ``keys`` one that names as many others."""
    head = b"\1" + DRIVER.encode() + b"\0" + GPU.encode() + b"\0" + struct.pack("<BQ", 8, 0)
    head += bytes(-len(head) % 4)
    head += struct.pack("<I", 0) if keys is None else struct.pack("<II", 1, keys) + bytes(20 * keys)
    return head + struct.pack("<II", zlib.crc32(packed) ^ 0xFFFFFFFF, 4 * len(packed)) + packed


def put(root: Path, number: int = 0, data: bytes | None = None) -> Path:
    """Lay an entry, and correct the size of all; its file."""
    name = key(number)
    path = root / name[:2] / name[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file_bytes() if data is None else data)
    total = sum(512 * one.stat().st_blocks for one in root.glob("??/*"))
    (root / "index").write_bytes(total.to_bytes(8, sys.byteorder) + bytes(56))
    for one in (path, root / "index"):
        one.chmod(0o600)
    return path


def database(root: Path, *packed: bytes) -> Path:
    """Lay a database with some rows; its file."""
    root.mkdir(parents=True, exist_ok=True)
    head = struct.pack("<8sIQ", b"MESA_DB\0", 1, 7)
    rows = b"".join(
        bytes.fromhex(key(number)) + struct.pack("<II", zlib.crc32(one) ^ 0xFFFFFFFF, len(one)) + one
        for number, one in enumerate(packed)
    )
    (root / "mesa_cache.idx").write_bytes(head)
    (root / "mesa_cache.db").write_bytes(head + rows)
    return root / "mesa_cache.db"
