"""DXVK's shader caches for tests, by its own rules from given bytes."""

import struct
from functools import partial
from pathlib import Path

from tests.caches.opened import Cases, lay

SHADER, HASH = b"translated for Vulkan", 0x871F58C0FA16ACD0
"""The stand-in for a shader, and what DXVK's own function makes of it."""
_ASKED = b"\x04\x00vs_1" + bytes(24)
"""The stand-in for a row's beginning, whose form is that of DXVK's version."""


def row(at: int = 0, size: int = len(SHADER), more: int = 0, digest: int = HASH) -> bytes:
    return _ASKED + struct.pack("<QIIQ", at, size, more, digest)


def lut(*rows: bytes, version: bytes = b"v3.0") -> bytes:
    return b"DXVK" + struct.pack("<H", len(version)) + version + b"".join(rows)


def put(root: Path, number: int = 0, content: bytes | None = None, shaders: bytes | None = SHADER) -> Path:
    """Lay the files of a program; its list."""
    path = lay(root / f"{number + 0xABCD << 48:016x}.dxvk.lut", lut(row()) if content is None else content)
    if shaders is not None:
        lay(path.with_suffix(".bin"), shaders)
    return path


CASES: Cases = {
    "two shaders": partial(
        put, content=lut(row(), row(at=len(SHADER), more=5)), shaders=2 * SHADER + bytes(5)
    ),
    "none used": partial(put, content=lut(), shaders=SHADER + b"not listed yet"),
    "one not listed yet": partial(put, shaders=SHADER + b"not listed yet"),
    "empty": partial(put, content=b""),
    "a version beyond its end": partial(put, content=b"DXVK\x40\0v3"),
    "a row cut": partial(put, content=lut(row())[:-3]),
    "a short row": partial(put, content=lut(b"short")),
    "shaders cut": partial(put, shaders=SHADER[:-3]),
    "shaders changed": partial(put, shaders=SHADER[:-3] + b"xyz"),
    "no shaders": partial(put, shaders=None),
}
