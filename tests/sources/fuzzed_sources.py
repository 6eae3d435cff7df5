"""Seeded sources with includes that are hard to read, and the files that a compiler opens for them."""

# Words in lines are easier to read than lists of strings.
# ruff: noqa: SIM905, E501

import os
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

from gpucache.engine.workers.opened_files import OPENED_FILES
from tests.sources import compiler_process

T = TypeVar("T")
_HEADERS = "m.h n.h sub/m.h sub/p.h 1.h m é.h .h q.h q/m.h x.y program.cu mm.h m.bin".split()
_ODD_NAMES = [*"gone.h ../b/m.h ./q.h sub//m.h /*m.h it's.h \\u00e9.h m.h\\ m.stdh".split(), " m.h", "m.h "]
_LITERALS = ['"%s"', "<%s>"] * 6 + ['"%s', "<%s", 'L"%s"', 'R"(%s)"', "'%s'", "<:%s:>", "(<%s>)", '""  "%s"']
_MACROS = "A H H H é \\u00e9 STR CAT F _H __H__ E ANG LIT linux m h ID HAS".split()
_DEFINED = """\
#define S(x) #x
#define STR(x) S(x)
#define CAT_(x,y) x##y
#define CAT(x,y) CAT_(x,y)
#define ID(x) x
#define E
#define F(x) <x>
#define ANG(x) <x>
#define VA(...) <__VA_ARGS__>
#define VS(...) #__VA_ARGS__
#define LT <
#define LIT "m.h"
#define TWO(x,y) x y
#define HAS(x) __has_include(x)
"""
_NAMING = r"""STR(%s.h)|S(%s.h)|STR(%s/m.h)|<%s.h>|ANG(%s.h)|F(%s)|LT %s.h>|LT <:%s.h:>.h>|TWO(<%s,.h>)|<E %s.h>
ID(STR)(%s.h)|STR(E %s.h)|F(ID(%s.h))|ANG(HAS(ID(%s)).h)|VA(<%s,.h>)|VS(<\x6d,%s.h>)|S(\x6d%s)|CAT(<%s,.h>)
CAT(S,TR)(%s.h)|LIT %s|ID(ID(LIT))|F(%s-h)|F(m,%s.h)|STR(../b/%s.h)|STR((%s).h)|TWO(F,(%s.h))|H|A|HAS(<%s.h>)
_Pragma("once") <%s.h>|ID(<%s.h>|__FILE__|__BASE_FILE__|__VERSION__|\|@|1|##|...|__VA_ARGS__|$x""".replace(
    "\n", "|"
).split("|")
_WORDS = (
    "m n 1 sub q mm __SIZE_TYPE__ __LINE__ __COUNTER__ M_PI NULL as_int(m) __FILE__ E ID(m) \\x6d".split()
)
_BODIES = """#x|# x|<x>|x##y|x%:%:y|__VA_ARGS__|#__VA_ARGS__|__has_include|__has_include(x)|_Pragma(#x)|<|x.h
__FILE__|??=x|__VA_OPT__(<q.h>) x|ANG|STR(x)|HAS(<m.h>)|n""".replace("\n", "|").split("|")
_PROBES = "__has_include __has_include __has_include_next __has_embed __has_inc\\\nlude HAS HAS".split(" ")
_ASKED = (
    """{0}({1})|{0}({1})|1 && {0} ({1})|{0}(\n{1})|{0} {1}|H|{0}|ID({0}({1}))|ID({0})({1})|ID(1) && !{0}({1})
defined(H) \\|\\| {0}({1})""".replace("\\|", "\1")
    .replace("|", "\2")
    .replace("\1", "|")
    .split("\2")
)
_SIGNS = ["#"] * 40 + [
    "%:",
    "??=",
    "# ",
    "/**/#",
    "/*\n*/#",
    "\t#",
    "\f#",
    "\0#",
    "\\\n#",
    "#\\\n",
    "'#",
    "\r#",
]
_BLANKS = [" ", " ", "\t"] * 8 + [
    "\f",
    "/**/",
    " /* \n */ ",
    "\\\n",
    "\\\r\n",
    "??/\n",
    "\\ \n",
    "/*'*/",
    "\u00a0",
]
_ENDS = [""] * 12 + [
    " junk",
    " // c",
    " /* c",
    "\\",
    " limit(1)",
    "/*\n*/#include <q.h>",
    ' __has_include("q.h")',
]
_LINES = r"""#warning see docs/*.md|#error see /* it's|#if 0\n'/* \n#endif|#pragma R"(|#ident "/*"|#define X "/*|R"x(\n)" /*
char c='"';|int n=1'000'/*0;|// \|// ??/|/\\n* */|# 1 "m.h"|#line 1 "m.h"|#pragma once|#pragma push_macro("H")
#pragma pop_macro("H")|#undef H|#undef STR|#unknown "m.h"|#\u0069nclude "m.h"|#if 0\n# 'x\n#include <m.h>\n#endif|import <m.h>;|export import <q.h>;|import H;
ID(\n#include <n.h>\n)|ID(ID\n#undef ID\n(x)|#define m mm|#define m n|#define sub q|#pragma GCC dependency "n.h"|_Pragma("once")
#if __COUNTER__ == __INCLUDE_LEVEL__\n#endif|R"(\n#include <m.h>\n)";|int a = HAS(<m.h>);|#include_next <m.h>|#else
asm(".incbin \"m.bin\"");|asm(".inc" "lude \"m.h\"");|asm(S(.incbin) " \"m.bin\"");|asm("\x2eincbin \"m.bin\"");""".replace(
    "\n", "|"
).split("|")
_NOISE = ["/*", "*/", '"', "'", "\\\n", "\n", "#", "??/", 'R"(', "<", "(", "\r", "\0", "%:", "\u00a0", "1'"]


