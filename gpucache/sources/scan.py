"""The questions that a source text asks of other files: includes, embeds, header probes, and the clock. Pure.

Conditionals are ignored: every directive counts, as a superset is safe in a key. Compilers and dialects
disagree on trigraphs, on blanks after a continuing backslash, on Unicode blanks, on raw strings, on digit
separators and on comments of several lines. A text that contains one of these is read both ways, and all
that either reading finds counts. Any bytes can be scanned.

What is accepted is listed here, and everything else makes a text one that is not understood (``unknown``):

* a directive that is known here;
* an include (and ``include_next``, ``import``, ``embed``) of a literal; any other operand is left to
  ``macro_names.which_names``;
* in a condition a probe (``__has_include`` and its kin) of a literal, or a call, with a literal, of a macro
  that passes it on to a probe, such as CCCL's ``#define _CCCL_HAS_INCLUDE(_X) __has_include(_X)``. No word of
  ``<name>`` may be a macro, as a call expands it: ``unknown_probe`` finds that out once all texts are known.

NVRTC expands probes in all of the text, too. No program that was seen needs that.

A probe or a clock whose name is pasted together with ``##`` cannot be seen either: ``can_paste`` says
whether some texts can make one.

Must not touch files.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Flag
from typing import Any, NamedTuple

from gpucache.sources.macro_names import (
    OF_COMPILER,
    PARTS,
    PROBES_CLOCKS_AND_FILES,
    Chain,
    Paste,
    find_paste,
    read_pastes,
)
from gpucache.sources.path_constants import PathConstants, path_constants


class Mention(NamedTuple):
    """A header that a text names."""

    name: bytes
    """As spelled, without quotes or brackets."""
    angled: bool
    followed: bool = True
    """Whether its own includes count: they do not for ``#embed`` or for a probe."""
    every: bool = False
    """Whether any match could be meant, not only the first: ``#include_next``, ``#embed``."""


class Hint(Flag):
    """A part of a construct that makes a compiler read a file; ``closure`` knows which parts it takes."""

    NOTHING = 0
    ASSEMBLY = 1
    READS = 2
    """An assembler's directive that reads a file or defines directives, or the beginning of one."""
    STRINGS = 4
    """A macro makes strings of its arguments."""
    DOTS = 64
    """A dot or an escape outside strings, from which such a string and so a directive can be made."""
    PRAGMA = 8
    VENDOR = 16
    """The name of a compiler that has a pragma ``dependency``."""
    DEPENDENCY = 32


class Hints(NamedTuple):
    """The hints of one text, in all its readings."""

    found: Hint = Hint.NOTHING
    dotted: frozenset[bytes] = frozenset()
    """Words before a dot and a piece of an assembler's directive: members, or macros that may be empty."""


class Scan(NamedTuple):
    """All questions of one text, in any of its readings."""

    mentions: tuple[Mention, ...]
    asked: tuple[bytes, ...]
    """Operands of includes that only a preprocessor can turn into a header's name."""
    unknown: str
    """A directive or a probe that is not understood, empty if there is none."""
    clock: str | None
    """The first of ``__DATE__``, ``__TIME__``, ``__TIMESTAMP__`` used outside comments and strings."""
    probe_macros: frozenset[bytes]
    """Macros that this text defines around a probe."""
    conditions: bytes
    """The operands of ``#if`` and its kin, one per line."""
    definitions: bytes
    """The operands of ``#define``, one per line."""
    chains: tuple[Chain, ...]
    """Operands that it pastes together with ``##`` and that may be part of the name of a probe or a clock."""
    path_constants: int
    """The ``PathConstants`` that name the paths of which it may make constants."""
    path_macros: frozenset[bytes]
    """Macros of this text that may make a constant of the path of a text that uses them."""
    parts: frozenset[bytes]
    """Further words that a macro can see and that may become part of a name by ``##``."""
    renames: bool
    """Whether a ``#line`` may give the text after it the name of a different file."""


