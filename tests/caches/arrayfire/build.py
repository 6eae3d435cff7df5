"""ArrayFire's kernel caches for tests, by its own rules from given bytes."""

import struct
from pathlib import Path

from tests.caches.opened import PTX

DEVICE = "4098_GFX90A:SRAMECC+:XNACK-"


def fnv(data: bytes) -> int:
    """The hash of a binary, step by step as ArrayFire takes it."""
    digest = 0x811C9DC5
    for byte in data:
        digest = (digest ^ byte) * 0x01000193 % 2**64
    return digest


def file_bytes(binary: bytes = PTX, **names: str) -> bytes:
    """A file; with names one of CUDA's kernels that were not generated."""
    told = [struct.pack("=Q", len(names))] if names else []
    for part in (part.encode() for pair in names.items() for part in pair):
        told.append(struct.pack("=Q", len(part)) + part)
    return b"".join(told) + struct.pack("=QQ", fnv(binary), len(binary)) + binary


def put(root: Path, number: int = 0, data: bytes | None = None, device: str = f"CL_{DEVICE}") -> Path:
    """Lay a kernel of one number; its file."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"KER{number + 12345678901234567890}_{device}_AF_39.bin"
    path.write_bytes(file_bytes() if data is None else data)
    path.chmod(0o600)
    return path
