"""llama.cpp's OpenCL caches for tests, by its own rules from given bytes."""

import struct
from functools import partial
from pathlib import Path

from tests.caches.opened import PTX, Cases, Environs, lay, write


def file_bytes(binary: bytes = PTX, version: int = 1) -> bytes:
    return b"GGMLCLBC" + struct.pack("<II", version, 0) + binary


def put(root: Path, number: int = 0, data: bytes | None = None) -> Path:
    """Lay a program; its file."""
    return lay(root / f"{number + 0xABCD << 240:064x}.clbin", file_bytes() if data is None else data)


_DIR = "GGML_OPENCL_KERNEL_CACHE_DIR"
CASES: Cases = {
    "a program": put,
    "empty": partial(put, data=b""),
    "a header alone": partial(put, data=file_bytes(b"")),
    "another version": partial(put, data=file_bytes(version=2)),
    "another format": partial(put, data=b"garbage of more than a header's bytes"),
    "a cut binary": partial(put, data=file_bytes(PTX[:-3])),
    "a binary that only its driver knows": partial(put, data=file_bytes(b"of an Adreno")),
    "of a writer": write(f"{0xABCD << 240:064x}.clbin.tmp.99999999", file_bytes()[:40]),
    "alone: somebody's own file": partial(put, data=b"somebody's own file, called by a digest"),
}
_AT = "llama.cpp/cl-cache"
PLACES: Environs = {
    "among temporary files": ({"TMPDIR": "{tmp}"}, _AT),
    **{f"{_DIR}={word}": ({"TMPDIR": "{tmp}", _DIR: word}, _AT) for word in ("", "1", "default", "none")},
    "by the variable": ({"TMPDIR": "/nowhere", _DIR: "{tmp}"}, _AT),
}