_BLANK = rb"[ \t\v\f\0\r]"
_COMMENT = rb"//[^\n]*(?:\n" + _BLANK + rb"*//[^\n]*)*|/\*(?s:.*?)(?:\*/|\Z)"
_GAP = rb"(?>(?:" + _BLANK + rb"|(?>/\*(?s:.*?)\*/))*)"
_QUOTED = rb'"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*(?:"|\\?$)|' rb"'[^'\\\n]*(?:\\[^\n][^'\\\n]*)*(?:'|\\?$)"
# No file name is longer than 4096.
_BRACKETED = (
    rb"(?P<bracketed>(?:(?:\#|%:)" + _GAP + rb"(?P<kind>include(?:_next)?|import|embed)"
    rb"|(?P<probe>__has_(?:include(?:_next)?|embed))"
    + _GAP
    + rb"\()"
    + _GAP
    + rb"<(?P<name>[^>\n]{0,4096})>)"
)
_RAW = rb'(?P<raw>(?<=R)"(?P<fence>[^ ()\\\t\v\f\n]{0,16})\((?s:.*?)(?:\)(?P=fence)"|\Z))'
_NUMBER = rb"(?<!\w)\d(?:[\w.]|'\w)*"
# clang reads a message to the end of its line, whatever is in it; NVRTC reads comments first.
_MESSAGE = rb"(?P<message>(?:\#|%:)" + _GAP + rb"(?:warning|error)\b[^\n]*)"
# Every alternative begins with a fixed character or class, so that the engine can skip to candidates. Comment
# signs inside <name> are part of the name, but not where the directive is skipped.
_PLAIN = [rb"(?P<comment>" + _COMMENT + rb")", _QUOTED]
_C, _C_SKIPPED, _CPP, _CPP_SKIPPED = (
    tuple(re.compile(b"|".join(told), re.MULTILINE) for told in (parts, [_MESSAGE, *parts]))
    for parts in (
        [*_PLAIN, _BRACKETED],
        _PLAIN,
        [_RAW, *_PLAIN, _BRACKETED, _NUMBER],
        [_RAW, *_PLAIN, _NUMBER],
    )
)
_NAMED = re.compile(_BRACKETED)
# In a directive that is skipped, a name that a comment cuts is no name.
_CUT = re.compile(
    rb"(?:(?:\#|%:)"
    + _BLANK
    + rb"*(?:include(?:_next)?|import|embed)|__has_\w+"
    + _BLANK
    + rb"*\()"
    + _BLANK
    + rb"*<[^>\n]*$",
    re.MULTILINE,
)
_AMBIGUOUS = re.compile(rb"/[/*]|[\"']")
_SEPARATOR = re.compile(rb"'(?<=\w')\w")
_SEPARATED = re.compile(rb"\d\w*'\w")

_STRICT_SPLICE = re.compile(rb"\\(?:\r\n?|\n\r?)")
_BLANKS_IN_SPLICE = re.compile(rb"\\" + _BLANK + rb"+(?=[\r\n])")
_UNICODE_BLANK = re.compile(
    rb"\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80"
)
_TRIGRAPHS = ((b"??=", b"#"), (b"??/", b"\\"), (b"??'", b"^"))

