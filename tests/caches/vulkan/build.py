"""Vulkan pipeline caches for tests: what Mesa's lavapipe gives, which is a header alone, and longer ones."""

import struct
from functools import partial
from pathlib import Path

from tests.caches.opened import Cases, Environs, Lay, lay, together, write

DATA = struct.pack("<4I16s", 32, 1, 0x10005, 0, b"val-%s")
"""All that lavapipe of Mesa 22.3 gives, byte for byte."""


def data(device: int = 0x2330, uuid: bytes = bytes(range(16)), more: bytes = b"") -> bytes:
    return struct.pack("<4I16s", 32, 1, 0x10DE, device, uuid) + more


def put(root: Path, number: int = 0, content: bytes = DATA) -> Path:
    """Lay a pipeline cache as GTK does, for a version of a driver; its file."""
    return lay(root / f"76616c2d-2573-0000-0000-000000000000.{number}", content)


def blender(inner: bytes, size: int | None = None) -> bytes:
    length = len(inner) if size is None else size
    return struct.pack("<3I8s4I16s", 0xBC00, 404, 3, b"abcdef1", length, 0x10DE, 0x2330, 7, bytes(16)) + inner


def godot(inner: bytes, size: int | None = None) -> bytes:
    """A pipeline cache as Godot writes it; Godot checks its own hash."""
    length = len(inner) if size is None else size
    return struct.pack("<2IQ3I16sB3x", 869, length, 4711, 0x10DE, 0x2330, 7, bytes(16), 8) + inner


_LONG = data(more=b"pipelines")


def _linked(root: Path) -> None:
    (root / "folder").mkdir()
    (root / "link").symlink_to(root / "static.bin")


_OWN: Lay = together(write("my.pipelines", data()), write("static.bin", b"mine, and dear to me"), _linked)
CASES: Cases = {
    "of GTK": partial(put, content=_LONG),
    "a folder of one's own": _OWN,
    "alone: a folder of one's own": _OWN,
    "of Blender": write("pipelines.cache", blender(_LONG) + b"older bytes"),
    "of Blender, cut": write("pipelines.cache", blender(data(), size=99)),
    "of Godot": write("pipelines.cache", godot(_LONG) + b"older bytes"),
    "of Godot, cut": write("pipelines.cache", godot(data(), size=99)),
    "empty": partial(put, content=b""),
    "cut in its header": partial(put, content=DATA[:20]),
    "another format": partial(put, content=b"no pipeline cache"),
    "of a writer": write(".goutputstream-AB12CD", DATA[:16]),
}
PLACES: Environs = {
    "of GTK": ({"XDG_CACHE_HOME": "{tmp}"},),
    "of Blender beside it": ({"XDG_CACHE_HOME": "{tmp}"}, "blender/vk-pipeline-cache"),
}
