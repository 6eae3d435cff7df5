"""The message of a failure."""

import math
import pickle
import struct

import pytest

from gpucache.checks.failures import Failure, fill, problem, read_record, state, told
from gpucache.model import Check


@pytest.mark.parametrize(
    ("text", "operands", "told"),
    [
        ("%d of %u", (-3, 7), "-3 of 7"),
        ("%x %X %#x %o", (255, 255, 255, 8), "ff FF 0xff 10"),
        ("%x", (-1,), "ffffffff"),
        ("%lx", (-(1 << 40),), "ffffff0000000000"),
        ("%u", (2**64 - 1,), "18446744073709551615"),
        ("%f %g %.2e", (0.5, 0.25, 1234.5), "0.500000 0.25 1.23e+03"),
        ("%d", (0.5,), "0.5"),
        ("%f", (3,), "3.000000"),
        ("%x", (math.nan,), "nan"),
        ("%5d|%-5d|%05d|%+d", (1, 2, 3, 4), "    1|2    |00003|+4"),
        ("%lld %hhu %zu", (1, 2, 3), "1 2 3"),
        ("100 %% of %d", (1,), "100 % of 1"),
        ("%c%c", (65, 0), "A0"),
        ("none", (), "none"),
    ],
)
def test_a_format_is_filled(text: str, operands: tuple[int | float, ...], told: str) -> None:
    """As with printf, but an operand keeps its own type whatever the format says."""
    assert problem(text, len(operands)) is None
    assert fill(text, operands) == told


@pytest.mark.parametrize("text", ["%s", "%p", "%n", "%a", "%", "%v4d", "%1000d", "%*d"])
def test_a_conversion_of_no_number_is_refused(text: str) -> None:
    """Operands are numbers, and no width makes a message of megabytes."""
    assert problem(text, 1) is not None


def _record(*head: int, types: int = 0, ids: tuple[int, ...] = (0, 0, 0), words: bytes = b"") -> bytes:
    return struct.pack("=iiiiQ3Q", *head, types, *ids) + words.ljust(64, b"\0")


def test_a_record_keeps_the_types_of_its_operands() -> None:
    """Signed, unsigned, double and float operands keep their type and value."""
    words = struct.pack("=qQdfi", -5, 2**64 - 5, 1e300, 0.5, 0)
    read = read_record(_record(4, 17, 3, 4, types=0x4321, ids=(1, 2, 3), words=words))
    assert read == Failure(4, 17, 3, (1, 2, 3), (-5, 2**64 - 5, 1e300, 0.5))


def test_an_empty_record_is_no_failure() -> None:
    """Whatever an earlier failure left after its code."""
    assert read_record(_record(-1, 17, 3, 8)) is None


def test_a_record_of_garbage_reads() -> None:
    """A kernel may have written over it."""
    read = read_record(b"\x7f" * 112)
    assert read is not None
    assert len(read.operands) == 8


def test_a_state_is_the_kernel_above_a_bit() -> None:
    """As the header splits it."""
    assert [state(5, may_have_failed=False), state(5, may_have_failed=True)] == [10, 11]


def test_a_failure_is_told_with_everything() -> None:
    """Message, kernel, work-item, file and line, in one sentence; it survives being pickled."""
    failure = Failure(1, 99, 0, (7, 0, 2), (12, 4))
    error = pickle.loads(pickle.dumps(told(failure, (Check(3, ""), Check(8, "%d of %d")), "a.cl", "gather")))
    assert str(error) == "a.cl, line 8: 12 of 4 (kernel gather, work-item 7, 0, 2)"
    assert (error.text, error.line, error.kernel, error.work_item) == ("12 of 4", 8, "gather", (7, 0, 2))


def test_a_failure_without_a_number_tells_line_and_operands() -> None:
    """As a check of a header does, whose format no program has read."""
    error = told(Failure(0x7FFFFFFF, 12, 0, (0, 0, 0), (3, 0.5)), (Check(1, "x"),), "a.cl", "k")
    assert str(error) == (
        "a.cl, line 12 of a header or a macro: a check without a number failed with 3 and 0.5 "
        "(kernel k, work-item 0, 0, 0)"
    )


def test_a_check_without_a_format_says_that_it_failed() -> None:
    """A format may be left out."""
    assert told(Failure(0, 3, 0, (0, 0, 0), ()), (Check(3, ""),), "a.cl", "k").text == "the check failed"
