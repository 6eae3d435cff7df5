"""CuPy's kernel cache: a file for each module that CuPy compiled, with its source next to it on request.

Source: CuPy 14, ``cupy/cuda/_compiler_cache.py`` and ``compiler.py``. A file ``<40 hex>.cubin`` (``.ltoir``,
on AMD ``.hsaco``) is the SHA-1 of the rest as 40 hex digits, then the binary; if C++ names were requested,
the mangled names precede it: ``\\x93CUPYNE\\0``, their number as u32, and each after its length as u32,
little-endian. It is written to a temporary file and renamed; there is no lock, limit or eviction. The name is
a SHA-1 of source, options, architecture and NVRTC's version, none of which is stored; the directories of
CuPy's headers are among the options, but the content of included headers is not part of it. NVRTC's cubins
lack their last byte, a zero, which CuPy takes for the end of a text (seen in 14.2). A directory that the
variable names also contains Jitify's headers and the modules of FFT callbacks (``cupy/cuda/jitify.pyx``,
``cupy/fft/_callback.pyx``).
"""

import hashlib
import struct

from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches.binary_format import BinaryFormat
from gpucache.caches.files import Files
from gpucache.caches.layout import Layout, Left
from gpucache.caches.portable import Fact, Moving
from gpucache.caches.systems import CupyPlaces
from gpucache.payload import PayloadKind, describe

_DIGITS = 40
_MAGIC = b"\x93CUPYNE\0"
_MISSES = "CuPy takes it for a miss, compiles it again and replaces it"


class Cupy(CupyPlaces, BinaryFormat):
    """The modules of ``RawModule``, ``ElementwiseKernel`` and CuPy's own functions."""

    layout = Layout(
        [r"([0-9a-f]{40})\.(?:cubin|ltoir|hsaco)", r"([0-9a-f]{40})\.(?:cubin|ltoir|hsaco)\.cu"],
        left=[Left("tmp[a-z0-9_]{8}")],  # as tempfile names files
        own=[r"jitify.*\.(?:json|pickle)", "cupy_callback_.+"],
    )
    opaque = (
        "its entries do not record their inputs, so only key=HEX can be queried; with "
        "CUPY_CACHE_SAVE_CUDA_SOURCE=1 CuPy keeps each source next to its binary, so that two can be compared"
    )
    served = "CuPy would serve it, also if the headers that its source includes have changed"
    checksums = True
    kinds = frozenset(
        {
            PayloadKind.CUBIN, PayloadKind.PTX, PayloadKind.LTOIR, PayloadKind.FATBIN, PayloadKind.AMDGPU,
            PayloadKind.OFFLOAD_BUNDLE,
        }
    )  # fmt: skip
    consequence = "CuPy serves it, so the program fails when it loads it, at every start"
    moving = Moving(
        note="Kernels with CuPy's headers, which are most, are hit by an install at the same path alone. "
        "Headers of one's own are not in the keys: share such kernels only where these headers are alike.",
        untold=(Fact.PATH, "NVRTC"),
    )

    def unwrap(self, data: bytes, *, whole: bool) -> tuple[bytes, Problem | None]:
        if not data:
            return b"", Problem(FindingKind.TRUNCATED, f"it is empty; {_MISSES}") if whole else None
        start, rest = _DIGITS, memoryview(data)[_DIGITS:]
        if whole and hashlib.sha1(rest, usedforsecurity=False).hexdigest().encode() != data[:_DIGITS]:
            return bytes(rest), Problem(
                FindingKind.CORRUPT, f"its SHA-1 does not match its content; {_MISSES}"
            )
        if data.startswith(_MAGIC, start):
            count, start = start + len(_MAGIC), start + len(_MAGIC) + 4
            for _ in range(int.from_bytes(data[count:start], "little")):
                if start + 4 > len(data):
                    break
                start += 4 + struct.unpack_from("<I", data, start)[0]
            if start > len(data) and whole:
                return b"", Problem(FindingKind.CORRUPT, f"its mangled names end behind the file; {_MISSES}")
        # CuPy takes the last byte of a cubin, a zero, for the end of a text and does not store it.
        end = b"\0" if whole and data.startswith(b"\x7fELF", start) else b""
        return b"".join((memoryview(data)[start:], end)), None

    def bars(self, item: Files) -> Problem | None:
        if item.names[0].endswith(".cu"):
            detail = "it is the source of a binary that is gone, which CuPy does not read"
            return Problem(FindingKind.ORPHAN, detail)
        return super().bars(item)

    def shows_left(self, start: bytes) -> bool:
        """Whether a file begins as CuPy's with its SHA-1; a file of numbers or checksums may be a user's."""
        digits, rest = start[:_DIGITS], start[_DIGITS:]
        own = not rest or rest.startswith(_MAGIC) or describe(rest).kind in self.kinds
        return len(digits) == _DIGITS and set(digits) <= set(b"0123456789abcdef") and own
