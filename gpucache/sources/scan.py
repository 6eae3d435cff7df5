"""What a source text asks of other files: includes, embeds, probes for headers, and the clock. Pure.

Conditionals are ignored: every directive counts, as a superset is safe in a key. Compilers and
dialects disagree on trigraphs, on blanks after a continuing backslash, on Unicode blanks, on raw
strings and on digit separators; where a text holds one of these it is read both ways, and what
either reading finds counts. Any bytes can be scanned.

Three things go through macros and cannot be followed by text:

* ``#include NAME`` (and ``include_next``, ``import``, ``embed``);
* a probe (``__has_include`` and its kin) of anything but a literal, in ``#if`` or ``#elif``;
* a macro around a probe, such as CCCL's ``#define _CCCL_HAS_INCLUDE(_X) __has_include(_X)``. Its
  definition asks nothing. Its calls do: a literal argument in ``#if`` is a probed name, whichever
  macro is called; any other use is told by ``probes_by_macro`` once all such macros are known.

Must not touch files.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mention:
    """A header named by a text."""

    name: bytes
    """As spelled, without quotes or brackets."""
    angled: bool
    followed: bool = True
    """Whether its own includes count: not for ``#embed`` or for a probe."""
    every: bool = False
    """Whether any match could be meant, not only the first: ``#include_next``, ``#embed``."""


@dataclass(frozen=True, slots=True)
class Scan:
    """All that one text asks, whichever way it is read."""

    mentions: tuple[Mention, ...]
    by_macro: bool
    """Whether a header is included or probed by a name that only the preprocessor knows."""
    clock: str | None
    """The first of ``__DATE__``, ``__TIME__``, ``__TIMESTAMP__`` used outside comments and strings."""
    probe_macros: frozenset[bytes]
    """Macros that this text defines around a probe."""
    conditions: bytes
    """The operands of ``#if`` and ``#elif``, one per line."""
    definitions: bytes
    """The operands of ``#define``, one per line."""


_BLANK = rb"[ \t\v\f\0]"
_COMMENT = rb"//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)"
_GAP = rb"(?>(?:" + _BLANK + rb"|(?>/\*(?s:.*?)\*/))*)"
_QUOTED = rb'"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*(?:"|\\?$)|' rb"'[^'\\\n]*(?:\\[^\n][^'\\\n]*)*(?:'|\\?$)"
# Comment signs inside <name> are part of the name; no file has a longer one.
_BRACKETED = (
    rb"(?:\#|%:)"
    + _GAP
    + rb"(?P<kind>include(?:_next)?|import|embed)"
    + _GAP
    + rb"<(?P<name>[^>\n]{0,4096})>"
)
_RAW = rb'(?<=R)"(?P<fence>[^ ()\\\t\v\f\n]{0,16})\((?s:.*?)(?:\)(?P=fence)"|\Z)'
_NUMBER = rb"(?<!\w)\d(?:[\w.]|'\w)*"
# Every alternative begins with a fixed character or class, which lets the engine skip to candidates.
_C = re.compile(
    rb"(?P<comment>" + _COMMENT + rb")|(?P<bracketed>" + _BRACKETED + rb")|" + _QUOTED, re.MULTILINE
)
_CPP = re.compile(rb"(?P<raw>" + _RAW + rb")|" + _C.pattern + rb"|" + _NUMBER, re.MULTILINE)
_ONLY_CPP = re.compile(rb"R\"|\d\w*'\w")

_STRICT_SPLICE = re.compile(rb"\\(?:\r\n?|\n\r?)")
_READINGS = (
    (re.compile(rb"\\[ \t\v\f\0]+(?=[\r\n])"), b"\\\\"),
    (
        re.compile(rb"\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80"),
        b" ",
    ),
)
_TRIGRAPHS = ((b"??=", b"#"), (b"??/", b"\\"), (b"??'", b"^"))

_DIRECTIVE = re.compile(
    rb"\n" + _BLANK + rb"*(?:\#|%:)" + _BLANK + rb"*"
    rb"(include(?:_next)?|import|embed|if|elif|define)\b" + _BLANK + rb"*([^\n]*)"
)
_HEADER = re.compile(rb'<([^>\n]+)>|"([^"\n]+)"')
_CALL = re.compile(rb"\b([A-Za-z_]\w*)" + _BLANK + rb"*\(" + _BLANK + rb"*(?:<([^>\n]+)>|\"([^\"\n]+)\")")
_DEFINED = re.compile(rb"\bdefined" + _BLANK + rb"*\(?" + _BLANK + rb"*\w+")
_HEAD = re.compile(rb"^(\w+)(\([^)\n]*\))?", re.MULTILINE)
_CLOCK = re.compile(rb"__(?:DATE|TIME(?:STAMP)?)__")
_CLOCK_TOKEN = re.compile(_QUOTED + rb"|(?<!\w)(?P<clock>" + _CLOCK.pattern + rb")(?!\w)", re.MULTILINE)
_PROBES = frozenset({b"__has_include", b"__has_include_next", b"__has_embed"})
_FIRST_MATCH = frozenset({b"__has_include"})


