"""The contents of a closure, the changes that affect it, and those that do not."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpucache.keys import Closure, Include, digest
from gpucache.sources import Limits, Place, SearchRule, Wanted, read_closure, reading, still_closure
from tests.children import run_python
from tests.redirecting import FUNCTIONS, redirecting
from tests.unprivileged import as_nobody, needs_root

Tree = Callable[..., Path]
RULE = SearchRule((Place.INCLUDER, Place.CWD, Place.DIRS), (Place.DIRS,))
DIRS_ONLY = SearchRule((Place.DIRS,), (Place.DIRS,))


def _closure(source: bytes, root: Path, *dirs: str, rule: SearchRule = RULE, **changes: Any) -> Closure:
    return read_closure(Wanted(source, rule, [str(root / each) for each in dirs], **changes))


def test_headers_of_headers_are_covered_by_name_and_content(tree: Tree) -> None:
    """Each header appears once, sorted, as spelled, with the digest of its content or without one."""
    root = tree({"a/x.h": b'#include "sub/y.h"\n#include <gone.h>', "a/sub/y.h": b"y"})
    closure = _closure(b"#include <x.h>", root, "a")
    assert closure.includes == (
        Include("gone.h", None),
        Include("sub/y.h", digest(b"y")),
        Include("x.h", digest(b'#include "sub/y.h"\n#include <gone.h>')),
    )
    assert closure.files == (str(root / "a/x.h"), str(root / "a/sub/y.h"))


def test_two_spellings_of_one_header_are_both_recorded(tree: Tree) -> None:
    """A header reached by two names is read once and recorded under both."""
    root = tree({"a/x.h": b"x", "b/y.h": b'#include "../a/x.h"'})
    closure = _closure(b"#include <a/x.h>\n#include <b/y.h>", root, ".")
    assert [item.name for item in closure.includes] == ["../a/x.h", "a/x.h", "b/y.h"]
    assert len(closure.files) == 2


def test_moving_and_touching_a_tree_changes_nothing(tree: Tree, tmp_path: Path) -> None:
    """Neither place, times nor the spelling of include directories enter a closure."""
    source = b'#include <x.h>\n#include "gone.h"'
    root = tree({"a/x.h": b'#include "../b/y.h"', "b/y.h": b"#include <z.h>", "b/z.h": b"z"})
    before = _closure(source, root, "a", "b")
    shutil.copytree(root, tmp_path / "moved" / "deeper")
    os.utime(root / "a/x.h", (1, 1))
    assert _closure(source, tmp_path / "moved" / "deeper", "a", "b") == before
    relative = read_closure(
        Wanted(source, rule=DIRS_ONLY, include_dirs=["./a", "b/../b/", "a"], cwd=str(root))
    )
    assert relative == _closure(source, root, "a", "b", rule=DIRS_ONLY)


@pytest.mark.parametrize(
    "changed",
    [
        {"b/x.h": b"changed"},
        {"a/x.h": b"shadows"},
        {"a/gone.h": b"appears"},
        {"a/probed.h": b"appears"},
        {"b/next/x.h": b"other"},
    ],
)
def test_a_change_of_what_a_name_leads_to_changes_the_closure(
    tree: Tree, changed: Mapping[str, bytes]
) -> None:
    """New content, a file earlier in the search, and a name that begins to resolve are noticed."""
    source = b"#include <x.h>\n#include <gone.h>\n#if __has_include(<probed.h>)\n#endif\n#include_next <x.h>"
    root = tree({"a/.keep": b"", "b/x.h": b"x", "b/next/x.h": b"n"})
    dirs = ("a", "b", "b/next")
    before = _closure(source, root, *dirs)
    tree(changed)
    assert _closure(source, root, *dirs) != before


def test_equal_contents_reached_differently_differ(tree: Tree) -> None:
    """Which header leads to which content is part of the closure, though names and contents are equal."""
    one = tree(
        {"p/a.h": b'#include "v.h"', "p/v.h": b"1", "q/b.h": b'#include "v.h"\n', "q/v.h": b"2"}, root="one"
    )
    two = tree(
        {"p/a.h": b'#include "v.h"', "p/v.h": b"2", "q/b.h": b'#include "v.h"\n', "q/v.h": b"1"}, root="two"
    )
    source = b"#include <p/a.h>\n#include <q/b.h>"
    first, second = _closure(source, one, "."), _closure(source, two, ".")
    assert first.includes == second.includes
    assert first.resolution != second.resolution


def test_the_form_of_an_include_is_part_of_how_it_was_found(tree: Tree) -> None:
    """Quotes and brackets are distinguished where both lead to the same header."""
    root = tree({"a/x.h": b"x"})
    quoted, angled = (_closure(form, root, "a") for form in (b'#include "x.h"', b"#include <x.h>"))
    assert quoted.includes == angled.includes
    assert quoted.resolution != angled.resolution


@pytest.mark.parametrize("others", [("a", "b"), ("a", "b", "a/sub")])
def test_where_a_header_is_its_own_next_one_counts(tree: Tree, others: tuple[str, ...]) -> None:
    """A compiler may find the includer again in a later directory, before or after another header."""
    root = tree({"a/sub/x.h": b"#ifndef X\n#define X\n#include_next <x.h>\n#endif", "b/x.h": b""})
    source = b"#include <sub/x.h>"
    itself, other = (_closure(source, root, *dirs) for dirs in (("a", "a/sub", "b"), others))
    assert itself.resolution != other.resolution


def test_a_directory_given_twice_counts_where_the_next_header_is_asked_for(tree: Tree) -> None:
    """A compiler may find the includer itself as the next one; any other include finds the same."""
    root = tree(
        {"a/x.h": b"#include_next <x.h>", "b/x.h": b"#include_next <x.h>", "a/y.h": b"", "b/y.h": b""}
    )
    orders = (("a", "b"), ("a", "b", "a"), ("a", "a", "b"))
    assert len({_closure(b"#include <x.h>", root, *order).resolution for order in orders}) == 3
    assert len({_closure(b"#include <y.h>", root, *order).resolution for order in orders}) == 1


def test_a_linked_header_differs_from_a_copy(tree: Tree) -> None:
    """``#pragma once`` distinguishes one file under two names from two files, and so does the closure."""
    source, once = b"#include <x.h>\n#include <y.h>", b"#pragma once\n"
    copied = _closure(source, tree({"x.h": once, "y.h": once}, root="copied"), ".")
    linked = _closure(source, tree({"x.h": once, "y.h": "x.h"}, root="linked"), ".")
    assert copied.includes == linked.includes
    assert copied.resolution != linked.resolution


