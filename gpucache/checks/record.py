"""The failure record that a kernel writes, as ``gpucache/check.h`` lays it out, in native byte order.

| offset | bytes | field |
|---|---|---|
| 0 | 4 | code of the check that failed first, -1 for none; ``UNNUMBERED`` for one without a number |
| 4 | 4 | line of the check in its own file |
| 8 | 4 | number of the launched kernel |
| 12 | 4 | number of operands, 0 to 8 |
| 16 | 8 | type of each operand, 4 bits each from the lowest: 1 signed, 2 unsigned, 3 double, 4 float |
| 24 | 3 x 8 | global id of the work-item |
| 48 | 8 x 8 | operands |
"""

import struct
from dataclasses import dataclass

_LAYOUT = struct.Struct("=iiiiQ3Q8Q")
RECORD_BYTES = _LAYOUT.size
NO_FAILURE = struct.pack("=i", -1)
"""What the record begins with before anything fails."""
UNNUMBERED = 0x7FFFFFFF
_OPERANDS = 8
_MAX_KERNELS = 1 << 30
_FORMATS = {1: ("=Q", "=q"), 2: ("=Q", "=Q"), 3: ("=Q", "=d"), 4: ("=Q", "=f")}


@dataclass(frozen=True, slots=True)
class Failure:
    """The first check that failed."""

    code: int
    line: int
    kernel: int
    """The number that the host gave the kernel when it launched it."""
    work_item: tuple[int, int, int]
    """Its global id."""
    operands: tuple[int | float, ...]


def state(kernel: int, *, may_have_failed: bool) -> int:
    """The 32-bit argument a kernel is given beside the record; raises ValueError beyond 2^30 kernels."""
    if not 0 <= kernel < _MAX_KERNELS:
        raise ValueError(f"a kernel's number is below {_MAX_KERNELS}, not {kernel}")
    return kernel << 1 | may_have_failed


def read_record(data: bytes) -> Failure | None:
    """The failure in the 112 bytes of a record; None where there is none."""
    code, line, kernel, count, types, x, y, z, *words = _LAYOUT.unpack(data)
    if code < 0:
        return None
    shown = range(max(0, min(count, _OPERANDS)))
    operands = tuple(_operand(types >> 4 * place & 15, words[place]) for place in shown)
    return Failure(code, line, kernel, (x, y, z), operands)


def _operand(kind: int, word: int) -> int | float:
    written, read = _FORMATS.get(kind, _FORMATS[2])
    value: int | float = struct.unpack_from(read, struct.pack(written, word))[0]
    return value
