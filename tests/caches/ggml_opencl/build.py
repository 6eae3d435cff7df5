"""llama.cpp's OpenCL caches for tests, by its own rules from given bytes."""

import struct
from pathlib import Path

from tests.caches.opened import PTX


def file_bytes(binary: bytes = PTX, version: int = 1) -> bytes:
    """A file with what a driver gave."""
    return b"GGMLCLBC" + struct.pack("<II", version, 0) + binary


def put(root: Path, number: int = 0, data: bytes | None = None) -> Path:
    """Lay a program; its file."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{number + 0xABCD << 240:064x}.clbin"
    path.write_bytes(file_bytes() if data is None else data)
    path.chmod(0o600)
    return path