class Fuzzed(NamedTuple):
    """A source with its options."""

    source: str
    definitions: tuple[str, ...]
    forced: tuple[str, ...]
    others: tuple[str, ...]


Work = tuple[str, tuple[tuple[str, str], ...], str, tuple[Fuzzed, ...]]
"""A compiler's name and environment, a directory with headers, and sources."""


class Writer:
    """Writes sources and headers for one compiler; equal seeds write equal ones."""

    def __init__(self, seed: int, *, nvrtc: bool) -> None:
        self._random = Random(seed)
        self._nvrtc = nvrtc

    def headers(self, root: Path) -> None:
        """Write the directories ``a``, ``b`` and ``cwd``; a header includes little, or NVRTC takes minutes."""
        some = ["", "#define H <q.h>\n", '#include "n.h"\n', "#define m n\n"]
        for folder, share in (("a", 0.6), ("b", 0.8), ("cwd", 0.15)):
            (root / folder / "sub").mkdir(parents=True)
            for name in _HEADERS:
                path = root / folder / name
                if self._random.random() < share and not path.is_dir() and not path.parent.is_file():
                    path.parent.mkdir(exist_ok=True)
                    text = self._line() if self._random.random() < 0.15 else self._of(some)
                    path.write_text(f"#pragma once\n{text}", encoding="utf-8", newline="")

    def source(self) -> Fuzzed:
        """A source that compiles fast, or not at all."""
        given = [(), (), (), ("H=<m.h>",), (r"H=\"m.h\"",), ("m=n",), ("E=",), ("C=CAT(S,TR)",)]
        standards = (
            ["-std=c++11", "-std=c++20", "-std=c++20"] if self._nvrtc else ["-cl-std=CL2.0", "-cl-std=CL3.0"]
        )
        forced = self._of([()] * 9 + [("m.h",), ("gone",)]) if self._nvrtc else ()
        return Fuzzed(self._text(), self._of(given), forced, self._of([(), ("-UH",), *zip(standards)]))

    def _text(self) -> str:
        lines = [self._line() for _ in range(self._of([1, 1, 2, 2, 3, 5]))]
        text = (_DEFINED if self._random.random() < 0.8 else "") + "\n".join(lines) + self._of(["\n", ""])
        if self._random.random() < 0.15:
            place = self._random.randrange(len(text) + 1)
            text = text[:place] + self._of(_NOISE) + text[place + self._of([0, 0, 1]) :]
        return text.replace("\n", "\r\n") if self._random.random() < 0.04 else text

    def _line(self) -> str:
        kind = self._random.random()
        if kind < 0.4:
            return self._directive(
                self._of(["include"] * 6 + ["include_next", "import", "embed"]), self._operand()
            )
        if kind < 0.6:
            parameters = self._of(["", "", "(x)", "(x,y)", "(...)", " (x)"])
            body = self._of([self._operand(), self._literal(), self._of(_BODIES)])
            return self._directive("define", f"{self._of(_MACROS)}{parameters} {body}")
        if kind < 0.8:
            word = self._of(["if"] * 5 + ["elif", "ifdef", "ifndef", "line"])
            asked = self._of(_ASKED).format(self._of(_PROBES), self._operand())
            inner = self._of(["", self._directive("include", self._operand()) + "\n"])
            return self._directive(word, f"{asked}\n{inner}#endif")
        return self._of(_LINES).replace("\\n", "\n")

    def _directive(self, name: str, rest: str) -> str:
        if self._random.random() < 0.05:
            place = self._random.randrange(len(name))
            name = name[:place] + self._of(["\\\n", "??/\n", "\\ \n", "/**/"]) + name[place:]
        return f"{self._of(_SIGNS)}{self._of(_BLANKS)}{name}{self._of(_BLANKS)}{rest}{self._of(_ENDS)}"

    def _literal(self) -> str:
        return self._of(_LITERALS) % self._of(_HEADERS * 2 + _ODD_NAMES)

    def _operand(self) -> str:
        if self._random.random() < 0.35:
            return self._literal()
        return (
            self._of(_NAMING).replace("%s", self._of(_WORDS))
            if self._random.random() < 0.8
            else self._of(_MACROS)
        )

    def _of(self, choices: Sequence[T]) -> T:
        return self._random.choice(choices)


def opened(given: Work) -> list[tuple[str, tuple[Path, ...]]]:
    """In a worker: for each source the compiler's answer, and the files that it opened below a directory."""
    name, environment, root, sources = given
    os.environ.update(environment)
    warnings.simplefilter("ignore")
    compile_ = compiler_process.compiler(name)
    _answer(compile_, Fuzzed("", (), (), ()), root)  # loads its libraries
    answers = []
    os.chdir(Path(root, "cwd"))
    for each in sources:
        answer, paths = OPENED_FILES.watch(partial(_answer, compile_, each, root))
        answers.append((answer, tuple(Path(path) for path in paths or () if path.startswith(f"{root}/"))))
    return answers


def _answer(compile_: compiler_process.Compile, each: Fuzzed, root: str) -> str:
    forced = [word for name in each.forced for word in ("-include", name)]
    definitions = [f"-D{one}" for one in each.definitions]
    try:
        return str(compile_(each.source, [f"-I{root}/a", f"-I{root}/b", *definitions, *forced, *each.others]))
    except Exception as error:  # such as that it compiles, and has no kernel
        return str(error)
