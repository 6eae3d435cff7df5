"""The key of a Futhark cache file: an adapted djb2 of each input, all of them XOR-ed. Pure.

Source: Futhark, rts/c/cache.h (``cache_hash``). An input is hashed byte by byte as ``x = 33*x + c``
from 5381 on, and ``x`` is XOR-ed into word ``place mod 8`` of eight 32-bit words. It starts anew for
every input: the order of inputs does not matter, and an input given twice cancels. ``c`` is a C
``char``, so bytes from 0x80 on count differently where ``char`` has no sign.

Must not know which inputs there are.
"""

import platform
import sys
from collections.abc import Iterable

KEY_BYTES = 32
COMPARED_BYTES = 8
"""All that Futhark compares: the number of words is passed to memcmp as the number of bytes."""

START = 5381
_WORD = 0xFFFF_FFFF
_UNSIGNED = tuple(range(256))
_SIGNED = tuple(byte - 256 * (byte > 127) for byte in range(256))
_UNSIGNED_MACHINES = ("aarch64", "arm", "ppc64", "riscv", "s390")


def contribution(data: bytes, *, signed: bool = True) -> int:
    """What one input adds to the key: a number of 256 bits, whose little-endian bytes are the key's."""
    return continued(data, START, 0, signed=signed)[1]


def continued(data: bytes, x: int, place: int, *, signed: bool) -> tuple[int, int]:
    """``x`` behind the rest of an input that goes on at a place, and what that rest adds to the key."""
    steps = _SIGNED if signed else _UNSIGNED
    words = [0] * 8
    for at, byte in enumerate(data, place):
        x = (33 * x + steps[byte]) & _WORD
        words[at & 7] ^= x
    return x, sum(word << 32 * index for index, word in enumerate(words))


def total(inputs: Iterable[bytes], *, signed: bool = True) -> int:
    """What several inputs add, in any order."""
    added = 0
    for one in inputs:
        added ^= contribution(one, signed=signed)
    return added


def to_bytes(number: int) -> bytes:
    """A number of 256 bits as the 32 bytes in the file."""
    return number.to_bytes(KEY_BYTES, "little")


def to_number(key: bytes) -> int:
    """The 32 bytes in the file as a number."""
    return int.from_bytes(key, "little")


def encoded(option: str | bytes) -> bytes:
    """An option as the bytes that the program was given."""
    return option if isinstance(option, bytes) else option.encode("utf-8", "surrogateescape")


def key_of(options: Iterable[str | bytes], source: bytes, signed: bool = True) -> bytes:
    """The 32 key bytes of a program: its options one by one (OpenCL: one joined string) and its source.

    ``source`` is what ``--dump-cuda``, ``--dump-opencl`` or ``--dump-hip`` writes; ``signed`` tells
    whether ``char`` has a sign where the program runs.
    """
    return to_bytes(total((*map(encoded, options), source), signed=signed))


def native_signed() -> bool:
    """Whether ``char`` has a sign on this machine: it has not on AArch64 Linux, it has on x86-64."""
    return not (sys.platform == "linux" and platform.machine().lower().startswith(_UNSIGNED_MACHINES))
