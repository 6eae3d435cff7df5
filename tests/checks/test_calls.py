"""Numbering the checks of a source, and its failure table."""

import pytest
from hypothesis import given, strategies

from gpucache.checks.calls import instrument
from gpucache.errors import SourceError
from gpucache.model import Check, Checks

_PREFIX = b"#define GPUCACHE_CHECKS 2\n#line 1\n"


def _numbered(source: str) -> tuple[str, tuple[Check, ...]]:
    done = instrument(source.encode(), Checks.ASYNC)
    return done.source.removeprefix(_PREFIX).decode(), done.table


def test_each_check_gets_its_place_in_the_table() -> None:
    """Codes count from 0 in the order of the text, and the table has line and format of each."""
    source = 'GPUCACHE_CHECK(a, "one %d", b);\n\n  GPUCACHE_CHECK_SYNC(end, f(a, b) < 3, "two");\n'
    assert _numbered(source) == (
        'GPUCACHE_CHECK_N(0, a, "one %d", b);\n\n  GPUCACHE_CHECK_SYNC_N(1, end, f(a, b) < 3, "two");\n',
        (Check(1, "one %d"), Check(3, "two")),
    )


def test_a_source_without_checks_mode_is_as_it_was() -> None:
    source = b'GPUCACHE_CHECK(a, "one");'
    assert instrument(source, Checks.NONE).source == source


def test_a_byte_order_mark_stays_first() -> None:
    """The definition that enables the checks comes after the mark."""
    assert instrument(b"\xef\xbb\xbfint a;", Checks.SYNC).source.startswith(b"\xef\xbb\xbf#define")


@pytest.mark.parametrize(
    "text",
    [
        '// GPUCACHE_CHECK(a, "x")',
        '// one \\\nGPUCACHE_CHECK(a, "x")',
        '/* GPUCACHE_CHECK(a, "x") */',
        'char *s = "GPUCACHE_CHECK(a, b)";',
        'R"(GPUCACHE_CHECK(a, b))"',
        '#define AT(i) GPUCACHE_CHECK(i, "x")',
        '#define AT(i) \\\n  GPUCACHE_CHECK(i, "x")',
        'MY_GPUCACHE_CHECK(a, "x")',
        'GPUCACHE_CHECKED(a, "x")',
        "GPUCACHE_CHECK(a, FORMAT)",
        'GPUCACHE_CHECK(a, "x"',
    ],
)
def test_what_is_no_check_of_the_source_is_left_alone(text: str) -> None:
    """Comments, strings, directives, other names and computed formats get no number."""
    assert _numbered(text) == (text, ())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (r'GPUCACHE_CHECK(a, "a \"b\" \x41\101\n")', 'a "b" AA\n'),
        ('GPUCACHE_CHECK(a,\n  "one "  /* , */ \n "two // no comment")', "one two // no comment"),
        ("GPUCACHE_CHECK(x[g(1, \",)\")] == ')', \"in 'quotes'\")", "in 'quotes'"),
        ("GPUCACHE_CHECK(n == 1'000'000)", ""),
        ('GPUCACHE_CHECK_INSIDE (a, "%d%%", (b, c))', "%d%%"),
    ],
)
def test_the_format_is_what_the_compiler_would_read(call: str, message: str) -> None:
    """Escapes, joined literals, comments and commas in parentheses are read as the compiler does."""
    assert _numbered(call)[1] == (Check(1, message),)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ('GPUCACHE_CHECK(a, "%s", b)', "line 2 .*'%s', which no operand can fill"),
        ('GPUCACHE_CHECK(a, "%d")', "line 2 .*takes 1 operands and gets 0"),
        ('GPUCACHE_CHECK(a, "%*d", b, c)', "line 2 .*no operand can fill"),
        ('GPUCACHE_CHECK(a, "" "%d%d%d%d%d%d%d%d%d", 1, 2, 3, 4, 5, 6, 7, 8, 9)', "at most 8"),
    ],
)
def test_a_format_that_cannot_be_told_is_refused(call: str, why: str) -> None:
    """Each with the line it is in."""
    with pytest.raises(SourceError, match=why):
        _numbered("\n" + call)


