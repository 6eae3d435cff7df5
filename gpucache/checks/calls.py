"""The checks that a source calls: found, numbered, and listed in its failure table. Pure.

A call is found outside comments, strings and directives, and its number is its place in the table. What
stays without one still tells line and operands when it fails: a check in a header or in a macro's
definition, one whose format is not a literal, and those beyond the bounds of a table.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpucache.checks.messages import problem
from gpucache.errors import SourceError
from gpucache.model import Checks

MAX_CHECKS = 4096
MAX_TABLE_CHARACTERS = 64 * 1024  # in the JSON of a head up to 12 bytes each
MAX_SEARCHED_BYTES = 8 << 20
"""Of the arguments of all checks together, as checks within checks are read again and again."""

_SKIPPED = (
    rb"//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)"  # comments
    rb'|R"(?P<fence>[^ ()\\\t\v\f\n]{0,16})\(.*?(?:\)(?P=fence)"|\Z)'
    rb'|"(?:\\.|[^"\\\n])*"?|' + rb"'(?:\\.|[^'\\\n])*'?"
    rb"|(?<![\w.])\.?\d(?:'?[\w.])*"  # numbers, in which ' parts digits
)
_DIRECTIVE = rb"^[ \t]*(?:\#|%:)(?:\\\r?\n|/\*.*?\*/|//(?:\\\r?\n|[^\n])*|[^\n])*"
_CALL = re.compile(
    rb"(?P<call>\bGPUCACHE_CHECK(?P<kind>_SYNC|_INSIDE)?)(?=\s*\()|" + _DIRECTIVE + rb"|" + _SKIPPED,
    re.DOTALL | re.MULTILINE,
)
_PART = re.compile(rb"(?P<sign>[(),])|" + _SKIPPED, re.DOTALL)
_COMMENT = re.compile(rb'("(?:\\.|[^"\\\n])*")|//(?:\\\r?\n|[^\n])*|/\*.*?\*/|\\\r?\n', re.DOTALL)
_LITERALS = re.compile(rb'\s*(?:"(?:\\.|[^"\\\n])*"\s*)*')
_LITERAL = re.compile(rb'"((?:\\.|[^"\\\n])*)"')
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]+)|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_MODES = {Checks.SYNC: b"1", Checks.ASYNC: b"2"}


@dataclass(frozen=True, slots=True)
class Instrumented:
    """A source as it is compiled with checks."""

    source: bytes
    """Every line is where it was."""
    table: tuple[tuple[str, str], ...]
    """The failure table: line and format of each check, by its number."""


def instrument(source: bytes, mode: Checks) -> Instrumented:
    """A source with its checks turned on and numbered; as it was where the mode is ``none``.

    Raises SourceError for a check whose format does not fit its operands.
    """
    if mode is Checks.NONE:
        return Instrumented(source, ())
    mark, text = (source[:3], source[3:]) if source.startswith(b"\xef\xbb\xbf") else (b"", source)
    pieces, done = [mark, b"#define GPUCACHE_CHECKS %b\n#line 1\n" % _MODES[mode]], 0
    table: list[tuple[str, str]] = []
    room = MAX_TABLE_CHARACTERS
    for call in _calls(text):
        room -= len(call.message)
        if len(table) == MAX_CHECKS or room < 0:
            break
        pieces += [text[done : call.name_end], b"_N", text[call.name_end : call.opened], b"%d, " % len(table)]
        done = call.opened
        table.append((str(call.line), call.message))
    return Instrumented(b"".join([*pieces, text[done:]]), tuple(table))


@dataclass(frozen=True, slots=True)
class _Call:
    name_end: int
    opened: int
    """Where its first argument begins."""
    line: int
    message: str


def _calls(text: bytes) -> Iterator[_Call]:
    """The checks whose formats are literals, in their order; raises SourceError."""
    line, seen, left = 1, 0, MAX_SEARCHED_BYTES
    for match in _CALL.finditer(text):
        if match["call"] is None:
            continue
        line, seen = line + text.count(b"\n", seen, match.start()), match.start()
        opened = text.index(b"(", match.end()) + 1
        arguments, end = _arguments(text, opened, opened + left)
        left -= end - opened
        if not arguments:  # nor is any after it that is within it
            return
        before = 2 if match["kind"] == b"_SYNC" else 1  # condition, and the sync point's name
        message = _literal(arguments[before]) if len(arguments) > before else ""
        if message is not None:
            wrong = problem(message, max(0, len(arguments) - before - 1))
            if wrong is not None:
                raise SourceError(f"the check in line {line} cannot be told: {wrong}")
            yield _Call(match.end(), opened, line, message)


def _arguments(text: bytes, opened: int, limit: int) -> tuple[list[bytes], int]:
    """The arguments of a call as the preprocessor parts them, and where they end; none if not closed."""
    depth, start = 0, opened
    arguments = []
    for match in _PART.finditer(text, opened, limit):
        sign = match["sign"]
        if sign == b"(":
            depth += 1
        elif sign is not None and depth == 0:
            arguments.append(text[start : match.start()])
            start = match.end()
            if sign == b")":
                return arguments, start
        elif sign == b")":
            depth -= 1
    return [], min(limit, len(text))


def _literal(argument: bytes) -> str | None:
    """The text of string literals; None where it is something else."""
    code = _COMMENT.sub(lambda match: match[1] or b" ", argument)
    if not code.strip() or not _LITERALS.fullmatch(code):
        return None
    return "".join(_unescaped(part[1].decode("utf-8", "replace")) for part in _LITERAL.finditer(code))


def _unescaped(text: str) -> str:
    def sign(match: re.Match[str]) -> str:
        if match[1] or match[2]:
            return chr((int(match[1], 16) if match[1] else int(match[2], 8)) & 0xFF)
        return _ESCAPES.get(match[3], match[3])

    return _ESCAPE.sub(sign, text)
