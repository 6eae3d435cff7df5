"""The scanner's findings in a text, and the parts that it ignores."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucache.sources.scan import can_paste, probing_macros, scan, unknown_probe


def _names(text: bytes) -> list[bytes]:
    return [mention.name for mention in scan(text).mentions]


@pytest.mark.parametrize(
    "text",
    [
        b'#include "x.h"',
        b"#include <x.h>",
        b"  #\tinclude<x.h> junk",
        b"%:include <x.h>",
        b"??=include <x.h>",
        b"/* a\nb */ # /* c */ include /* d */ <x.h> // e",
        b"#inc\\\nlude \\\r\n<x.h>",
        b"#inc??/\nlude <x.h>",
        b"// comment \\ \n#include <x.h>",
        b"#include\xc2\xa0<x.h>",
        b"\xef\xbb\xbf#include <x.h>",
        b"int a;\r#include <x.h>\r",
        b"#include\0<x.h>",
        b"#import <x.h>",
        b"#include_next <x.h>",
        b'#embed "x.h" limit(4)',
        b"#if 0\n#include <x.h>\n#endif",
        b"#if 0\ndon't \"\n#endif\n#include <x.h>",
        b"int n = 1'000'000; /* ' */\n#include <x.h> // '",
        b"char c = '\"'; /* \" */\n#include <x.h>",
        b'auto s = R"(\n")"; /* it\'s */\n#include <x.h>',
        b"# /* a */ define A /* b */ 1\n#include <x.h>",
        b'#define R\nR"("\n#include <x.h>\n")"',
        b"#if __has_include(<x.h>)",
        b'#elif defined(A) && __has_include ( "x.h" )',
        b"#if ANY_MACRO(<x.h>)",
        b"#if 0 // \r#include <x.h>",
        b"#include \r<x.h>",
        b"#inc\\\r\r\nlude <x.h>",
        b"int a; /*\n*/ # /* a */ include <x.h>",
        b"#warning see docs/*.md\n#include <x.h>\n/* end */",
        b"# /* a */ error it's in docs/*.md\n#include <x.h>\n/* end */",
        b'#warning R"(\n#include <x.h>\n)"',
        b"/*\n#warning a */\n#include <x.h>",
        b"#if 0\n#error see docs/*.md\n#endif\n#include <x.h>\n/* end */",
        b"# /* a */ warning see \\\n docs/*.md\n#include <x.h>\n/* end */",
        b"#ifndef __has_include(<x.h>)\n#endif",
        b"#elifndef A __has_include(<x.h>)",
        b'#ident "a" /*\n*/ #include <x.h>',
    ],
)
def test_a_header_is_found_however_it_is_written(text: bytes) -> None:
    """Every spelling that some compiler accepts for an include, embed or probe names its header."""
    assert _names(text) == [b"x.h"]


@pytest.mark.parametrize(
    "text",
    [
        b"#include <y.h> __has_include(<x.h>)",
        b"#include <y.h> /* c\n#include <z.h> */ __has_include(<x.h>)",
        b"int a; /*\n*/ #include <y.h> /*\n*/ __has_include(<x.h>)",
        b'#include H __has_include("x.h")',
        b"#embed <y.h> limit(__has_include(<x.h>))",
        b"int found = __has_include(\n<x.h>);",
        b"#line __has_include(<x.h>)",
        b"#if __has_include(HEADER)",
        b"#elif __has_include_next(HEADER)",
        b"#if defined(A) && __has_embed(DATA)",
        b"#if __has_include",
        b"#if __has_include(",
        b"#if __has_include(<x.h> y)",
        b"#if ID(__has_include(<M_PI.h>))",
        b"#if ID (__has_include(<x->))",
        b"#define \0\1 __has_include",
    ],
)
def test_a_probe_that_is_not_a_condition_about_a_literal_is_not_understood(text: bytes) -> None:
    """NVRTC expands probes in all of the text, also after a name and where a comment ends in another line."""
    assert scan(text).unknown


def test_a_definition_goes_on_after_a_comment_of_several_lines() -> None:
    """The comment is a blank, though what follows it looks like a directive."""
    assert b"M <x.h   #if 0" in scan(b"#define M <x.h /* a\n*/ #if 0").definitions.split(b"\n")


@pytest.mark.parametrize(
    "text",
    [
        *(b"#unknown", b"#\\u0069nclude <x.h>", b"#includ\xc3\xa9 <x.h>", b'# "x.h"', b"import <x.h>;"),
        *(
            b'export import "x.h";',
            b"im\\\nport H;",
            b"/*\n*/ import/**/<x.h>;",
            b"import x.y;",
            b"""'"'; import x; '"'""",
            b'R"(")"; import x; "',
            b'f("import x"); import y;',
            b"import :y;",
        ),
    ],
)
def test_a_directive_that_is_not_known_is_told(text: bytes) -> None:
    """It may read anything, as may a module or header unit."""
    assert scan(text).unknown


@pytest.mark.parametrize(
    "text",
    [
        *(b"#", b"#line 1", b'# 1 "x.h"', b"#pragma a", b"#undef A", b"#else a", b'#sccs "a"', b"#endif //"),
        *(b"int import = 1;", b'm::import("x.h");', b"// import x", b"a.import < b", b'#import "x.h"'),
        *(b'printf("import it\\n");', b'say("", "to import x"), say("import y");'),
    ],
)
def test_a_directive_that_reads_nothing_is_known(text: bytes) -> None:
    """It does not make a program uncacheable."""
    assert not scan(text).unknown


@pytest.mark.parametrize("name", ["sub//x.h", "sub/*x.h", "it's.h", 'sub/"x.h'])
@pytest.mark.parametrize("probe", ["__has_include", "__has_include_next", "__has_embed"])
def test_signs_in_a_probed_name_are_part_of_it(name: str, probe: str) -> None:
    """A comment or a quote does not begin in brackets, and the text after them is read too."""
    text = f"#if {probe} /* */ ( <{name}>) /* it's */\n#include <y.h>\n#endif"
    assert {name.encode(), b"y.h"} <= {*_names(text.encode())}


def test_signs_in_a_name_that_is_skipped_may_begin_a_comment() -> None:
    """If a compiler skips a directive, the comment in its brackets ends in a later line."""
    assert b"x.h" in _names(b"#if 0\n#include <y/*z.h>\n*/ #elif __has_include(<x.h>)\n#endif")


@pytest.mark.parametrize(
    ("literal", "names"),
    [(rb'"a\"b.h"', [b"a\\", rb"a\"b.h"]), (rb"<a\>b.h>", [b"a\\", rb"a\>b.h"])],
)
@pytest.mark.parametrize("form", [b"#include %b", b"#if __has_include(%b)"])
def test_a_backslash_before_the_end_of_a_name_is_read_both_ways(
    form: bytes, literal: bytes, names: list[bytes]
) -> None:
    """For some compilers the name goes on after it."""
    assert _names(form % literal) == names


@pytest.mark.parametrize(
    "text",
    [
        b"// #include <x.h>",
        b"// comment \\\n#include <x.h>",
        b"/*\n#include <x.h>\n*/",
        b"int a; #include <x.h>",
        b'"\\\n#include <x.h>"',
        b"#includes <x.h>",
        b"#pragma include <x.h>",
        b"a < b > c",
    ],
)
def test_what_is_no_directive_names_nothing(text: bytes) -> None:
    """Comments, strings and other directives are not taken for includes."""
    found = scan(text)
    assert (found.mentions, found.asked) == ((), ())


def test_both_readings_count_where_a_trigraph_may_continue_a_comment() -> None:
    """For a compiler without trigraphs the include after ``??/`` is one, so it is covered."""
    assert _names(b"// what??/\n#include <x.h>") == [b"x.h"]


def test_signs_of_a_comment_inside_a_name_belong_to_it() -> None:
    """``<a//b.h>`` and ``<a/*b.h>`` are names, and the text after them is still read."""
    text = b'#include <a//b.h>\n#include "c//d.h"\n#include <e/*f.h>\n#include <g.h>'
    assert _names(text) == [b"a//b.h", b"c//d.h", b"e/*f.h", b"g.h"]


