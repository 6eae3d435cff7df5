"""Kernel caches of CuPy for tests, by its own rules from given bytes."""

import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path

from tests.caches.opened import PTX


def key(number: int) -> str:
    """The name of an entry, by number."""
    return hashlib.sha1(b"%d" % number).hexdigest()


def file_bytes(payload: bytes = PTX, names: Sequence[str] = ()) -> bytes:
    """A file as CuPy writes it, with the mangled names of what was asked for by its C++ name."""
    if names:
        encoded = [name.encode() for name in names]
        told = b"".join(struct.pack("<I", len(name)) + name for name in encoded)
        payload = b"\x93CUPYNE\0" + struct.pack("<I", len(names)) + told + payload
    return hashlib.sha1(payload).hexdigest().encode() + payload


def put(root: Path, number: int = 0, data: bytes | None = None, ending: str = "cubin") -> Path:
    """Lay a file where CuPy looks for an entry."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{key(number)}.{ending}"
    path.write_bytes(file_bytes() if data is None else data)
    path.chmod(0o600)
    return path