_DIRECTIVE = re.compile(
    rb"\n" + _BLANK + rb"*(?:\#|%:)" + _BLANK + rb"*([\w$\\\x80-\xff]*)" + _BLANK + rb"*([^\n]*)"
)
_INCLUDES = frozenset({b"include", b"include_next", b"import", b"embed"})
_CONDITIONS = frozenset({b"if", b"elif", b"ifdef", b"ifndef", b"elifdef", b"elifndef"})
# These name no header, except in a probe, which is found anywhere. Of pragmas see Hint.
_OTHER = frozenset(
    {b"", b"else", b"endif", b"undef", b"line", b"error", b"warning", b"pragma", b"ident", b"sccs"}
)
_LINE = re.compile(rb"\n" + _BLANK + rb"*(?:\#|%:)" + _BLANK + rb"*(?:line\b|\d)")
# No macro sees these: directives with a literal header, and messages. Definitions with ## are read by
# read_pastes.
_UNSEEN = re.compile(
    rb"\n" + _BLANK + rb"*(?:\#|%:)" + _BLANK + rb"*"
    rb"(?:(?:include(?:_next)?|import|embed)\b(?:" + _BLANK + rb"*[<\"][^\n]*)?|(?:error|warning)\b[^\n]*"
    rb"|define\b[^\n]*?(?:##|%:%:)[^\n]*)"
)
_MESSAGE_LINE = re.compile(rb"\n" + _BLANK + rb"*(?:\#|%:)" + _BLANK + rb"*(?:error|warning)\b[^\n]*")
# A directive may follow a comment of several lines, as NVRTC reads it; one in a directive is a blank. No
# other line ends in a backslash.
_LINES = b"\\\n"
_BEFORE_SIGN = re.compile(rb"\\\n(?=(?:" + _BLANK + rb"|\\\n)*(?:\#|%:))")
_BEHIND_LINES = re.compile(rb"^(?!" + _BLANK + rb"*(?:\#|%:))([^\n]*?)" + _BEFORE_SIGN.pattern, re.MULTILINE)
_DEFINING = re.compile(rb"\n" + _BLANK + rb"*(?:\#|%:)" + _BLANK + rb"*(?:define|undef|ifdef|ifndef)\b[^\n]*")
_STRING = re.compile(_QUOTED, re.MULTILINE)
# The parts in which no macro around a probe is used: directives that define or compare, and conditions.
_CONDITION = re.compile(
    rb"\n" + _BLANK + rb"*(?:\#|%:)" + _BLANK + rb"*(?:define|undef|(?:el)?ifn?(?:def)?)\b[^\n]*"
)
# Compilers do not agree on whether a quote or bracket after a backslash ends a name.
_NAMES = tuple(
    re.compile(form)
    for form in (
        *(rb"<([^>\n]+)>", rb"<((?:[^>\\\n]|\\.)+)>"),
        *(rb'"([^"\n]+)"', rb'"((?:[^"\\\n]|\\.)+)"'),
    )
)
_UNIVERSAL = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")
# A header unit or module of C++20, which NVRTC reads; calls and members have such names, too.
_MODULE = re.compile(rb"(?<![\w$.:])import(?![\w$])[\s\0]*[<\":\w]")
# Lines in which every quote begins or ends a string; a raw one begins behind a letter.
_PLAIN_STRINGS = re.compile(rb"^(?:[^\"'\n\\]*(?<!\w)\"(?:[^\"'\n\\]|\\.)*\")+[^\"'\n\\]*$", re.MULTILINE)
_PROBE = re.compile(rb"(?<![\w$])__has_(?:include(?:_next)?|embed)(?![\w$])")
_CALL = re.compile(rb"(\w*)" + _BLANK + rb"*\(" + _BLANK + rb"*(?=([<\"][^\n]{1,4096}))")
_LITERAL_CALL = re.compile(rb"(?P<macro>\w+)[ \t]*\([ \t]*(?:<(?P<angled>[^>\n]+)>|\"[^\"\\\n]+\")[ \t]*\)")
_WORD_CALL = re.compile(rb"\w+[ \t]*\([\w \t,]*\)")
_OPENED_CALL = re.compile(rb"\w[ \t]*\(")
_FORWARDS = re.compile(rb"\w+\((\w+)\)[ \t]+__has_include(?:_next)?[ \t]*\([ \t]*\1[ \t]*\)[ \t]*")
_ASKS = re.compile(rb"\w+[ \t]+__has_include[ \t]*\([ \t]*<([^>\n]+)>[ \t]*\)[ \t]*")
_DEFINED = re.compile(rb"\bdefined" + _BLANK + rb"*\(?" + _BLANK + rb"*\w+")
_HEAD = re.compile(rb"^([\w$\\\x80-\xff]+)(\([^)\n]*\))?", re.MULTILINE)
_FIRST_WORD = re.compile(rb"^[\w$\\\x80-\xff]*")
_CLOCK = re.compile(rb"__(?:DATE|TIME(?:STAMP)?)__")
_CLOCK_TOKEN = re.compile(_QUOTED + rb"|(?<!\w)(?P<clock>" + _CLOCK.pattern + rb")(?!\w)", re.MULTILINE)
_HINTS = {
    Hint.ASSEMBLY: (b"__asm", b"__asm__", b"asm"),
    Hint.PRAGMA: (b"pragma", b"_Pragma", b"__pragma"),
    Hint.VENDOR: (b"GCC", b"clang"),
    Hint.DEPENDENCY: (b"dependency",),
}
_MAKES_STRING = re.compile(rb"\bdefine" + _BLANK + rb"+\w+\([^)\n]*\)[^\n]*?(?<![#%:])(?:#|%:)(?![#%:])")
_LITERAL = re.compile(rb'"((?:[^"\\\n]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]+)|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_OTHER_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\(?:[xuUNo]\{|[^0-7xuUabefnrtv'\"?\\%\n])")
_CONTROLS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"v": b"\v", b"f": b"\f", b"a": b"\a", b"b": b"\b"}
_DIRECTIVE_NAMES = (b"incbin", b"include", b"macro", b"irp", b"irpc", b"rep", b"rept", b"altmacro")
# After a letter a dot is part of a name.
_DOT = re.compile(rb"(?<![\w.$@?])\.([A-Za-z]*)(.?)", re.DOTALL)
# Outside strings a dot after a name or a call leads to a member.
_OWN_DOT = re.compile(rb"(?<![\w.$)\]])\.(?![\d.])([A-Za-z]*)(.?)", re.DOTALL)
_DOTTED = re.compile(
    rb"(?<![\w$])([\w$]+)" + _BLANK + rb"*\." + _BLANK + rb"*([A-Za-z]*)" + _BLANK + rb"*[),#\n]"
)
# The text of assembly may be computed if it is neither a literal nor a macro.
_COMPUTED = re.compile(
    rb"(?<!\w)(?:__)?asm(?:__)?" + _BLANK + rb"*+(?:\w++" + _BLANK + rb"*+){0,4}\(" + _BLANK + rb"*\("
)
# Or the name is an empty macro, and a directive begins; beginnings as short as members are not counted.
_BEGUN = re.compile(rb"\.\s*([A-Za-z]{3,})\b")
_JOINS = frozenset({b"", *(b"%c" % sign for sign in b"\\%{|}$")})
_ENDS = frozenset({b"", *(b"%c" % sign for sign in b"),#\n")})
_PRINTING = re.compile(rb"(?<!\w)(?:assert|__(?:BASE_)?FILE__|__builtin_FILE)(?!\w)")
_WORD = re.compile(rb"\w+")
_PLAIN_NAME = re.compile(rb"[\w./+-]+")
_FIRST_MATCH = frozenset({b"__has_include"})


