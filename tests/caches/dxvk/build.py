"""DXVK's shader caches for tests, by its own rules from given bytes."""

import struct
from pathlib import Path

SHADER, HASH = b"translated for Vulkan", 0x871F58C0FA16ACD0
"""What stands for a shader, and what DXVK's own function makes of it."""
_ASKED = b"\x04\x00vs_1" + bytes(24)
"""What stands for a row's beginning, whose form is that of DXVK's version."""


def row(at: int = 0, size: int = len(SHADER), more: int = 0, digest: int = HASH) -> bytes:
    """A row of the list."""
    return _ASKED + struct.pack("<QIIQ", at, size, more, digest)


def lut(*rows: bytes, version: bytes = b"v3.0") -> bytes:
    """A list."""
    return b"DXVK" + struct.pack("<H", len(version)) + version + b"".join(rows)


def put(root: Path, number: int = 0, content: bytes | None = None, shaders: bytes | None = SHADER) -> Path:
    """Lay the files of a program; its list."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{number + 0xABCD << 48:016x}.dxvk.lut"
    path.write_bytes(lut(row()) if content is None else content)
    path.chmod(0o600)
    if shaders is not None:
        path.with_suffix(".bin").write_bytes(shaders)
        path.with_suffix(".bin").chmod(0o600)
    return path
