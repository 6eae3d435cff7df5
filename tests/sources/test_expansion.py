"""The names that an include through a macro may have, whichever of its definitions are in force."""

import re

import pytest

from gpucache.sources.macro_names import MacroWords, NotKnown, macros_of, which_names

_STR = b"STR_(x) #x\nSTR(x) STR_(x)\n"


def _comes_to(operand: bytes, definitions: bytes, name: bytes) -> bool:
    patterns = which_names(operand, macros_of([definitions]), [], renamed=False)
    assert isinstance(patterns, frozenset)
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
        (b"H", b'H " x.h "', [b" x.h "]),
        (b"H", b'H "../ a / x.h"', [b"../ a / x.h"]),
        (b"__has_include(H)", b"H <x.h>", [b"x.h"]),
        (b"HAS(x)", b"HAS(n) __has_include ( <lib/n.h> )", [b"lib/x.h"]),
        (b"HAS (<x.h>)", b"HAS __has_include", [b"x.h"]),
        (b'H __has_include("y.h")', b"H <x.h>", [b"x.h", b"y.h"]),
        (b"<m>", b"m n", [b"n", b"n.stdh"]),
        (b'F(S("x.h"))', b'F(a) <a>\nS(a) "x.h"', [b'"x.h"']),
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
    assert not isinstance(which_names(operand, macros_of([definitions]), [], renamed=False), frozenset)


def _answer(operand: bytes, definitions: bytes) -> object:
    return which_names(operand, macros_of([definitions]), [], renamed=False)


@pytest.mark.parametrize(
    ("operand", "definitions"),
    [
        (b"S(as_int(m).h)", b"S(x) #x"),
        (b"S(other(m).h)", b"S(x) #x"),
        (b"S(__SIZE_TYPE__.h)", b"S(x) #x"),
        (b"C(NULL,.h)", b"C(x, y) <x##y>"),
        (b"\xc3\xa9", b"\\u00e9 <x.h>"),
        (b"__VERSION__", b'__VERSION__ "x.h"'),
        (b"__has_include", b"A 1"),
        (b"__has_include(", b"A 1"),
    ],
)
def test_what_is_not_understood_is_not_known(operand: bytes, definitions: bytes) -> None:
    """Macros of the compiler, other letters and probes without an operand have an answer of their own."""
    assert _answer(operand, definitions) == NotKnown()


@pytest.mark.parametrize("operand", [b"H", b"IN(x.h)", b"x <x.h>", b'L "x.h"', b"1", b"__has_include(H)"])
def test_what_no_compiler_takes_for_a_name_names_nothing(operand: bytes) -> None:
    """An include of a macro that nothing defines, as for a user's configuration, does no harm."""
    assert _answer(operand, b"A 1") == frozenset()


@pytest.mark.parametrize("operand", [b"<x.h", b'"x.h', b"(<x.h>)", b"'x.h'", b"IN(<x.h>"])
def test_a_name_that_does_not_end_may_be_made_of_its_words(operand: bytes) -> None:
    """It is not taken for an include without a name."""
    answer = _answer(operand, b"IN(x) x")
    assert isinstance(answer, MacroWords) and answer.allows(b"x.h")


@pytest.mark.parametrize("name", [b"((void*)0).h", b"0x1.fffffep127f.h", b"NULL.h"])
def test_a_macro_of_the_compiler_in_capitals_may_be_any_text(name: bytes) -> None:
    """Such as that of NULL or FLT_MAX, if no text defines the word."""
    assert _comes_to(b"S(NULL.h)", b"S_(x) #x\nS(x) S_(x)", name)
