"""One cache file: its 48-byte header, the key in it, the payload, and its name. Pure.

====== ===== =================================================================
offset bytes content
====== ===== =================================================================
0      8     magic ``FUTHARK\\0``
8      8     int64: size of the whole file, 48 + payload
16     32    key, eight uint32
48     n     payload, to the end of the file
====== ===== =================================================================

Numbers are in the order of the host, which is little-endian wherever Futhark runs on a GPU. There is no
checksum. CUDA stores PTX text without the final NUL, HIP what its compiler returned, OpenCL the binary of
the one device. CUDA and HIP compile again where the driver refuses the payload; OpenCL does where the binary
is refused as such, but stops where the build of it fails.

The key is an adapted djb2 of each input, all of them XOR-ed. An input is hashed byte by byte as
``x = 33*x + c`` from 5381 on, and ``x`` is XOR-ed into word ``place mod 8`` of eight 32-bit words. It starts
anew for every input: the order of inputs does not matter, and an input given twice cancels. ``c`` is a C
``char``, so bytes from 0x80 on count differently where ``char`` has no sign. Source: Futhark, rts/c/cache.h
(``cache_hash``, ``cache_store``, ``cache_restore``), rts/c/gpu_prototypes.h and rts/c/backends/.
"""

import platform
import re
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from gpucache.answers.entries import FindingKind, Problem
from gpucache.errors import FormatError
from gpucache.payload import PayloadInfo, PayloadKind, describe

KEY_BYTES = 32
COMPARED_BYTES = 8
"""The part that Futhark compares: the number of words is passed to memcmp as the number of bytes."""

_START = 5381
_WORD = 0xFFFF_FFFF
_UNSIGNED = tuple(range(256))
_SIGNED = tuple(byte - 256 * (byte > 127) for byte in range(256))
_UNSIGNED_MACHINES = ("aarch64", "arm", "ppc64", "riscv", "s390")
CUDA_ARCHITECTURES = {
    **{(3, minor): f"compute_3{minor}" for minor in (0, 2, 5, 7)},
    **{(5, minor): f"compute_5{minor}" for minor in (0, 2, 3)},
    **{(6, minor): f"compute_6{minor}" for minor in (0, 1, 2)},
    **{(7, minor): f"compute_7{minor}" for minor in (0, 2, 5)},
    **{(8, minor): "compute_80" for minor in (0, 6, 7, 9)},
    (9, 0): "compute_90",
    (10, 0): "compute_100",
    (10, 1): "compute_101",
    (12, 0): "compute_120",
    (12, 1): "compute_121",
}
"""The targets that Futhark passes to NVRTC, by compute capability, in rising order."""
CUDA_VARIABLES = ("CUDA_HOME", "CUDA_ROOT", "CUDA_PATH")
TR_OPTIONS = ("-DTR_BLOCK_DIM=16", "-DTR_TILE_DIM=32", "-DTR_ELEMS_PER_THREAD=8")
MAGIC = b"FUTHARK\0"
HEADER_BYTES = 48
RECOMPILED = "the program logs 'Failed to restore cache (errno: Success)', compiles again and writes over it"
_LAYOUT = struct.Struct(f"<8sq{KEY_BYTES}s")
PARTIAL = r"\.futhark-[0-9a-f]{16}\.gpucache-tmp"
_SOURCE = ".fut"
ENDING = ".cache"
"""Common endings of cache files' names, as in Futhark's documentation."""
_BACKENDS = {
    PayloadKind.PTX: "cuda",
    PayloadKind.CUBIN: "cuda",
    PayloadKind.FATBIN: "cuda",
    PayloadKind.LTOIR: "cuda",
    PayloadKind.AMDGPU: "hip",
    PayloadKind.OFFLOAD_BUNDLE: "hip",
    PayloadKind.UNKNOWN: "",
}
_AGAIN = "the driver refuses it, so the program compiles again and writes over the file"
_STOPS = "stops with 'Compilation of OpenCL program failed' and does not compile again; remove the file"
_CONSEQUENCES = {
    "cuda": _AGAIN,
    "hip": _AGAIN,
    "opencl": f"a program whose platform refuses it {_STOPS}",
    "": f"a CUDA or HIP program compiles again, an OpenCL program whose platform refuses it {_STOPS}",
}


def contribution(data: bytes, *, signed: bool = True) -> int:
    """The effect of one input on the key: a number of 256 bits, whose little-endian bytes are the key's."""
    steps, x = _SIGNED if signed else _UNSIGNED, _START
    words = [0] * 8
    for at, byte in enumerate(data):
        x = (33 * x + steps[byte]) & _WORD
        words[at & 7] ^= x
    return sum(word << 32 * index for index, word in enumerate(words))


def total(inputs: Iterable[bytes], *, signed: bool = True) -> int:
    """The effect of several inputs, in any order."""
    added = 0
    for one in inputs:
        added ^= contribution(one, signed=signed)
    return added