def scan(data: bytes) -> Scan:
    """All questions of a text, in all its readings. Never raises."""
    found = _Found()
    for text in _readings(data):
        found.add(b"\n" + text)
    frozen: dict[type, Callable[[Any], Any]] = {dict: tuple, set: frozenset, list: b"\n".join}
    values: list[Any] = [getattr(found, name) for name in Scan._fields]
    return Scan(*(frozen[type(value)](value) if type(value) in frozen else value for value in values))


def probing_macros(texts: Collection[Scan], *, literal: bool = True) -> frozenset[bytes]:
    """The macros that use a probe, directly or through others; with ``literal`` also for a fixed name."""
    lines = (line for text in texts if text.probe_macros for line in text.definitions.split(b"\n"))
    probing = (line for line in lines if _PROBE.search(line) and (literal or not _asks(line)))
    return with_users(texts, {head[1] for line in probing if (head := _HEAD.match(line))})


def path_macros(texts: Collection[Scan]) -> frozenset[bytes]:
    """The macros that may make a constant of the path of their user, directly or through others."""
    return with_users(texts, {name for text in texts for name in text.path_macros})


def printing_macros(texts: Collection[Scan]) -> frozenset[bytes]:
    """The macros that may print their user's path, as ``assert`` does, directly or through others."""
    lines = (line for text in texts for line in text.definitions.split(b"\n") if _PRINTING.search(line))
    return with_users(texts, {head[1] for line in lines if (head := _HEAD.match(line))})


def with_users(texts: Collection[Scan], macros: set[bytes]) -> frozenset[bytes]:
    """Some macros, and all macros whose definitions mention one of them, directly or through others."""
    before = 0
    while len(macros) > before:
        before = len(macros)
        mention = _any_of(macros)
        for text in texts:
            for line in text.definitions.split(b"\n"):
                if (head := _HEAD.match(line)) and mention.search(line, head.end()):
                    macros.add(head[1])
    return frozenset(macros)


def uses_macro(data: bytes, macros: Collection[bytes], *, compared: bool = True) -> bool:
    """Whether a text mentions one of some macros, outside of definitions and ``#ifdef``.

    Conditions count if ``compared``.
    """
    mention, without = _any_of(macros), _DEFINING if compared else _CONDITION
    readings = _readings(data) if any(macro in data for macro in macros) else ()
    return any(mention.search(without.sub(b"", b"\n" + text)) for text in readings)


