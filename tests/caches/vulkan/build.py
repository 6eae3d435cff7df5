"""Vulkan pipeline caches for tests: what Mesa's lavapipe gives, which is a header alone, and longer ones."""

import struct
from pathlib import Path

DATA = struct.pack("<4I16s", 32, 1, 0x10005, 0, b"val-%s")
"""All that lavapipe of Mesa 22.3 gives, byte for byte."""


def data(device: int = 0x2330, uuid: bytes = bytes(range(16)), more: bytes = b"") -> bytes:
    """A pipeline cache of NVIDIA's."""
    return struct.pack("<4I16s", 32, 1, 0x10DE, device, uuid) + more


def put(root: Path, number: int = 0, content: bytes = DATA) -> Path:
    """Lay a pipeline cache as GTK does, for a version of a driver; its file."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"76616c2d-2573-0000-0000-000000000000.{number}"
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def blender(inner: bytes, size: int | None = None) -> bytes:
    """What Blender writes of a pipeline cache."""
    length = len(inner) if size is None else size
    return struct.pack("<3I8s4I16s", 0xBC00, 404, 3, b"abcdef1", length, 0x10DE, 0x2330, 7, bytes(16)) + inner


def godot(inner: bytes, size: int | None = None) -> bytes:
    """What Godot writes of a pipeline cache; it checks its hash itself."""
    length = len(inner) if size is None else size
    return struct.pack("<2IQ3I16sB3x", 869, length, 4711, 0x10DE, 0x2330, 7, bytes(16), 8) + inner
