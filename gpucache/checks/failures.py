"""What a failed check says: the failure record that a kernel writes, and the error that is made of it. Pure.

The record is as ``gpucache/check.h`` lays it out, in native byte order:

| offset | bytes | field |
|---|---|---|
| 0 | 4 | code of the check that failed first, -1 for none; ``UNNUMBERED`` for one without a number |
| 4 | 4 | line of the check in its own file |
| 8 | 4 | number of the launched kernel |
| 12 | 4 | number of operands, 0 to 8 |
| 16 | 8 | type of each operand, 4 bits each from the lowest: 1 signed, 2 unsigned, 3 double, 4 float |
| 24 | 3 x 8 | global id of the work-item |
| 48 | 8 x 8 | operands |

A format of a message is as ``printf`` has it, and its operands know their own types. It is refused when it
is read, so that nothing can go wrong when a failure is told. Must not know how anything is launched.
"""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from gpucache.errors import KernelCheckError
from gpucache.model import Check, Checks

_LAYOUT = struct.Struct("=iiiiQ3Q8Q")
RECORD_BYTES = _LAYOUT.size
NO_FAILURE = struct.pack("=i", -1)
"""What the record begins with before anything fails."""
UNNUMBERED = 0x7FFFFFFF
MAX_OPERANDS = 8
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
    shown = range(max(0, min(count, MAX_OPERANDS)))
    operands = tuple(_operand(types >> 4 * place & 15, words[place]) for place in shown)
    return Failure(code, line, kernel, (x, y, z), operands)


def _operand(kind: int, word: int) -> int | float:
    written, read = _FORMATS.get(kind, _FORMATS[2])
    value: int | float = struct.unpack_from(read, struct.pack(written, word))[0]
    return value


def problem(text: str, operands: int) -> str | None:
    """What is wrong with a format for some operands, in a sentence; None where nothing is."""
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
        return f"its format wants {len(wanted)} operands and is given {operands}"
    return None


def fill(text: str, operands: Sequence[int | float]) -> str:
    """A format that has no problem with its operands in it."""
    values = iter(operands)
    return _CONVERSION.sub(lambda match: "%" if match[0] == "%%" else _filled(match, next(values)), text)


def _filled(match: re.Match[str], value: int | float) -> str:
    """A number as its conversion wants it, but never as another type than its own."""
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
    """The error of a failure, by the failure table of its program."""
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
    """Its name for people."""
    mode: Checks
    table: tuple[Check, ...]


class Launches:
    """Gives kernels their numbers, and remembers whether something that can fail ran since the last look."""

    def __init__(self) -> None:
        self.pending = False
        self._kernels: list[tuple[Checked, str]] = []
        self._numbers: dict[tuple[int, str], int] = {}

    def state(self, checked: Checked, kernel: str) -> int:
        """What a kernel is given beside the record when it is launched next."""
        name = id(checked), kernel  # it is held below, and so is its identity
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._kernels)
            self._kernels.append((checked, kernel))
        return state(number, may_have_failed=self.pending)

    def error(self, failure: Failure) -> KernelCheckError:
        """The error of a failure in a kernel that was launched."""
        if not 0 <= failure.kernel < len(self._kernels):
            return KernelCheckError(
                "a kernel wrote over the failure record, so nothing is known of its failure"
            )
        checked, kernel = self._kernels[failure.kernel]
        return told(failure, checked.table, checked.program, kernel)
