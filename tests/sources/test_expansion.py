"""The names that an include through a macro may have, whichever of its definitions are in force."""

import re

import pytest

from gpucache.sources.macro_names import macros_of, names_of

_STR = b"STR_(x) #x\nSTR(x) STR_(x)\n"


def _comes_to(operand: bytes, definitions: bytes, name: bytes) -> bool:
    patterns = names_of(operand, macros_of([definitions]))
    assert patterns is not None
    parts = name.split(b"/")
    return any(len(pattern) == len(parts) and all(map(re.fullmatch, pattern, parts)) for pattern in patterns)


@pytest.mark.parametrize(
    ("operand", "definitions", "names"),
    [
        (b"H", b'H <x.h>\nH "y.h"', [b"x.h", b"y.h"]),
        (b"STR(P/x.h)", _STR + b"P /abs/sub", [b"/abs/sub/x.h", b"P/x.h"]),
        (b"STR(P/x.h)", _STR + b"P ..", [b"../x.h"]),
        (b"STR_(P/x.h)", _STR + b"P sub", [b"P/x.h"]),
        (b"<A/B>", b"A one\nA two\nB x.h\nB y.h", [b"one/x.h", b"two/x.h", b"one/y.h", b"two/B"]),
        (b"IN(sort.h)", b"IN(f) <ROOT/f>\nROOT lib/NAME\nNAME cpp\nNAME omp", [b"lib/omp/sort.h"]),
        (b"CALL (x.h)", b"CALL IN\nIN(f) <lib/f>", [b"lib/x.h"]),
        (b"TWO(IN(x), .h)", b"TWO(a, b) <a b>\nIN(a) lib/a", [b"lib/x.h", b"lib/x .h"]),
        (b"ONE(ONE(x.h))", b"ONE(a) a\nONE(a) <a>", [b"x.h"]),
        (b"NONE()", b"NONE() <x.h>", [b"x.h"]),
        (b"<dir_A/v.h>", b"A one", [b"dir_A/v.h", b"12/v.h", b"_cl_dir_A/v.h"]),
        (b"<EMPTY x.h>", b"EMPTY", [b"x.h"]),
        (b"A", b"A B\nB A\nB <x.h>", [b"x.h"]),
        (b"H", b'H " x.h "', [b" x.h ", b"x.h"]),
        (b"H", b'H "../ a / x.h"', [b"../ a / x.h"]),
    ],
)
def test_every_name_that_it_can_come_to_is_told(
    operand: bytes, definitions: bytes, names: list[bytes]
) -> None:
    """Each definition counts, arguments are expanded except after ``#``, and any word may be a number."""
    assert [name for name in names if not _comes_to(operand, definitions, name)] == []


@pytest.mark.parametrize(
    ("operand", "definitions", "name"),
    [
        (b"<A/x.h>", b"A one\nB two", b"two/x.h"),
        (b"IN(x.h)", b"IN(f) <lib/f>\nOTHER(f) <far/f>", b"far/x.h"),
        (b"STR_(P/x.h)", _STR + b"P sub", b"sub/x.h"),
        (b"<A/x.h>", b"A one", b"x.h"),
    ],
)
def test_what_no_definition_leads_to_is_not_told(operand: bytes, definitions: bytes, name: bytes) -> None:
    """A word from elsewhere is not a part of a name."""
    assert not _comes_to(operand, definitions, name)


@pytest.mark.parametrize(
    ("operand", "definitions"),
    [
        (b"H", b'H _Pragma("once") <x.h>'),
        (b"C(x, .h)", b"C(a, b) <a##b>"),
        (b"C(x, .h)", b"C(...) <__VA_ARGS__>"),
        (b"H", b"H __FILE__"),
        (b"__has_include(H)", b"H <x.h>"),
        (b"C(x.h", b"C(a) <a>"),
        (b'STR_("x.h")', _STR),
        (b"<A A A A A A A A A A>", b"A one\nA two"),
        (b"F(" * 500 + b"x.h" + b")" * 500, b"F(a) a\nF(a) <a>"),
        (b"A " * 5000, b"A x.h"),
        (b"A", b"A <" + b"1." * 500 + b">"),
    ],
)
def test_what_gets_out_of_hand_is_left_to_the_words(operand: bytes, definitions: bytes) -> None:
    """Pastes, any number of arguments, names of files, probes and too many expansions are not followed."""
    assert names_of(operand, macros_of([definitions])) is None
