"""The failure of a check: the failure record that a kernel writes, and the error made from it. Pure.

The record has the layout of ``gpucache/check.h``, in native byte order:

| offset | bytes | field |
|---|---|---|
| 0 | 4 | code of the check that failed first, -1 for none; ``UNNUMBERED`` for one without a number |
| 4 | 4 | line of the check in its own file |
| 8 | 4 | number of the launched kernel |
| 12 | 4 | number of operands, 0 to 8 |
| 16 | 8 | type of each operand, 4 bits each from the lowest: 1 signed, 2 unsigned, 3 double, 4 float |
| 24 | 3 x 8 | global id of the work-item |
| 48 | 8 x 8 | operands |

The sizes of the arguments that are buffers follow, for checks of an index: 8 bytes each, in the order of the
kernel's own arguments, all bits set for any other argument.

The format of a message is that of ``printf``, and its operands know their own types. An invalid format is
refused when it is read, so that reporting a failure cannot fail. Must not know how kernels are launched.
"""

import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpucache.errors import KernelCheckError
from gpucache.model import Check, Checks

_LAYOUT = struct.Struct("=iiiiQ3Q8Q")
RECORD_BYTES = _LAYOUT.size
NO_FAILURE = struct.pack("=i", -1)
"""The first bytes of the record before anything fails."""
UNNUMBERED = 0x7FFFFFFF
MAX_OPERANDS = 8
MAX_SIZES = 64
"""The number of arguments up to which a launch passes their sizes."""
UNKNOWN_SIZE = (1 << 64) - 1
OUTSIDE = "index %d is outside of {}, which has %d elements"
_MAX_KERNELS = 1 << 30
_FORMATS = {1: ("=Q", "=q"), 2: ("=Q", "=Q"), 3: ("=Q", "=d"), 4: ("=Q", "=f")}
_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<size>\d{0,3}(?:\.\d{0,3})?)(?:hh|ll|[hlLqjzt])?(?P<kind>.?)", re.DOTALL
)
_WHOLE = frozenset("diu")
_BITS = frozenset("xXo")
_FLOATING = frozenset("eEfFgG")
_KINDS = frozenset({*_WHOLE, *_BITS, *_FLOATING, "c"})


@dataclass(frozen=True, slots=True)
class Failure:
    """The first check that failed."""

    code: int
    line: int
    kernel: int
    work_item: tuple[int, int, int]
    """The global id of the failing work-item."""
    operands: tuple[int | float, ...]


def sizes_of(sizes: Iterable[int | None]) -> bytes:
    """The sizes of arguments in bytes, as they follow the record; None means no buffer."""
    known = [UNKNOWN_SIZE if size is None else size for size in sizes][:MAX_SIZES]
    return struct.pack(f"={MAX_SIZES}Q", *known, *[UNKNOWN_SIZE] * (MAX_SIZES - len(known)))


def state(kernel: int, *, may_have_failed: bool) -> int:
    """The 32-bit argument a kernel receives with the record; raises ValueError beyond 2^30 kernels."""
    if not 0 <= kernel < _MAX_KERNELS:
        raise ValueError(f"a kernel's number is below {_MAX_KERNELS}, not {kernel}")
    return kernel << 1 | may_have_failed


def read_record(data: bytes) -> Failure | None:
    """Parse the 112 bytes of a record; None if no check failed."""
    code, line, kernel, count, types, x, y, z, *words = _LAYOUT.unpack(data)
    if code < 0:
        return None
    shown = range(max(0, min(count, MAX_OPERANDS)))
    operands = tuple(_operand(types >> 4 * place & 15, words[place]) for place in shown)
    return Failure(code, line, kernel, (x, y, z), operands)


def _operand(kind: int, word: int) -> int | float:
    written, read = _FORMATS.get(kind, _FORMATS[2])
    value: int | float = struct.unpack_from(read, struct.pack(written, word))[0]
    return value


def problem(text: str, operands: int) -> str | None:
    """The problem of a format with this many operands, as a sentence; None if it is valid."""
    wanted = [match for match in _CONVERSION.finditer(text) if match[0] != "%%"]
    for match in wanted:
        if match["kind"] not in _KINDS:
            return (
                f"its format has {match[0]!r}, which no operand can fill; operands are numbers, for "
                "%d %i %u %x %X %o %c %e %f or %g"
            )
    if operands > MAX_OPERANDS:
        return f"it has {operands} operands; a check keeps at most {MAX_OPERANDS}"
    if len(wanted) != operands:
        return f"its format takes {len(wanted)} operands and gets {operands}"
    return None


def fill(text: str, operands: Sequence[int | float]) -> str:
    values = iter(operands)
    return _CONVERSION.sub(lambda match: "%" if match[0] == "%%" else _filled(match, next(values)), text)


def _filled(match: re.Match[str], value: int | float) -> str:
    """A number formatted by its conversion, as the type that it has."""
    kind, before = match["kind"], f"%{match['flags']}{match['size']}"
    if isinstance(value, float):
        return f"{before}{kind if kind in _FLOATING else 'g'}" % value
    if kind in _FLOATING:
        return f"{before}{kind}" % float(value)
    if kind in _BITS:
        bits = 32 if value >= -(1 << 31) else 64
        return f"{before}{kind}" % (value & (1 << bits) - 1 if value < 0 else value)
    if kind == "c" and 0 <= value <= 0x10FFFF and chr(value).isprintable():
        return chr(value)
    return f"{before}d" % value


def told(failure: Failure, table: Sequence[Check], program: str, kernel: str) -> KernelCheckError:
    if failure.code < len(table):
        check = table[failure.code]
        fits = problem(check.message, len(failure.operands)) is None
        words = (fill(check.message, failure.operands) if fits else check.message) or "the check failed"
        return KernelCheckError(words, check.file or program, check.line, kernel, failure.work_item)
    operands = " and ".join(
        f"{value:g}" if isinstance(value, float) else str(value) for value in failure.operands
    )
    words = f"a check without a number failed{f' with {operands}' if operands else ''}"
    return KernelCheckError(words, program, failure.line, kernel, failure.work_item, in_file=False)


@dataclass(frozen=True, slots=True)
class Checked:
    """A program that was compiled with checks."""

    program: str
    mode: Checks
    table: tuple[Check, ...]

    def needs_sizes(self, kernel: str) -> bool:
        """Whether a kernel compares an index with the size of a buffer."""
        begin = OUTSIDE.partition("{")[0]
        return any(one.function == kernel and one.message.startswith(begin) for one in self.table)


class Launches:
    """Numbers the launched kernels, and remembers whether one that can fail ran since the last look."""

    def __init__(self) -> None:
        self.pending = False
        self._kernels: list[tuple[Checked, str]] = []
        self._numbers: dict[tuple[int, str], int] = {}

    def state(self, checked: Checked, kernel: str) -> int:
        name = id(checked), kernel  # the object is kept below, so its id stays unique
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._kernels)
            self._kernels.append((checked, kernel))
        return state(number, may_have_failed=self.pending)

    def error(self, failure: Failure) -> KernelCheckError:
        if not 0 <= failure.kernel < len(self._kernels):
            return KernelCheckError("a kernel overwrote the failure record, so its failure is unknown")
        checked, kernel = self._kernels[failure.kernel]
        return told(failure, checked.table, checked.program, kernel)