def test_a_comment_after_the_sign_ends_at_its_own_end() -> None:
    """The text between two comments is not skipped, so a definition does not become an include."""
    assert _names(b"# /* a */ define A /* b */ include <x.h>") == []


@pytest.mark.parametrize(
    "text",
    [
        b"#include HEADER",
        b"#include_next HEADER",
        b"#embed DATA",
        b"#include NAME(x.h)",
    ],
)
def test_a_name_behind_a_macro_is_told(text: bytes) -> None:
    """An include whose name only the preprocessor knows is not ignored."""
    assert scan(text).asked


@pytest.mark.parametrize(
    "text",
    [
        b"#ifdef __has_include\n#endif",
        b"#if defined __has_include && defined(__has_include)\n#endif",
        b"#ifndef __has_include\n#define __has_include(x) 0\n#endif",
        b"#if defined(__has_include) && __has_include(<x.h>)\n#endif",
        b"#define _CCCL_HAS_INCLUDE(_X) __has_include(_X)",
        b"#endif // __has_include(HEADER)",
        b"#error no __has_include(HEADER)",
        b"#if HOST(GCC, 1) && (__has_include(<__config>) || !defined(__has_include_next))",
    ],
)
def test_a_probe_that_is_only_spoken_of_is_understood(text: bytes) -> None:
    """Asking whether probes exist, or wrapping them, is nothing unknown."""
    found = scan(text)
    assert (found.asked, found.unknown) == ((), "")


