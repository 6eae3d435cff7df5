"""Kernel caches of CuPy for tests, by its own rules from given bytes."""

import hashlib
import struct
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.caches.opened import PTX, Cases, Environs, lay, together, write


def key(number: int) -> str:
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
    return lay(root / f"{key(number)}.{ending}", file_bytes() if data is None else data)


_WITH_NAMES = file_bytes(names=("_Z5scaleIfEvPT_", "_Z5scaleIdEvPT_"))

_source = partial(put, data=b"__global__ void scale() {}", ending="cubin.cu")
CASES: Cases = {
    "a binary": put,
    "mangled names": partial(put, data=_WITH_NAMES),
    "empty": partial(put, data=b""),
    "cut": partial(put, data=file_bytes()[:-1]),
    "cut in its SHA-1": partial(put, data=file_bytes()[:30]),
    "cut in its names": partial(put, data=_WITH_NAMES[:70]),
    "names beyond its end": partial(put, data=file_bytes(b"\x93CUPYNE\0\1\0\0\0\xff\0\0\0")),
    "another format": partial(put, data=file_bytes(b"garbage")),
    "a cut binary": partial(put, data=file_bytes(PTX[:-3])),
    "a source beside its binary": together(put, _source),
    "a source alone": _source,
    "what else CuPy keeps": together(
        write("jitify.pickle", b"x"),
        write("jitify_6edd_1_12.json", b"x"),
        write("cupy_callback_0ab.so", b"x"),
    ),
    "of a writer": write("tmpab_12xyz", file_bytes()[:60]),
    "of a writer that wrote nothing": write("tmpab_12xyz", b""),
    "notes called as a writer's": write("tmpab_12xyz", b"my notes"),
    "digits called as a writer's": write("tmpab_12xyz", b"1234567890"),
    "a list called as a writer's": write("tmpab_12xyz", b"0" * 40 + b"  thesis.pdf\n"),
}
PLACES: Environs = {
    "by the variable": ({"CUPY_CACHE_DIR": "{tmp}/scratch", "HOME": "{tmp}/home"},),
    "by the home": ({"HOME": "{tmp}/home", "XDG_CACHE_HOME": "/other"},),
    "off and broken": ({"HOME": "{tmp}/home", "CUPY_CACHE_IN_MEMORY": "1", "CUPY_CACHE_DIR": ""},),
}