def hints(data: bytes) -> Hints:
    """The hints of a text, in all its readings, that it may make a compiler read a file."""
    found, dotted = Hint.NOTHING, set[bytes]()
    for reading in _readings(data):
        text = reading if b'R"' in reading else _MESSAGE_LINE.sub(b"", reading)
        signs = {hint: _any_of(words) for hint, words in _HINTS.items()}
        for hint, sign in {**signs, Hint.STRINGS: _MAKES_STRING}.items():
            if sign.search(text):
                found |= hint
        literals = [_ESCAPE.sub(_character, match[1]) for match in _LITERAL.finditer(text)]
        if any(_OTHER_ESCAPE.search(match[1]) for match in _LITERAL.finditer(text)):
            found |= Hint.READS  # which character it means is not known
        if any(_may_read(match, _JOINS) for literal in literals for match in _DOT.finditer(literal)):
            found |= Hint.READS
        code = _STRING.sub(b'""', text)
        # Also in text that some compilers read as a raw string.
        begun = {word.lower() for word in _BEGUN.findall(code)}
        if any(map(_begins, begun)):
            found |= Hint.READS
        if _COMPUTED.search(code):
            found |= Hint.READS
        if b"\\" in code or any(_may_read(dot, _ENDS) for dot in _OWN_DOT.finditer(code)):
            found |= Hint.DOTS
        dotted |= {dot[0] for dot in _DOTTED.findall(code) if _begins(dot[1].lower())}
    return Hints(found, frozenset(dotted))


def _any_of(words: Collection[bytes]) -> re.Pattern[bytes]:
    return re.compile(
        rb"(?<![\w$\x80-\xff])(?:" + b"|".join(map(re.escape, sorted(words))) + rb")(?![\w$\x80-\xff])"
    )


def unknown_probe(texts: Collection[Scan], macros: Collection[bytes]) -> bytes:
    """The first use of a probe, also through ``macros``, that the scan does not understand; empty if none."""
    named = (each.name for text in texts for each in text.mentions if each.angled and not each.followed)
    words = {word for name in named for word in _WORD.findall(name)}
    for text in texts if words else ():
        if expanded := _defining(words).search(text.definitions):
            return expanded[0]
    strange = next((macro for macro in macros if not _WORD.fullmatch(macro)), b"")
    if strange or not macros:
        return strange
    mention, others = _any_of(macros), set[bytes]()
    for line in (line for text in texts for line in _defining(macros).findall(text.definitions)):
        head = _HEAD.match(line)
        end = head.end() if head else 0
        if not _FORWARDS.fullmatch(line) and (mention.search(line, end) or _PROBE.search(line, end)):
            others.add(head[1] if head else b"")

    def understood(call: re.Match[bytes]) -> bytes:
        return call[0] if call["macro"] in others or not _is_fixed(call["angled"]) else b""

    conditions = (line for text in texts for line in text.conditions.split(b"\n") if mention.search(line))
    left = (_LITERAL_CALL.sub(understood, _DEFINED.sub(b"", line)) for line in conditions)
    return next((line for line in left if mention.search(line)), b"")


def _asks(definition: bytes) -> bytes:
    """The header whose existence a macro tests wherever it is used; empty if it tests none."""
    asked = _ASKS.fullmatch(definition)
    return asked[1] if asked and _is_fixed(asked[1]) else b""


def _defining(macros: Collection[bytes]) -> re.Pattern[bytes]:
    return re.compile(
        rb"^(?:%b)(?![\w$\\\x80-\xff])[^\n]*" % b"|".join(map(re.escape, sorted(macros))), re.MULTILINE
    )


def _is_fixed(angled: bytes | None) -> bool:
    """Whether a name in brackets can contain no macro of a compiler; true for None, a name in quotes."""
    if angled is None:
        return True
    plain = _PLAIN_NAME.fullmatch(angled) and angled[-1:] != b"-"
    return bool(plain) and not any(map(OF_COMPILER.fullmatch, _WORD.findall(angled)))


def can_paste(texts: Sequence[Scan], names: Sequence[bytes] = PROBES_CLOCKS_AND_FILES) -> Paste | None:
    """One of some names that these texts may paste together with ``##``."""

    def macros() -> set[bytes]:
        return {head[1] for text in texts for head in _HEAD.finditer(text.definitions)}

    chains = [*dict.fromkeys(chain for text in texts for chain in text.chains)]
    words = {part for text in texts for part in text.parts}
    return find_paste(chains, words, macros, names)


