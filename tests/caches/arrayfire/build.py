"""ArrayFire's kernel caches for tests, by its own rules from given bytes."""

import struct
from functools import partial
from pathlib import Path

from tests.caches.opened import PTX, Cases, lay, write

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
    return lay(
        root / f"KER{number + 12345678901234567890}_{device}_AF_39.bin",
        file_bytes() if data is None else data,
    )


_SOURCE = b"kernel void scale"
_NAMED = file_bytes(PTX, transpose="_Z9transposev", other="_Z5otherv")
CASES: Cases = {
    "of OpenCL": put,
    "of CUDA": partial(put, data=_NAMED, device="CU_90"),
    "empty": partial(put, data=b""),
    "cut in its hash": partial(put, data=file_bytes()[:12]),
    "cut": partial(put, data=file_bytes()[:-3]),
    "cut in its names": partial(put, data=_NAMED[:20]),
    "changed": partial(put, data=file_bytes()[:-3] + b"xyz"),
    "a hash that ArrayFire's own function printed": partial(
        put, data=struct.pack("=QQ", 232362690225322628, len(_SOURCE)) + _SOURCE
    ),
    "a binary that only its driver knows": partial(put, data=file_bytes(b"of a vendor that nobody knows")),
    "a name beyond every file": partial(put, data=struct.pack("=QQ", 1, 2**64 - 1) + PTX),
    "of a writer": write("11400714819323198485", file_bytes()[:30]),
    "a number of one's own": write("11400714819323198485", b"the year 2026, in my own words and dear to me"),
}
