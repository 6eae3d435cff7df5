"""ArrayFire's kernels: a file for each program and device, of its OpenCL and its CUDA backend.

Source: ArrayFire 3.8 to 3.9, ``src/backend/{opencl,cuda}/compile_module.cpp``, ``common/util.cpp`` and
``deterministicHash.cpp``; no file written by it was available. ``KER`` and the number of a hash over sources
and options, ``_CL_`` with the OpenCL vendor's number and the device's name or ``_CU_`` with the compute
capability, and ``_AF_`` with the version. A file is u64 FNV-1a of the binary, u64 size of it and the binary;
CUDA kernels that were not generated begin with u64 number of names, each a kernel and its mangled name after
their u64 sizes. Files are written under a temporary name and renamed; an invalid file is removed and compiled
again, and nothing else is ever removed. If the variable's directory is not writable, ``~/.arrayfire`` is
used, and if that is not, ``/tmp/arrayfire``.
"""

import re
import struct
from functools import reduce
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.files_format import BinaryFormat
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.caches.systems import ArrayFirePlaces
from gpucache.payload import PayloadInfo, PayloadKind
from gpucache.units import printable

_NAME = r"KER(\d{1,20})_(CL|CU)_(.+)_AF_(\d{1,4})\.bin"
_AGAIN = "ArrayFire removes it and compiles it again"
_WORDS = struct.Struct("=Q")
_MOST_NAMES, _LARGEST_BYTES = 65_536, 1 << 30
_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, (1 << 64) - 1
"""The constants of 32-bit FNV-1a, which ArrayFire computes with 64 bits."""


class ArrayFire(ArrayFirePlaces, BinaryFormat):
    """The kernels that ArrayFire compiled for OpenCL and CUDA devices; its other backends store nothing."""

    layout = Layout(
        [_NAME],
        left=[Left(r"\d{1,20}")],
        own=["test"],
        key=lambda groups: f"{int(groups[0]):016x}" + hashed(["_".join(groups[1:])])[:24],
    )
    opaque = (
        "its entries do not record the inputs of their keys; AF_TRACE=jit logs each kernel that is "
        "compiled or loaded, with its number"
    )
    key_digits = 40
    checksums = True
    kinds = frozenset(PayloadKind) - {PayloadKind.UNKNOWN}
    consequence = _AGAIN
    shows = "a file that begins as ArrayFire's do"
    checked_bytes = largest_bytes = 32 << 20

    def is_left(self, start: bytes) -> bool:
        parts = _parts(start)
        return parts is not None and parts.size <= _LARGEST_BYTES

    def look(self, item: Files) -> CacheEntry:
        name, status = next(iter(item.seen.items()))
        _, backend, device, version = re.fullmatch(_NAME, name, re.DOTALL).groups()  # type: ignore[union-attr]
        found, parts = super().look(item), _parts(item.part(name, 0, self.scanned_bytes))
        return found._replace(
            program=parts.kernel if parts and parts.kernel else found.program,
            target=f"cuda:sm_{device}" if backend == "CU" else printable(device),
            toolchain=(("ArrayFire", version),),
            shows=parts is not None and parts.start + parts.size == status.st_size,
        )

    def unwrap(self, data: bytes, *, whole: bool) -> tuple[bytes, Problem | None]:
        parts = _parts(data)
        binary = b"" if parts is None else data[parts.start : parts.start + parts.size]
        if not whole:
            return binary, None
        if parts is None or len(binary) < parts.size:
            return binary, Problem(FindingKind.TRUNCATED, f"it ends before its content does; {_AGAIN}")
        if _hash(binary) != parts.hash:
            return binary, Problem(FindingKind.CORRUPT, f"its hash does not match its content; {_AGAIN}")
        return binary, None

    def _wrong(self, binary: bytes, info: PayloadInfo, *, whole: bool) -> Problem | None:
        """No problem if the hash is right, as some drivers use formats that only they know."""
        return None


class _Parts(NamedTuple):
    """Parts of a file: the hash of its binary, the binary's offset and size, and the first kernel's name."""

    hash: int
    start: int
    size: int
    kernel: str


def _parts(data: bytes) -> _Parts | None:
    """The parts at the beginning of a file; None if it ends before the binary begins."""
    at, kernel = 0, ""
    try:
        (count,) = _WORDS.unpack_from(data, at)
        if count <= _MOST_NAMES:  # a hash is beyond that
            at = _WORDS.size
            for _ in range(2 * count):
                (length,) = _WORDS.unpack_from(data, at)
                at += _WORDS.size
                kernel = kernel or printable(data[at : at + length])
                at += length
        ((digest,), (size,)) = _WORDS.unpack_from(data, at), _WORDS.unpack_from(data, at + _WORDS.size)
    except (struct.error, OverflowError):  # the second of a length beyond every file's
        return None
    return _Parts(digest, at + 2 * _WORDS.size, size, kernel)


def _hash(data: bytes) -> int:
    return reduce(lambda digest, byte: (digest ^ byte) * _PRIME & _MASK, data, _OFFSET)
