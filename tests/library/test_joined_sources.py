"""Sources that become one program: which, how it is written, and what keeps them apart."""

import pytest

from gpucache.library.joined_sources import Apart, Joined, Part, join

_SHARED = (
    "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
    '#include "c.h"\n'
    "static float half_of(float x) { return x / 2; }\n"
)


def _join(*sources: str) -> Joined | Apart:
    return join([Part(f"{letter}.cl", text.encode()) for letter, text in zip("abc", sources, strict=False)])


def _written(*sources: str) -> list[str]:
    joined = _join(*sources)
    assert isinstance(joined, Joined), joined
    return joined.source.decode().splitlines()


def test_one_source_is_left_as_it_is() -> None:
    """A batch of one source, or of one several times, is that program, with the same key."""
    assert _join("void a() {}") == _join("void a() {}", "void a() {}") == Joined("a.cl", b"void a() {}")


def test_sources_stand_behind_their_names_and_lines() -> None:
    """Each source begins after a line that names it, and so do its messages."""
    assert _written("void a() {}", "void b() {}") == [
        *('#line 1 "a.cl"', ""),
        *('#line 1 "a.cl"', "void a() {}"),
        *('#line 1 "b.cl"', "void b() {}"),
    ]


def test_what_all_begin_with_is_written_once() -> None:
    """Common includes, pragmas and functions at the beginning are there once, despite comments in between."""
    lines = _written(_SHARED + "void a() {}", f"// another\n\n{_SHARED}void b() {{}}")
    assert [line for line in lines if line] == [
        '#line 1 "a.cl"',
        *_SHARED.splitlines(),
        *('#line 3 "a.cl"', "void a() {}"),
        *('#line 5 "b.cl"', "void b() {}"),
    ]


def test_a_declaration_is_not_cut_in_two() -> None:
    """Sources that begin with the same words of different declarations share none of them."""
    lines = _written("kernel void\na(int x) { }", "kernel void\nb(int x) { }")
    assert lines[2:] == [
        '#line 1 "a.cl"',
        "kernel void",
        "a(int x) { }",
        '#line 1 "b.cl"',
        "kernel void",
        "b(int x) { }",
    ]


def test_a_macro_ends_with_its_source() -> None:
    """A macro is undefined after its source, and an error if it was defined before."""
    lines = _written("#define N 1\nvoid a() { N; }", "void b() { }")
    assert lines[2:6] == [
        '#line 1 "a.cl"',
        "#ifdef N",
        '#error "N has a meaning before this source defines it"',
        "#endif",
    ]
    assert lines[6:10] == ['#line 1 "a.cl"', "#define N 1", "void a() { N; }", "#undef N"]


def test_a_default_gives_way_to_an_option() -> None:
    """A macro that a source defines with #ifndef is undefined after it only if it was not set before."""
    lines = _written("#ifndef N\n#define N 1\n#endif\nvoid a() { N; }", "void b() { }")
    assert lines[2:6] == ['#line 1 "a.cl"', "#ifdef N", "#define gpucache_keeps_N", "#endif"]
    assert lines[-6:-2] == ["#ifndef gpucache_keeps_N", "#undef N", "#endif", "#undef gpucache_keeps_N"]


_APART = {
    "a kernel": ("kernel void a(int x) { }", "kernel void a(int y) { }", "the name a"),
    "a helper": ("int f(int x) { }", "double f(double x) { } void b() { f(1); }", "the name f"),
    "a call": ("float sin(float x) { }", "void b() { sin(1); }", "the name sin"),
    "a type": ("typedef float real; void a() { }", "typedef double real; void b() { }", "the name real"),
    "a structure": ("struct P { int x; };", "void b() { P p; }", "the name P"),
    "a constant": ("constant int table[2] = {1, 2};", "void b() { table; }", "the name table"),
    "an enumeration": ("enum M { FAST, SLOW };", "void b() { FAST; }", "the name FAST"),
    "a function of a macro": ("#define F(n) void n() { }\nF(f)", "void b() { f(); }", "the name f"),
    "a name of a macro": ("#define F(n) k_##n\nvoid F(f)(int x) { }", "void b() { f(); }", "the name f"),
    "what is in a block of C": ('extern "C" { int f(int x) { } }', "void b() { f(1); }", "the name f"),
    "a template": ("template <class T> T f(T x) { }", "void b() { f(1); }", "the name f"),
    "an include": ('#include "a.h"\nvoid a() { }', "void b() { }", "'#include \"a.h\"'"),
    "a later include": ('void b() { }', 'void a() { }\n#include "a.h"', "'#include \"a.h\"'"),
    "a pragma": ("#pragma STDC FP_CONTRACT OFF\nvoid a() { }", "void b() { }", "FP_CONTRACT OFF'"),
    "all names": ("using namespace x; void a() { }", "void b() { }", "'using'"),
    "a comment": ("void a() { } /*", "void b() { } /* */", "unterminated"),
    "a comment of a macro": ("#define A /* 1", "void b() { } /* */", "unterminated"),
    "a raw string": ('auto a = R"({)";', "void b() { }", "raw string"),
    "a brace": ("void a() {", "void b() { } }", "opens a brace"),
    "a condition": ("#if 0\nvoid a() { }", "#endif\nvoid b() { }", "opens a brace"),
}  # fmt: skip


@pytest.mark.parametrize("what", _APART)
def test_sources_that_reach_into_each_other_are_apart(what: str) -> None:
    """A use of one source's names in the other, in either order, keeps them apart and is named."""
    one, other, told = _APART[what]
    for sources in ((one, other), (other, one)):
        answer = _join(*sources)
        assert isinstance(answer, Apart), answer
        assert told in answer.reason


_TOGETHER = {
    "parameters and locals": ("void a(int x) { int i; }", "void b(float x) { float i; }"),
    "attributes": ("__attribute__((x(1))) void a() { }", "__attribute__((x(1))) void b() { }"),
    "parameters of templates": ("template <class T, int N> T a() { }", "template <class T, int N> T b() { }"),
    "macros of one name": ("#define N 1\nvoid a() { N; }", "#define N 2\nvoid b() { N; }"),
    "calls of one macro": ("#define F(n) void n() { }\nF(a)\nF(d)", "#define F(n) void n() { }\nF(b)\nF(c)"),
    "calls of one function": (_SHARED + "void a() { half_of(1); }", _SHARED + "void b() { half_of(2); }"),
    "pragmas in functions": ("void a() {\n#pragma unroll\n}", "void b() {\n#pragma unroll\n}"),
    "words in comments and texts": ("void a() { }", 'void b() { f("a"); /* a */ } // a'),
    "types of one name": ("float4 a(float4 x) { }", "float4 b(float4 x) { }"),
}  # fmt: skip


@pytest.mark.parametrize("what", _TOGETHER)
def test_sources_that_do_not_are_together(what: str) -> None:
    """Harmless common parts of two sources do not keep them apart."""
    assert isinstance(_join(*_TOGETHER[what]), Joined)


def test_a_name_cannot_end_its_line() -> None:
    """Quotes, backslashes and line ends in a name do not become code."""
    parts = [Part('a"\n#error\\', b"void a() { }"), Part("b", b"void b() { }")]
    joined = join(parts)
    assert isinstance(joined, Joined)
    assert joined.source.startswith(b'#line 1 "a\'#error/"\n')
