"""Messages of checks: formats as ``printf`` has them, filled with operands that know their own types. Pure.

A format is refused when it is read, so that nothing can go wrong when a failure is told.
"""

import re
from collections.abc import Sequence

from gpucache.checks.record import Failure
from gpucache.errors import KernelCheckError
from gpucache.model import Check

MAX_OPERANDS = 8
_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<size>\d{0,3}(?:\.\d{0,3})?)(?:hh|ll|[hlLqjzt])?(?P<kind>.?)", re.DOTALL
)
_WHOLE = frozenset("diu")
_BITS = frozenset("xXo")
_FLOATING = frozenset("eEfFgG")
_KINDS = frozenset({*_WHOLE, *_BITS, *_FLOATING, "c"})


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