@pytest.mark.parametrize(
    ("use", "unclear"),
    [
        (b"#if HAS(<x.h>)", False),
        (b'#if defined(HAS) && HAS("x.h")', False),
        (b"#ifdef HAS", False),
        (b"#if HAS(HEADER)", True),
        (b"#if HAS(<x.h> y)", True),
        (b"#if HAS(<x.h >) && HAS(<it's.h>)", True),
        (b"#define m n\n#if HAS(<m.h>)", True),
        (b"#define m n\n#if ID(__has_include(<m.h>))", True),
        (b"#if HAS(<M_PI.h>)", True),
        (b"#if ID(HAS)(<x.h>)", True),
        (b"#define HAS(n) __has_include(<n>)\n#if HAS(<x.h>)", True),
        (b"#define HAS(n) 0\n#if HAS(<x.h>)", False),
        (b"#define OTHER(n) HAS(n)\n#if OTHER(<x.h>)", True),
        (b"#define OTHER HAS(<root/x.h>)", False),
        (b"#define OTHER HAS(<root/x.h>)\n#define FAR (OTHER)\n#if FAR", True),
        (b"#define H\xc3\xa9 HAS(<x.h>)", True),
    ],
)
def test_a_macro_around_a_probe_is_judged_by_its_uses(use: bytes, unclear: bool) -> None:
    """A literal without macros is a name in a condition; any other condition with such a macro hides one."""
    texts = [scan(b"#define HAS(n) __has_include(n)"), scan(use)]
    assert bool(unknown_probe(texts, probing_macros(texts))) is unclear


_CAT = b"#define C(a, b) a##b\n"


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        ([_CAT + b"C(__has_,include)(<x.h>)"], b"__has_include"),
        ([b"#define C(a, b) a %:%: b", b"#define A __TI\n#define B ME__"], b"__TIME__"),
        ([b"#define C(a) __##a", b"C(DATE__)"], b"__DATE__"),
        ([b"#define D __##DATE##__"], b"__DATE__"),
        ([_CAT + b"int n = sizeof(C(__FI, LE__));"], b"__FILE__"),
        ([b"#define C(b) __T##b##E__", b"C(C(_, IX))"], None),
        ([b"#define C(b) __T##b##E__\n#define D(b) I##b", b"C(D(X))\n_M"], None),
        ([b"#define C(b) __T##b##E__\n#define D(b) I##M##b", b"C(D())"], b"__TIME__"),
        ([b"#define C(x...) __VA_OPT__(__TI) ## x", b"C(ME__)"], b"__TIME__"),
        ([_CAT + b"C(C(__,has),C(_,C(include,_next)))"], b"__has_include_next"),
        ([b"#define C(a) " + b"a##" * 20_000 + b"__TI##ME__"], b"__TIME__"),
        ([_CAT + b"#define HAS(m) has_##m", b"C(__, HAS(include))"], b"__has_include"),
        ([_CAT + b"#define HAS(m) EMPTY has_##m\n#define EMPTY", b"C(__, HAS(embed))"], b"__has_embed"),
        ([_CAT + b"#define HAS(m) x(1, has_##m)", b"C(__, HAS(embed))"], b"__has_embed"),
        ([b"#define C(x) __##x##LE__", b"C(FI)"], b"__FILE__"),
        ([_CAT + b"C(C(__,TI),C(M,C(E,__)))"], b"__TIME__"),
        ([_CAT, b"C(C(__D,A),C(TE,__))"], b"__DATE__"),
        ([_CAT + b"C(__FI, C(__INT64_C_SUFFIX__, E__))"], b"__FILE__"),
        ([_CAT + b"C(__h, C(as, C(_, include)))"], b"__has_include"),
        ([_CAT + b"template <int A, int D, int E, int T, int M> int C(_, __);"], None),
    ],
)
def test_a_probe_a_clock_or_a_file_put_together_is_told(texts: list[bytes], name: bytes | None) -> None:
    """If names are pasted and the parts of such a name can meet, in any number of steps, it counts."""
    paste = can_paste([scan(text) for text in texts])
    assert (paste.name if paste else None) == name