def test_a_table_is_bounded() -> None:
    """Checks beyond the bounds keep no number, and the source still compiles."""
    many = 'GPUCACHE_CHECK(a, "x");\n' * 5000
    text, table = _numbered(many)
    assert (len(table), text.count("GPUCACHE_CHECK(")) == (4096, 904)
    long = f'GPUCACHE_CHECK(a, "{"x" * 50_000}");' * 2
    assert len(_numbered(long)[1]) == 1


@given(strategies.text(alphabet="GPUCACHE_CHECK(\"'/*\\\n,)#R%d1 ;"))
def test_any_text_keeps_its_lines(text: str) -> None:
    """Any source is read, and no line moves."""
    source = 'GPUCACHE_CHECK(a, "x");\n' + text
    try:
        numbered, _ = _numbered(source)
    except SourceError:
        return
    assert numbered.count("\n") == source.count("\n")


@pytest.mark.parametrize("closing", [b"", b")"])
def test_a_source_of_checks_within_checks_comes_to_an_end(closing: bytes) -> None:
    """A hundred thousand unclosed checks are not each searched for their end."""
    source = b"GPUCACHE_CHECK(" * 100_000 + closing * 100_000
    assert instrument(b'GPUCACHE_CHECK(a, "b");' + source, Checks.SYNC).table[0] == Check(1, "b")


def test_lines_and_files_are_those_that_a_line_directive_gives() -> None:
    """Lines are the compiler's, which also writes them into the record; a file lasts until the next one."""
    source = (
        'GPUCACHE_CHECK(a);\n#line 40 "b.cl" // c\nGPUCACHE_CHECK(b);\n\nGPUCACHE_CHECK(c);\n'
        '# line \\\n 7 /* d */\nGPUCACHE_CHECK(d);\n# 90 "d\\\\e.cl"\nGPUCACHE_CHECK(e);\n'
        "#line HERE\nGPUCACHE_CHECK(f);\n"
    )
    assert [(check.line, check.file) for check in _numbered(source)[1]] == [
        (1, ""), (40, "b.cl"), (42, "b.cl"), (7, "b.cl"), (90, "d\\e.cl"), (92, "d\\e.cl"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("kernel void gather(global int *x) { @ }", "gather"),
        ("kernel void f(int a) { } int g(void)\n{ if (x) { y; } @ }", "g"),
        ("__kernel __attribute__((reqd_work_group_size(W(1), 1, 1))) void f(int a) { @ }", "f"),
        ('extern "C" { __global__ void __launch_bounds__(256) f(int a) { for (;;) { @ } } }', "f"),
        ("namespace n { struct S { public: __device__ S(int a) : b(a) { @ } int b; }; }", "S"),
        ("template <int N = (3)> __device__ int f(int a) { @ }", "f"),
        ("int f(int a);\nstruct P { int x; };\nconstant int t[] = { 1 };\n@", ""),
        (f"/* {'x' * 5000} */\n#include <y>\n// {'z' * 5000}\n\nkernel void f(/* a) */ int a)\n{{ @ }}", "f"),
        ("kernel void f(" + "int a, " * 1000 + "int b) { @ }", ""),
        ("} } } kernel void f() { @ }", "f"),
    ],
)
def test_a_check_knows_its_function(text: str, function: str) -> None:
    """The kernel or device function around it, as far as the text has its name."""
    (check,) = _numbered(text.replace("@", 'GPUCACHE_CHECK(a, "x");'))[1]
    assert check.function == function


def test_a_table_that_left_checks_out_says_so() -> None:
    check = b'GPUCACHE_CHECK(a, "x");\n'
    assert instrument(check * 4096, Checks.SYNC).whole
    assert not instrument(check * 4097, Checks.SYNC).whole
    assert not instrument(b'#line 1 "%s"\n' % (b"y" * 65_536) + check, Checks.SYNC).whole
