"""The names that an include through a macro may have, whichever of its definitions are in force."""

import re

import pytest

from gpucache.sources.macro_names import macros_of, which_names

_STR = b"STR_(x) #x\nSTR(x) STR_(x)\n"


def _comes_to(operand: bytes, definitions: bytes, name: bytes) -> bool:
    patterns = which_names(operand, macros_of([definitions]))
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
        (b"ONE(x.h)", b"ONE(a) a\nONE(a) <a>", [b"x.h"]),
        (b"NONE()", b"NONE() <x.h>", [b"x.h"]),
        (b"<dir_A/v.h>", b"A one", [b"dir_A/v.h", b"12/v.h", b"_cl_dir_A/v.h"]),
        (b"<EMPTY x.h>", b"EMPTY", [b"x.h"]),
        (b"A", b"A B\nB A\nB <x.h>", [b"x.h"]),
        (b"H", b'H " x.h "', [b" x.h "]),
        (b"H", b'H "../ a / x.h"', [b"../ a / x.h"]),
        (b"<m>", b"m n", [b"n", b"n.stdh"]),
        (b"H", rb'H "\"x.h\""', [rb"\"x.h\"", b"\\"]),
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
        (b"H", b"H __FILE__"),
        (b"H", b"H __has_include(<x.h>)"),
        (b"ANG(HAS(ID(m)).h)", b"ANG(x) <x>\nHAS(x) __has_include(x)\nID(x) x"),
        (b'H __has_include("y.h")', b"H <x.h>"),
        (b"C(x, .h)", b"C(a, b) <a##b>"),
        (b"C(x, .h)", b"C(a, b) <a%:%:b>"),
        (b"C(x, .h)", b"C(...) <__VA_ARGS__>"),
        (b"C(x, .h)", b"C(a...) <a>"),
        (b"C(x, y)", b"C(a) <a>"),
        (b"C(x.h", b"C(a) <a>"),
        (b'S("x.h")', b"S(x) #x"),
        (b"S(<\\x6d,.h>)", b"S(...) #__VA_ARGS__"),
        (b"S(\\x6d.h)", b"S(x) #x"),
        (b"LT <:.h:>.h>", b"LT <"),
        (b"LT x->", b"LT <"),
        (b"<A A A A A A A A A A>", b"A one\nA two"),
        (b"F(" * 500 + b"x.h" + b")" * 500, b"F(a) a\nF(a) <a>"),
        (b"A " * 5000, b"A x.h"),
        (b"A", b"A <" + b"1." * 500 + b">"),
        (b"S(as_int(m).h)", b"S(x) #x"),
        (b"S(other(m).h)", b"S(x) #x"),
        (b"S(__SIZE_TYPE__.h)", b"S(x) #x"),
        (b"\xc3\xa9", b"\\u00e9 <x.h>"),
        (b"$x", b"x <x.h>"),
        (b"__VERSION__", b'__VERSION__ "x.h"'),
        *((operand, b"IN(x) x") for operand in (b"<x.h", b'"x.h', b"(<x.h>)", b"IN(<x.h>")),
        *((operand, b"A 1") for operand in (b"x <x.h>", b'L "x.h"', b"<x.h> y", b'"x.h" "y.h"', b"1 <x>")),
    ],
)
def test_an_operand_that_is_not_recognised_word_for_word_may_have_any_name(
    operand: bytes, definitions: bytes
) -> None:
    """Pastes, probes, escapes, digraphs, macros of the compiler and too many expansions are not followed."""
    assert which_names(operand, macros_of([definitions])) is None


@pytest.mark.parametrize("operand", [b"H", b"IN(x.h)", b"1", b"'x.h'", b"/x.h", b""])
def test_what_no_compiler_takes_for_a_name_names_nothing(operand: bytes) -> None:
    """An include of a macro that nothing defines, as for a user's configuration, does no harm."""
    assert which_names(operand, macros_of([b"A 1"])) == frozenset()


@pytest.mark.parametrize("name", [b"((void*)0).h", b"0x1.fffffep127f.h", b"NULL.h"])
def test_a_macro_of_the_compiler_in_capitals_may_be_any_text(name: bytes) -> None:
    """Such as that of NULL or FLT_MAX, if no text defines the word."""
    assert _comes_to(b"S(NULL.h)", b"S_(x) #x\nS(x) S_(x)", name)