def test_without_a_current_directory_relative_names_lead_nowhere(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current directory of this process is never searched."""
    root = tree({"x.h": b"x"})
    monkeypatch.chdir(root)
    closure = read_closure(Wanted(b'#include "x.h"', rule=RULE, include_dirs=["."]))
    assert closure.includes == (Include("x.h", None),)


def test_a_rule_of_unknown_order_covers_every_match(tree: Tree) -> None:
    """With ``every``, each place that has the name counts."""
    root = tree({"a/x.h": b"1", "b/x.h": b"2"})
    rule = SearchRule((Place.DIRS,), (Place.DIRS,), every=True)
    closure = _closure(b"#include <x.h>", root, "a", "b", rule=rule)
    assert {item.digest for item in closure.includes} == {digest(b"1"), digest(b"2")}


def test_forced_headers_are_covered_with_what_they_include(tree: Tree) -> None:
    """The names of ``-include`` options are looked up in the current directory first, and followed."""
    root = tree({"x.h": b"#include <y.h>", "a/x.h": b"no", "a/y.h": b"y"})
    closure = _closure(b"", root, "a", cwd=str(root), forced=["x.h", "no.h"])
    assert [(item.name, item.digest is None) for item in closure.includes] == [
        ("no.h", True),
        ("x.h", False),
        ("y.h", False),
    ]


def test_headers_that_include_each_other_end_the_walk(tree: Tree) -> None:
    """Cycles, also through ``..``, and chains deeper than any recursion limit are walked once."""
    chain = {f"a/{n}.h": b'#include "%d.h"' % (n + 1) for n in range(1200)}
    root = tree({**chain, "a/1200.h": b'#include "../a/0.h"'})
    closure = _closure(b"#include <0.h>", root, "a")
    assert (len(closure.files), closure.uncacheable) == (1201, None)


def test_names_that_no_file_can_have_are_recorded_as_absent(tree: Tree) -> None:
    """Too long names, NULs and undecodable bytes resolve nowhere and keep their spelling."""
    source = b'#include "%b"\n#include "a\0b"\n#include "\xff"' % (b"n" * 5000)
    names = [(item.name, item.digest) for item in _closure(source, tree({}), ".").includes]
    assert names == [("a\0b", None), ("n" * 5000, None), ("\udcff", None)]


def test_undecodable_names_are_found(tree: Tree) -> None:
    """A header whose name is not UTF-8 is read like any other."""
    root = tree({os.fsdecode(b"\xff.h"): b"x"})
    assert _closure(b'#include "\xff.h"', root, ".").includes == (Include("\udcff.h", digest(b"x")),)


def test_an_include_through_a_macro_covers_all_that_it_can_come_to(tree: Tree) -> None:
    """Every definition of a macro counts, whichever is in force, and nothing else does."""
    files = {
        "a/x.h": b"#include <y>",
        "a/sub/y": b"y",
        "a/sub/x.txt": b"t",
        "a/.gen/x.h": b"h",
        "a/.gen/x.txt": b"g",
        "a/z.h": b"z",
        "a/x-h": b"s",
    }
    source = b"""
        #define STR_(name) #name
        #define STR(name) STR_(name)
        #ifdef OTHER
        #define FOLDER sub
        #define SUFFIX txt
        #else
        #define FOLDER .gen
        #endif
        #include STR(FOLDER/x.SUFFIX)
        #include STR(x.h)
    """
    closure = _closure(source, tree(files), "a")
    assert [item.name for item in closure.includes] == [".gen/x.txt", "sub/x.txt", "x.h", "y"]


@pytest.mark.parametrize(
    ("options", "source"),
    [
        (["P={tmp}/far"], b"#include STR(P/farthest.h)"),
        (["P=../far"], b"#include STR(P/farthest.h)"),
        (["P=.."], b"#include STR(P/far/farthest.h)"),
        (["P=link/.."], b"#include STR(P/farthest.h)"),
        (["P=", "Q={tmp}"], b"#include STR(Q/P/far/farthest.h)"),
        (["H={tmp}/far/farthest.h", "N(a)=STR(a)"], b"#include N(H)"),
        (['H="../far/farthest.h"'], b"#include H"),
    ],
)
def test_what_lies_outside_is_covered_where_a_macro_can_name_it(
    tree: Tree, tmp_path: Path, options: list[str], source: bytes
) -> None:
    """Absolute names, parents and parents of linked directories are followed, through options.

    No other file above has a name like this.
    """
    root = tree({"a/link": "../far/deep", "far/deep/.keep": b"", "far/farthest.h": b"1"}, root=".")
    text = b"#define STR_(name) #name\n#define STR(name) STR_(name)\n" + source
    closure = _closure(text, root, "a", definitions=[option.format(tmp=tmp_path) for option in options])
    assert closure.uncacheable is None
    assert digest(b"1") in {item.digest for item in closure.includes}


def test_a_header_that_an_absolute_macro_names_is_told_by_its_path(tree: Tree) -> None:
    """It has its path on disk as its name, not one below a searched directory."""
    root = tree({"a/.keep": b"", "far/x.h": b"1"})
    source = b"#define STR_(name) #name\n#define STR(name) STR_(name)\n#include STR(P/x.h)"
    closure = _closure(source, root, "a", definitions=[f"P={root}/far"])
    assert str(root / "far/x.h") in {item.name for item in closure.includes}


def test_a_current_directory_that_gives_nothing_changes_nothing(tree: Tree) -> None:
    """A sweep without a current directory gives the same as one from a directory without such headers."""
    root, source = tree({"a/x.h": b"x", "cwd/y.h": b"y"}), b"#define H <x.h>\n#include H"
    rule = SearchRule((Place.CWD, Place.DIRS), (Place.CWD, Place.DIRS))
    without, within = (_closure(source, root, "a", rule=rule, cwd=cwd) for cwd in (None, str(root / "cwd")))
    assert without == within


@pytest.mark.parametrize(
    "option",
    [
        r"H=\"x.h\"",
        'H="<x.h>"',
        '"H=<x.h>"',
        '"H"=<x.h>',
        r'H="\"x.h\""',
        '"H="<x".h>"',
        "H='\"x.h\"'",
        "H='\"<x.h>\"'",
    ],
)
def test_an_include_through_an_option_is_covered_however_the_compiler_takes_its_quotes(
    option: str, tree: Tree
) -> None:
    """A compiler may remove quotes and backslashes from an option before it defines the macro."""
    root = str(tree({"x.h": b"x"}))
    closure = read_closure(Wanted(b"#include H", rule=RULE, include_dirs=[root], definitions=[option]))
    assert closure.includes == (Include("x.h", digest(b"x")),)


def test_a_sweep_finds_what_the_definitions_of_found_headers_name(tree: Tree) -> None:
    """A header found by a sweep can define the operand of the next include."""
    files = {"a/one.h": b"#define NEXT <far/two.h>\n", "a/far/two.h": b"2", "a/far/three.h": b"3"}
    closure = _closure(b"#define FIRST <one.h>\n#include FIRST\n#include NEXT", tree(files), "a")
    assert [item.name for item in closure.includes] == ["far/two.h", "one.h"]


def test_an_include_through_a_macro_covers_what_lies_beside_its_header(tree: Tree) -> None:
    """A header outside all include directories can name its own neighbours."""
    root = tree({"a/.keep": b"", "out/h.h": b'#define M "n.h"\n#include M', "out/n.h": b"n"})
    closure = _closure(b"#include <../out/h.h>", root, "a")
    assert Include("n.h", digest(b"n")) in closure.includes


def test_it_counts_in_which_directory_an_include_through_a_macro_may_find_a_header(tree: Tree) -> None:
    """A header next to the source differs from the equal one in an include directory, found by ``<x.h>``."""
    source = b"#define M(name) <name>\n#include M(x.h)\n"
    root = tree({"home/x.h": b"x", "a/y.h": b"y", "b/x.h": b"x"})
    rule = SearchRule((Place.INCLUDER, Place.DIRS), (Place.DIRS,), home=str(root / "home"))
    beside = _closure(source, root, "a", rule=rule)
    (root / "home/x.h").rename(root / "a/x.h")
    found = _closure(source, root, "a", rule=rule)
    assert beside.resolution != found.resolution
    assert _closure(source, root, "b", rule=rule).resolution == found.resolution


def test_a_macro_around_a_probe_in_another_header_is_followed(tree: Tree) -> None:
    """CCCL's wrapper around ``__has_include`` is understood if its argument is a literal."""
    files = {"a/has.h": b"#define HAS(n) __has_include(n)", "a/other.h": b"o"}
    root = tree(files)
    literal = _closure(b"#include <has.h>\n#if HAS(<x.h>)\n#endif", root, "a")
    assert [item.name for item in literal.includes] == ["has.h", "x.h"]
    hidden = _closure(b"#include <has.h>\n#define X <other.h>\n#if HAS(X)\n#endif", root, "a")
    assert hidden.uncacheable is not None and "headers = [...]" in hidden.uncacheable
    assert _closure(b"#include <has.h>\nint x = HAS(<x.h>);", root, "a").uncacheable is not None


def test_a_macro_that_asks_for_one_header_is_followed(tree: Tree) -> None:
    """As libstdc++'s for TBB, wherever it is used, if all files search the same places for it."""
    root = tree({"a/asks.h": b"#define ASKS __has_include(<x.h>)\n#define WORD __has_include(<y.h>)"})
    source = b"#include <asks.h>\n#define USES ASKS\n#if USES\n#endif"
    without = _closure(source, root, "a")
    assert [item.name for item in without.includes] == ["asks.h", "x.h", "y.h"]
    tree({"a/x.h": b"1"})
    assert _closure(source, root, "a").includes != without.includes
    beside = SearchRule((Place.INCLUDER, Place.DIRS), (Place.INCLUDER, Place.DIRS))
    assert _closure(source, root, "a", rule=beside).uncacheable is not None
    assert _closure(b"#define y z\n" + source, root, "a").uncacheable is not None


@pytest.mark.parametrize(
    "limits", [Limits(files=1), Limits(total_bytes=1), Limits(file_bytes=0), Limits(folder_entries=2)]
)
def test_a_sweep_beyond_the_limits_is_uncacheable_and_named_headers_cure_it(
    tree: Tree, limits: Limits
) -> None:
    """The reason has the remedy, and the remedy works."""
    root = tree({"a/x.h": b"1", "a/y.h": b"2", "a/z.h": b"3"})
    source = b"#define HEADER <x.h>\n#define OTHER <y.h>\n#include HEADER\n#include OTHER"
    reason = _closure(source, root, "a", limits=limits).uncacheable
    assert reason is not None and "headers = [...]" in reason
    cured = _closure(source, root, "a", named_headers=[str(root / "a/x.h")], limits=Limits(files=1))
    assert (cured.includes, cured.uncacheable) == ((Include("x.h", digest(b"1")),), None)


def test_a_named_header_that_is_missing_is_uncacheable() -> None:
    """A mistyped name in the manifest does not leave a header uncovered."""
    closure = read_closure(Wanted(b"#include HEADER", rule=RULE, named_headers=["/nowhere/x.h"]))
    assert closure.uncacheable is not None and "/nowhere/x.h" in closure.uncacheable


@pytest.mark.parametrize(
    "text",
    [
        '__asm__(".incbin \\"blob\\"");',
        '__asm(".INCLUDE \\"blob\\"");',
        '__asm__(".inc" "bin \\"blob\\"");',
        '__asm__(".inc\\142in \\"blob\\"");',
        '__asm__("\\x2eincbin \\"blob\\"");',
        '__asm__(".inc\\x{62}in \\"blob\\"");',
        '__asm__(".inc\\o{142}in \\"blob\\"");',
        '__asm__("nop\\n.incbin \\"blob\\"");',
        '__asm__("." "incbin \\"blob\\"");',
        '__asm__("\\".incbin\\" \\"blob\\"");',
        '__asm__(".inc{bin|} \\"blob\\"");',
        '__asm__(".macro m a\\n.inc\\\\a \\"blob\\"\\n.endm\\nm bin");',
        '__asm__(".irp x,bin\\n.inc\\\\x \\"blob\\"\\n.endr");',
        '#define S(x) #x\n__asm__(S(.incbin) " \\"blob\\"");',
        '#define S(x) #x\n#define D .\n__asm__(S(D) "incbin \\"blob\\"");',
        '#define S(x) #x\n#define E\n#define T(x) S(x)\n__asm__(T(E.incbin) " \\"blob\\"");',
        '#define S(x) #x\n#define E\n#define T(x) S(x)\n__asm__(T(E.inc) "bin \\"blob\\"");',
        '#define S(x) #x\n#define E()\n#define T(x) S(x)\n__asm__(T(E().inc) "bin \\"blob\\"");',
        '__asm__(R"(\n.incbin "blob"\n)");',
        '#define S(x) #x\n__asm__(S(\\x2eincbin) " \\"blob\\"");',
        '#define S(x) #x\n#define E\n#define T(x) S(x)\n__asm__(T(E.i) "ncbin \\"blob\\"");',
        "__asm__ volatile ((text()));",
        '#define A __as##m__\nA(".incbin \\"blob\\"");',
        '#define CAT(a, b) a##b\nCAT(__as, m__)(".incbin \\"blob\\"");',
        '#define CAT(a, b) a##b\nCAT(__as, m)(".incbin \\"blob\\"");',
        '#define CAT(a, b, c) a##b##c\nCAT(__, as, m)(".incbin \\"blob\\"");',
        '#define READ ".incbin \\"blob\\""\n#include <asm.h>',
    ],
)
def test_what_an_assembler_reads_is_uncacheable_and_named_headers_cure_it(tree: Tree, text: str) -> None:
    """A program whose assembly may read a file is reported with the remedy, which is to name the file."""
    assembly = b"void read() { __asm__(READ); }"
    root = tree({"a/x.h": text.encode(), "a/asm.h": assembly, "blob": b"1"})
    reason = _closure(b"#include <x.h>", root, "a").uncacheable
    assert reason is not None and "'x.h' may have an assembler read a file" in reason
    assert "headers = [...]" in reason
    cured = _closure(b"#include <x.h>", root, "a", named_headers=[str(root / "blob")])
    assert cured.uncacheable is None and str(root / "blob") in cured.files


@pytest.mark.parametrize(
    "text",
    [
        '__asm__("mad.lo.u32 %0, %1, %2, %3; // as in config.include" : "=r"(r));',
        '__asm__("{ .reg .u32 t;\\n mov.u32 t, 1.0;\\n }");',
        '__asm__(".p2align 4\\n.byte 1, 2\\n1: jmp 1b");',
        '#define S(x) "of " #x\n__asm__("nop"); printf("%f " S(64), v.x * .5f + f().re + a[0].s0);',
        'printf("Done. %d of .incbin read.\\n", v.x);',
        '__asm__("nop"); printf("%f ... %s.", 1.5f, ".5");',
        '#define CAT(a, b) a##b\nprintf(".incbin %d", CAT(x, y));',
        "#define S(x) #x\n#define E\n__asm__(\"nop\"); f(v.i, v.re); char c = '\\n';",
        '__asm__("nop");\n#error "None of these types in <math.h>."\n',
        '#define T(INSN) __asm__("\\n\\t" INSN " %2" : "=a"(x))\nT("mull"); x.i = p->re + f().m;',
    ],
)
def test_assembly_that_reads_nothing_is_cacheable(tree: Tree, text: str) -> None:
    """Mnemonics and other directives have dots too, and a text without assembly may say anything."""
    root = tree({"a/x.h": text.encode()})
    assert _closure(b"#include <x.h>", root, "a").uncacheable is None


@pytest.mark.parametrize(
    "text",
    [
        '#pragma GCC dependency "x.h"',
        "#pragma clang dependency <x.h>",
        '_Pragma("GCC dependency \\"x.h\\"")',
        '_Pragma("GCC dependency <x.h>")',
        '#define P(x) _Pragma(#x)\nP(GCC dependency "x.h")',
        '#define D dependency\n#pragma GCC D "x.h"',
        '#define P(x) _Pragma(#x)\n#define Q(x) P(x)\n#define J(a, b) a##b\nQ(GCC J(depend, ency) "x.h")',
    ],
)
def test_a_program_that_asks_for_the_age_of_a_file_is_uncacheable(text: str) -> None:
    """No key contains the age of a file, which decides a warning of clang; NVRTC does not look."""
    source = text.encode()
    reason = read_closure(Wanted(source, rule=RULE)).uncacheable
    assert reason is not None and "leave it out" in reason
    heedless = RULE._replace(heeds_dependency=False)
    assert read_closure(Wanted(source, rule=heedless)).uncacheable is None
    plain = b"#pragma clang loop unroll(full)\n" + b"int dependence;"
    assert read_closure(Wanted(plain, rule=RULE)).uncacheable is None


def test_the_clock_in_a_header_makes_a_program_uncacheable(tree: Tree) -> None:
    """The reason names the header as spelled, the macro and the remedy."""
    closure = _closure(b"#include <x.h>", tree({"a/x.h": b"char *s = __TIME__;"}), "a")
    assert closure.uncacheable is not None
    assert "'x.h' uses __TIME__" in closure.uncacheable and "-D" in closure.uncacheable


def test_a_probe_put_together_in_a_header_is_told_and_named_headers_cure_it(tree: Tree) -> None:
    """The reason names the macro and its header, and the remedy works without a change to that header."""
    root = tree({"a/x.h": b"#define CAT(a, b) a##b\n#if CAT(__has_, include)(<y.h>)\n#endif", "a/y.h": b"y"})
    reason = _closure(b"#include <x.h>", root, "a").uncacheable
    assert reason is not None
    assert "the macro CAT in 'x.h' may put __has_include together" in reason
    assert "headers = [...]" in reason
    cured = _closure(b"#include <x.h>", root, "a", named_headers=[str(root / "a/y.h")])
    assert cured.uncacheable is None
    assert Include("y.h", digest(b"y")) in cured.includes


def test_a_file_macro_put_together_ties_to_a_place_or_to_one_build(tree: Tree) -> None:
    """A file macro is allowed if each build gives the source the same name; a clock is refused."""
    root = tree({"a/x.h": b"#define CAT(a, b) a##b\nchar *s = CAT(__FI, LE__);"})
    named = RULE._replace(names_sources=True)
    closure = _closure(b"#include <x.h>", root, "a", rule=named)
    assert (closure.uncacheable, closure.tells_name, closure.tells_places) == (None, True, True)
    for source, rule in ((b"#include <x.h>", RULE), (b"#include <x.h>\nchar *t = CAT(__DA, TE__);", named)):
        reason = _closure(source, root, "a", rule=rule).uncacheable
        assert reason is not None and "build it without gpucache" in reason


def test_naming_headers_cures_no_clock_put_together(tree: Tree) -> None:
    """A clock that may be pasted together stays uncacheable, whatever headers are named."""
    root = tree({"a/x.h": b"#define CAT(a, b) a##b\nchar *s = CAT(__TI, ME__);"})
    named = [str(root / "a/x.h")]
    reason = _closure(b"#include <x.h>", root, "a", named_headers=named).uncacheable
    assert reason is not None and "may put __TIME__ together" in reason


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_never_read(tree: Tree) -> None:
    """A name that leads to anything but a file is uncacheable, and never blocks."""
    root = tree({})
    os.mkfifo(root / "x.h")
    reason = _closure(b'#include "x.h"', root, ".").uncacheable
    assert reason is not None and "not a regular file" in reason


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(source=st.binary(max_size=100), header=st.binary(max_size=100))
def test_any_source_and_header_are_survived(tree: Tree, source: bytes, header: bytes) -> None:
    """No bytes, in the source or in a header, make reading a closure raise."""
    root = tree({"a/x.h": header})
    assert len(_closure(b"#include <x.h>\n" + source, root, "a").files) >= 1


_FRAGMENTS = [
    *(
        b'extern "C" __global__ void f(int *out) {',
        b"*out = N; }",
        b"__device__ int g;",
        b"\n",
        b"// ",
        b"/*",
    ),
    *(b"*/", b"#", b"%:", b"??=", b"??/", b"\\", b"include <a.h>", b"define X 1", b"if __has_include(<a.h>)"),
    *(
        b"endif",
        b"__DATE__",
        b"__TIME__",
        b"__TIMESTAMP__",
        b"__FILE__",
        b"__BASE_FILE__",
        b'"',
        b"'",
        b'R"(',
    ),
    *(
        b"__builtin_FILE()",
        b"std::source_location::current()",
        b"__PRETTY_FUNCTION__",
        b"printf",
        b"_",
        b"##",
    ),
    *(b"asm(\".incbin 'a.h'\");", b"__has_include", b"\xc2\x85", b"\xef\xbb\xbf", b"\0", b"\r", b" "),
]
_DEFINITIONS = [
    *("", "N", "N=4", "N=<a.h>", 'N="a.h"', "F=__FILE__", 'F=__FI"LE__', "F=__DA\\\nTE__", "J(a)=__##a")
]


def test_a_text_without_any_sign_of_a_question_has_the_closure_of_the_walk(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the text, the short way gives the walk's closure."""
    random, root, short = Random(1), tree({"a.h": b"int x;"}), 0
    plain = SearchRule((Place.INCLUDER, Place.DIRS), (Place.DIRS,))
    for _ in range(1500):
        rule = plain._replace(configuration=random.choice([None, "a.cfg", "a.h"]))
        source = b"".join(random.choices(_FRAGMENTS, k=random.randint(0, 5)))
        cwd = random.choice([None, str(root)])
        asked_for: dict[str, Any] = {"rule": rule, "include_dirs": [str(root)], "cwd": cwd}
        definitions = [each for each in random.choices(_DEFINITIONS, k=random.randint(0, 2)) if each]
        found = read_closure(Wanted(source, definitions=definitions, **asked_for))
        with monkeypatch.context() as patched:
            patched.setattr(reading, "asks_nothing", lambda *_: False)
            walked = read_closure(Wanted(source, definitions=definitions, **asked_for))
        assert found == walked, (source, definitions)
        assert found.tells_places == walked.tells_places
        short += found.stamps == ()
    assert 0 < short < 1500


def test_a_text_without_a_question_in_a_directory_that_was_changed_itself_stands(tree: Tree) -> None:
    """Permissions, a move or an image give a directory two times; its stamp is the same before and after."""
    root = tree({})
    os.utime(root, (1, 1))
    rule = SearchRule((Place.INCLUDER,), (), configuration="a.cfg")
    before = read_closure(Wanted(b"int x;", rule=rule, cwd=str(root)))
    after = still_closure(before)
    assert after is not None and before.stamps and {*before.stamps} == {*(after.stamps or ())}


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="processes have no such files here")
def test_what_each_process_finds_anew_is_uncacheable(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path through /proc leads another process elsewhere, by whatever link, or nowhere."""
    root = tree({"a/x.h": b"x"})
    (root / "links").symlink_to("/proc/self/cwd")
    (root / "a" / "gone.h").symlink_to("/proc/self/fd/1000")
    monkeypatch.chdir(root)
    through = [
        _closure(b"#include <x.h>", root, "/proc/self/cwd/a"),
        _closure(b"#include <x.h>", root, "links/a"),
        _closure(b'#include "/proc/self/cwd/a/x.h"', root),
        _closure(b'#include "/dev/fd/1000"', root),
        _closure(b"#include <gone.h>", root, "a"),
        _closure(b'#define X "gone.h"\n#include X', root, "a"),
    ]
    assert all("through /proc" in (one.uncacheable or "") for one in through)
    assert _closure(b"#include <x.h>", root, "a").uncacheable is None


def test_a_link_that_leads_to_itself_is_uncacheable(tree: Tree) -> None:
    """Some compilers go on searching after it, and for others it is an error."""
    root = tree({"a/y.h": b"", "b/x.h": b"x"})
    (root / "a" / "x.h").symlink_to("x.h")
    for source in (b"#include <x.h>", b"#define H <x.h>\n#include H"):
        assert "symbolic links" in (_closure(source, root, "a", "b").uncacheable or "")


@needs_root
def test_a_header_that_may_not_be_read_is_uncacheable() -> None:
    """NVRTC goes on searching after it, and for clang it is an error."""
    with TemporaryDirectory() as place:
        root = Path(place)
        for name, mode in (("a", 0o600), ("b", 0o644)):
            (root / name).mkdir()
            (root / name / "x.h").write_bytes(b"x")
            (root / name / "x.h").chmod(mode)
        root.chmod(0o755)
        told = as_nobody(lambda: _closure(b"#include <x.h>", root, "a", "b").uncacheable or "")
    assert "cannot be read" in told


@pytest.mark.parametrize(
    "text",
    [
        b'#define \\u00e9 "m.h"\n#include \\u00e9',
        b'#define \\u00e9 "m.h"\n#include \xc3\xa9',
        b'#line 1 "m.h"\n#include __FILE__',
        b"#define S_(x) #x\n#define S(x) S_(x)\n#include S(__SIZE_TYPE__.h)",
        b"#define S_(x) #x\n#define S(x) S_(x)\n#include S(__USER_LABEL_PREFIX__ m.h)",
        b"#include __SOME_HEADER__",
    ],
)
def test_an_operand_that_only_the_compiler_understands_is_uncacheable(tree: Tree, text: bytes) -> None:
    """A name in other letters, of ``#line``, or of a macro that only the compiler defines."""
    root = tree({"a/m.h": b"m", "a/unsigned long.h": b"l"})
    assert "that only the compiler can expand" in (_closure(text, root, "a").uncacheable or "")


def test_a_directive_and_a_no_break_space_are_not_an_include_through_a_macro(tree: Tree) -> None:
    """The name is that of a header where the space is a blank; elsewhere the directive has another name."""
    root = tree({"a/m.h": b"m", "a/n.h": b"n"})
    closure = _closure("#include\N{NO-BREAK SPACE}<m.h>".encode(), root, "a")
    assert closure.includes == (Include("m.h", digest(b"m")),)
    assert closure.uncacheable is None


def test_a_letter_outside_ascii_in_a_name_is_found_however_it_is_written(tree: Tree) -> None:
    """Compilers open the file of that letter."""
    root = tree({"a/\u00e9.h": b"m"})
    includes = _closure(b'#include "\\u00e9.h"', root, "a").includes
    assert Include("\u00e9.h", digest(b"m")) in includes


def test_a_directive_that_is_not_known_is_uncacheable_and_named_headers_cure_it(tree: Tree) -> None:
    """It may read any file, as one with other letters may for some compiler."""
    root = tree({"a/x.h": b"#include\\u005fnext <y.h>"})
    assert "'x.h' has #include" in (_closure(b"#include <x.h>", root, "a").uncacheable or "")
    named = [str(root / "a/x.h")]
    assert _closure(b"#include <x.h>", root, "a", named_headers=named).uncacheable is None


def test_a_macro_around_a_probe_in_other_letters_is_uncacheable(tree: Tree) -> None:
    """It may be used by another spelling of its name."""
    text = "#define \u00e9(x) __has_include(x)\n#if \\u00e9(<x.h>)\n#endif"
    assert "any file may be read" in (_closure(text.encode(), tree({}), ".").uncacheable or "")


def test_a_name_of_blanks_is_a_name(tree: Tree) -> None:
    """A file can have it."""
    root = tree({"a/ ": b"x"})
    assert Include(" ", digest(b"x")) in _closure(b'#define H " "\n#include H', root, "a").includes


@pytest.mark.parametrize("source", [b"#include <x>", b"#define H <x>\n#include H"])
def test_a_name_without_a_dot_may_get_a_suffix(tree: Tree, source: bytes) -> None:
    """NVRTC looks for it in each directory, before it looks in the next one."""
    rule = DIRS_ONLY._replace(suffix=".stdh")
    root = tree({"a/.keep": b"", "b/x": b"2"})
    before = _closure(source, root, "a", "b", rule=rule)
    tree({"a/x.stdh": b"1"})
    found = _closure(source, root, "a", "b", rule=rule)
    assert found != before and digest(b"1") in {item.digest for item in found.includes}


_READING = """
import sys
from gpucache.sources import Place, SearchRule, Wanted, read_closure
rule = SearchRule((Place.DIRS,), (Place.DIRS,))
print(read_closure(Wanted(b'#include "h.h"', rule, [sys.argv[1]])).uncacheable)
"""


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_header_that_a_preloaded_library_redirects_cannot_be_keyed(tree: Tree, function: str) -> None:
    """The compiler may look for it by another function than Python; others are not redirected."""
    root = tree({"a/h.h": b"1", "b/h.h": b"2"})
    there = root / ("gone.h" if function == "access" else "b/h.h")
    variables = {**os.environ, **redirecting(root, root / "a/h.h", there, function)}
    reasons = [run_python("-c", _READING, root / name, env=variables) for name in ("a", "b")]
    assert reasons[0].startswith("a preloaded library redirects '") and reasons[1] == "None\n"