def _without_strings(line: re.Match[bytes]) -> bytes:
    return re.sub(rb'"(?:[^"\\]|\\.)*"', b'""', line[0])


class _Found:
    """Collects from all readings of a text; mentions are in the order in which they are first seen."""

    def __init__(self) -> None:
        self.mentions: dict[Mention, None] = {}
        self.asked: dict[bytes, None] = {}
        self.chains: dict[Chain, None] = {}
        self.parts: set[bytes] = set()
        self.clock: str | None = None
        self.path_constants = PathConstants.NOTHING
        self.path_macros: set[bytes] = set()
        self.probe_macros: set[bytes] = set()
        self.conditions: list[bytes] = []
        self.definitions: list[bytes] = []
        self.renames = False
        self.unknown = ""

    def add(self, text: bytes) -> None:
        self._directives(text)
        code = _UNSEEN.sub(b"", text)
        if b"__has_" in code and (probe := _PROBE.search(_CONDITION.sub(b"", code))):
            self._not_understood(probe[0])
        if not PARTS.isdisjoint(_WORD.findall(code)):
            self.parts |= PARTS.intersection(_WORD.findall(_STRING.sub(b" ", code)))
        if self.clock is None and _CLOCK.search(text):
            tokens = (match["clock"] for match in _CLOCK_TOKEN.finditer(text))
            self.clock = next((token.decode() for token in tokens if token), None)
        where, macros = path_constants(text)
        self.path_constants |= where
        self.path_macros |= macros

    def _directives(self, text: bytes) -> None:
        for name, operand in _DIRECTIVE.findall(text):
            if name == b"define":
                self._define(operand)
            elif name in _CONDITIONS:
                self._condition(operand if name in (b"if", b"elif") else _FIRST_WORD.sub(b"", operand))
            elif name in _INCLUDES:
                self._include(name, operand)
            elif name == b"line" or name.isdigit():
                self.renames = True
            elif (name not in _OTHER or (not name and operand)) and not _UNICODE_BLANK.search(
                name + operand[:3]
            ):
                self._not_understood(b"#" + (name or operand))

        if b"import" in text:
            code = _PLAIN_STRINGS.sub(_without_strings, _DIRECTIVE.sub(b"", text))
            if unit := _MODULE.search(code):
                self._not_understood(unit[0])

    def _not_understood(self, text: bytes) -> None:
        self.unknown = self.unknown or text[:40].decode(errors="replace")

    def _include(self, kind: bytes, operand: bytes) -> None:
        named = _named(operand)
        if operand and not named:
            self.asked[operand] = None
        for name in named:
            mention = Mention(
                name,
                angled=operand[:1] == b"<",
                followed=kind != b"embed",
                every=kind in (b"include_next", b"embed"),
            )
            self.mentions[mention] = None
        if probe := _PROBE.search(operand):  # NVRTC expands anything after a name
            self._not_understood(probe[0])

    def _condition(self, operand: bytes) -> None:
        self.conditions.append(operand)
        for macro, literal in _CALL.findall(operand) if b"(" in operand else ():
            for name in _named(literal):
                every = macro not in _FIRST_MATCH
                self.mentions[Mention(name, literal[:1] == b"<", followed=False, every=every)] = None
        if b"__has_" in operand and _PROBE.search(operand):
            rest = _DEFINED.sub(b"", operand)
            left = _LITERAL_CALL.sub(b"<", rest)
            fixed = all(_is_fixed(call["angled"]) for call in _LITERAL_CALL.finditer(rest))
            called = _OPENED_CALL.search(_WORD_CALL.sub(b"", left))
            if _PROBE.search(left) or (called and not fixed):
                self._not_understood(operand)

    def _define(self, operand: bytes) -> None:
        self.definitions.append(operand)
        if b"##" in operand or b"%:%:" in operand:
            chains, others = read_pastes(operand)
            self.chains |= dict.fromkeys(chains)
            self.parts |= PARTS.intersection(others)
        if b"__has_" in operand and (probe := _PROBE.search(operand)):
            if (head := _HEAD.match(operand)) is None:
                self._not_understood(probe[0])
            elif _PROBE.search(operand, head.end()):
                self.probe_macros.add(head[1])
                if name := _asks(operand):
                    self.mentions[Mention(name, angled=True, followed=False)] = None