def to_bytes(number: int) -> bytes:
    """A number of 256 bits as the 32 bytes in the file."""
    return number.to_bytes(KEY_BYTES, "little")


def key_of(options: Iterable[str | bytes], source: bytes, signed: bool = True) -> bytes:
    """The 32 key bytes of a program: its options one by one (OpenCL: one joined string) and its source.

    ``source`` is the output of ``--dump-cuda``, ``--dump-opencl`` or ``--dump-hip``; ``signed`` says
    whether ``char`` has a sign where the program runs.
    """
    given = (one if isinstance(one, bytes) else one.encode("utf-8", "surrogateescape") for one in options)
    return to_bytes(total((*given, source), signed=signed))


def native_signed() -> bool:
    """Whether ``char`` is signed on this machine: not on AArch64 Linux, but on x86-64."""
    return not (sys.platform == "linux" and platform.machine().lower().startswith(_UNSIGNED_MACHINES))


@dataclass(frozen=True, slots=True)
class Header:
    """A file's header."""

    declared_bytes: int
    """The size of the whole file; any number at all in a damaged one."""
    key: bytes


def encode(key: bytes, payload: bytes) -> bytes:
    """A whole cache file; raises FormatError for a key without 32 bytes."""
    if len(key) != KEY_BYTES:
        raise FormatError(f"a Futhark key has {KEY_BYTES} bytes and this one has {len(key)}")
    return _LAYOUT.pack(MAGIC, HEADER_BYTES + len(payload), key) + payload


def read_header(start: bytes) -> Header | None:
    """The header in the first bytes of a file; None if they are too few or begin differently."""
    if len(start) < HEADER_BYTES or not is_futhark(start):
        return None
    _magic, declared, key = _LAYOUT.unpack_from(start)
    return Header(declared, key)


def is_futhark(start: bytes) -> bool:
    """Whether the first bytes of a file are a Futhark cache file's."""
    return start.startswith(MAGIC)


def damage(start: bytes, size_bytes: int) -> Problem | None:
    """The problem of a file with this size that begins with these (at least 48, if it has them) bytes."""
    header = read_header(start)
    if header is not None:
        return _wrong_size(header.declared_bytes, size_bytes)
    if not size_bytes:
        return Problem(FindingKind.TRUNCATED, f"it is empty; {RECOMPILED}")
    if is_futhark(start) or MAGIC.startswith(start):
        what = f"it ends inside its header, after {size_bytes} of {HEADER_BYTES} bytes"
        return Problem(FindingKind.TRUNCATED, f"{what}; {RECOMPILED}")
    what = "it does not begin with the bytes of a Futhark cache file"
    return Problem(FindingKind.CORRUPT, f"{what}; a program that is given it writes over it")


def _wrong_size(declared: int, size_bytes: int) -> Problem | None:
    if declared == size_bytes:
        return None
    if declared > size_bytes:
        what = f"it has {size_bytes} of the {declared} bytes it says"
        return Problem(FindingKind.TRUNCATED, f"{what}; {RECOMPILED}")
    what = f"it says that it has {declared} bytes and has {size_bytes}, so two writers may have met"
    return Problem(FindingKind.CORRUPT, f"{what}; {RECOMPILED}")


def target_of(payload: PayloadInfo) -> str:
    """A payload's target, such as ``cuda:compute_80``, ``hip:gfx90a`` or ``opencl``; empty if unknown."""
    backend = _backend(payload)
    return f"{backend}:{payload.architecture}" if payload.architecture else backend


def consequence(payload: PayloadInfo) -> str:
    """The effect of a broken payload on a program."""
    return _CONSEQUENCES[_backend(payload)]


def stored_form(payload: bytes) -> bytes:
    """A payload as Futhark stores it: PTX without the NUL that NVRTC appends."""
    ptx = payload.endswith(b"\0") and describe(payload).kind is PayloadKind.PTX
    return payload.rstrip(b"\0") if ptx else payload


def _backend(payload: PayloadInfo) -> str:
    """The backend of Futhark that stores such a payload; empty if the bytes do not say.

    PTX counts as CUDA's, although NVIDIA's OpenCL returns it too.
    """
    return _BACKENDS.get(payload.kind, "opencl")


def program_of(name: str) -> str:
    """The program that a cache file is named after: ``foo.fut`` of ``foo.fut.cache``."""
    return PurePath(name).stem or name


def source_of(name: str) -> str | None:
    """The source next to which ``futhark bench --cache-extension`` left the file; None for other names.

    Source: Futhark, src/Futhark/Test.hs (``determineCache``).
    """
    program = program_of(name)
    return program if program != name and program.endswith(_SOURCE) and program != _SOURCE else None


def is_partial(name: str) -> bool:
    """Whether our writer did not finish a file, or is writing it."""
    return re.fullmatch(PARTIAL, name) is not None