def scan(data: bytes, *, trigraphs: bool = True) -> Scan:
    """Everything a text asks for, over all the ways it can be read. Never raises."""
    found = _Found()
    for text in _readings(data, trigraphs=trigraphs):
        found.add(b"\n" + text)
    return Scan(
        tuple(found.mentions),
        found.by_macro,
        found.clock,
        frozenset(found.probe_macros),
        b"\n".join(found.conditions),
        b"\n".join(found.definitions),
    )


def probes_by_macro(text: Scan, macros: Collection[bytes]) -> bool:
    """Whether a text uses a macro around a probe in any way but a literal call in a condition."""
    if not macros:
        return False
    return _unclear(text.conditions, macros, rb"<\"") or _unclear(
        _HEAD.sub(b"", text.definitions), macros, rb"\""
    )


class _Found:
    """Collects over readings; mentions keep the order in which they are first seen."""

    def __init__(self) -> None:
        self.mentions: dict[Mention, None] = {}
        self.by_macro = False
        self.clock: str | None = None
        self.probe_macros: set[bytes] = set()
        self.conditions: list[bytes] = []
        self.definitions: list[bytes] = []

    def add(self, text: bytes) -> None:
        for kind, operand in _DIRECTIVE.findall(text):
            if kind == b"define":
                self._define(operand)
            elif kind in (b"if", b"elif"):
                self._condition(operand)
            elif operand:
                self._include(kind, operand)
        if self.clock is None and _CLOCK.search(text):
            tokens = (match["clock"] for match in _CLOCK_TOKEN.finditer(text))
            self.clock = next((token.decode() for token in tokens if token), None)

    def _include(self, kind: bytes, operand: bytes) -> None:
        match = _HEADER.match(operand)
        if match is None:
            self.by_macro = True
            return
        mention = Mention(
            match[1] or match[2],
            angled=match[1] is not None,
            followed=kind != b"embed",
            every=kind in (b"include_next", b"embed"),
        )
        self.mentions[mention] = None

    def _condition(self, operand: bytes) -> None:
        self.conditions.append(operand)
        if b"(" in operand:
            self._probes(operand)
        if b"__has_" in operand and _unclear(operand, _PROBES, rb"<\""):
            self.by_macro = True

    def _define(self, operand: bytes) -> None:
        self.definitions.append(operand)
        if b"__has_" not in operand or (head := _HEAD.match(operand)) is None:
            return
        body = operand[head.end() :]
        # In a definition <name> is not yet a header name: a macro in it would be replaced.
        if _unclear(body, _PROBES, rb"\""):
            self.probe_macros.add(head[1])
        if any(probe in body for probe in _PROBES):
            self._probes(body)

    def _probes(self, text: bytes) -> None:
        for macro, angled, quoted in _CALL.findall(text):
            every = macro not in _FIRST_MATCH
            self.mentions[Mention(angled or quoted, bool(angled), followed=False, every=every)] = None


def _unclear(text: bytes, macros: Collection[bytes], literals: bytes) -> bool:
    """Whether one of some macros is mentioned without ``(`` and an opening sign of a literal after it."""
    names = b"|".join(map(re.escape, sorted(macros)))
    unclear = rb"\b(?:" + names + rb")\b(?!" + _BLANK + rb"*\(" + _BLANK + rb"*[" + literals + rb"])"
    return re.search(unclear, _DEFINED.sub(b"", text)) is not None


def _readings(data: bytes, *, trigraphs: bool) -> Iterator[bytes]:
    """The text without comments, raw strings and line continuations, once per way of reading it."""
    texts = {data.removeprefix(b"\xef\xbb\xbf"): None}
    if trigraphs and b"??" in data:
        texts |= dict.fromkeys([_replace_trigraphs(text) for text in texts])
    for pattern, replacement in _READINGS:
        texts |= dict.fromkeys([pattern.sub(replacement, text) for text in texts])
    for text in texts:
        logical = _STRICT_SPLICE.sub(b"", text)
        if b"\r" in logical:
            logical = logical.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        yield _C.sub(_without_comment, logical)
        if _ONLY_CPP.search(logical):
            yield _CPP.sub(_without_comment, logical)


def _replace_trigraphs(text: bytes) -> bytes:
    for trigraph, sign in _TRIGRAPHS:
        text = text.replace(trigraph, sign)
    return text


def _without_comment(match: re.Match[bytes]) -> bytes:
    group = match.lastgroup
    if group == "comment":
        return b" "
    if group == "bracketed":
        return b"#%b <%b>" % (match["kind"], match["name"])
    if group == "raw":
        return b'""'
    return match[0]