def _may_read(match: re.Match[bytes], ends: Collection[bytes]) -> bool:
    """Whether a dot begins a directive that makes an assembler read a file, or may with the next text."""
    word, following = match[1].lower(), match[2]
    return (following in ends and _begins(word)) or word in _DIRECTIVE_NAMES


def _begins(word: bytes) -> bool:
    return any(name.startswith(word) for name in _DIRECTIVE_NAMES)


def _character(match: re.Match[bytes]) -> bytes:
    """The character that an escape means; letters outside ASCII are in no directive."""
    octal, *hexadecimal, other = match.groups()
    number = next((digits for digits in hexadecimal if digits), None)
    if octal or number:
        code = int(octal, 8) if octal else int(number or b"", 16)
        return b"%c" % code if code < 128 else b"?"
    return _CONTROLS.get(other, other)


def _named(literal: bytes) -> dict[bytes, None]:
    """The names that a literal can mean; none for anything else."""
    found = [match[1] for name in _NAMES if (match := name.match(literal))]
    return dict.fromkeys([*found, *(_UNIVERSAL.sub(_letter, name) for name in found)])


def _letter(match: re.Match[bytes]) -> bytes:
    """The letter that a universal character name means, as compilers write it into a file name."""
    code = int(match[1] or match[2], 16)
    return chr(code).encode("utf-8", "replace") if code < 0x110000 else match[0]


def _readings(data: bytes) -> Iterator[bytes]:
    """The text without comments, raw strings and line continuations, in each way of reading it."""
    texts = {data.removeprefix(b"\xef\xbb\xbf"): None}
    if b"??" in data:
        texts |= dict.fromkeys([_replace_trigraphs(text) for text in texts])
    if b"\\" in data or b"??" in data:
        texts |= dict.fromkeys([_BLANKS_IN_SPLICE.sub(b"\\\\", text) for text in texts])
    if not data.isascii():
        texts |= dict.fromkeys([_UNICODE_BLANK.sub(b" ", text) for text in texts])
    for text in [_STRICT_SPLICE.sub(b"", text).replace(b"\r\n", b"\n") for text in texts]:
        # A carriage return alone ends a line for clang, and is a blank for NVRTC.
        for logical in dict.fromkeys([text.replace(b"\r", b"\n"), text]):
            skipped = any(_AMBIGUOUS.search(match["name"]) for match in _NAMED.finditer(logical))
            raw = b'R"' in logical or (_SEPARATOR.search(logical) and _SEPARATED.search(logical))
            ways = [_C, *[_CPP] * bool(raw), *[_C_SKIPPED] * skipped, *[_CPP_SKIPPED] * bool(raw and skipped)]
            for plain, with_messages in ways:
                for pattern in (plain, *[with_messages] * _opens_in_message(logical)):
                    read = pattern.sub(_without_comment, logical)
                    cut = plain in (_C_SKIPPED[0], _CPP_SKIPPED[0])
                    yield from _in_lines(_CUT.sub(b"", read) if cut else read)


def _opens_in_message(text: bytes) -> bool:
    """Whether a comment or a raw string may begin in a message and go on after it."""
    lines = text.split(b"\n") if b"warning" in text or b"error" in text else ()
    return any(b"/*" in line or b'R"' in line for line in lines if b"warning" in line or b"error" in line)


def _in_lines(text: bytes) -> Iterator[bytes]:
    """The ways to read comments of several lines: NVRTC begins a directive after one, also after #ident."""
    split = _BEFORE_SIGN.sub(b"\n", text)
    for way in (text,) if split == text else dict.fromkeys([_BEHIND_LINES.sub(rb"\1\n", text), split]):
        yield way.replace(_LINES, b" ")


def _replace_trigraphs(text: bytes) -> bytes:
    for trigraph, sign in _TRIGRAPHS:
        text = text.replace(trigraph, sign)
    return text


def _without_comment(match: re.Match[bytes]) -> bytes:
    group = match.lastgroup
    if group == "comment":
        return _LINES if b"\n" in match[0] else b" "
    if group == "bracketed":
        directive = b"#%b " % match["kind"] if match["kind"] else b"%b(" % match["probe"]
        return b"%b<%b>" % (directive, match["name"])
    if group == "raw":
        return b'""'
    return b"#error" if group == "message" else match[0]