def test_the_macro_that_puts_a_name_together_is_told() -> None:
    """The comma of a variadic macro pastes nothing."""
    paste = can_paste([scan(b"#define LOG(f, ...) g(f, ##__VA_ARGS__)\n" + _CAT + b"C(__TI, ME__)")])
    assert paste is not None and paste.chain.macro == b"C"


@pytest.mark.parametrize(
    "text",
    [
        b"C(__TI, ME__)",
        _CAT + b"__TIMER __has_x time __h include next _ __",
        _CAT
        + b"#define D(a, b) a##_##b\nint a, b, c, d, e, f, h, i, l, m, n, s, u, A, B, D, E, F, I, L, M, T;",
        _CAT + b'#include <has/__x.h>\n#error __ has_include\nchar *s = "__ has_include";',
        _CAT + b"#define H <x.h>\n#include H\nbool __, has_;",
        b"#define HAS(m) has_##m\nint __, include;",
        _CAT + b"#define HAS(m) template <class T> struct has_##m<T> {}; bool b = has_##m<T>\nC(__, embed)",
    ],
)
def test_parts_that_cannot_meet_are_no_name(text: bytes) -> None:
    """Directives and strings are not pasted, and a part that follows another word is not joined to any."""
    assert can_paste([scan(text)]) is None


def test_how_a_header_is_asked_for_is_kept() -> None:
    """Form, following and the search are distinguished for include, include_next, embed and probe."""
    text = b'#include <a>\n#include_next "b"\n#embed <c>\n#if __has_include("d")\n'
    found = [(each.name, each.angled, each.followed, each.every) for each in scan(text).mentions]
    assert found == [
        (b"a", True, True, False),
        (b"b", False, True, True),
        (b"c", True, False, True),
        (b"d", False, False, False),
    ]


@pytest.mark.parametrize("name", ["__DATE__", "__TIME__", "__TIMESTAMP__"])
def test_the_clock_is_seen_in_code_only(name: str) -> None:
    """A clock macro counts in code and definitions, and not in comments, strings or longer names."""
    assert scan(f"char *s = {name};".encode()).clock == name
    assert scan(f"#define NOW {name}".encode()).clock == name
    unused = f'// {name}\n/* {name} */ char *s = "{name}"; int x{name}, {name}x;\nR"({name})"'
    assert scan(unused.encode()).clock is None


_PIECES = (
    rb"""# include < > " ' /* */ // \ ??/ ??= R"( )" __has_include define if ( __DATE__ 1'0 %: x""".split()
)
_BLANKS = [b" ", b"\n", b"\r", b"\0", b"\xff", b"\xc2\xa0"]
_TEXTS = st.lists(st.sampled_from([*_PIECES, *_BLANKS]), max_size=40).map(b"".join)


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=200), _TEXTS))
def test_any_bytes_are_survived(data: bytes) -> None:
    """No input raises, and scanning it twice gives the same."""
    assert scan(data) == scan(data)
