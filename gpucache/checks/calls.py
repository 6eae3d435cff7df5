"""The checks that a source calls: found, numbered, and listed in its failure table. Pure.

A call is found outside comments, strings and directives, and its number is its place in the table, which
has line numbers as ``#line`` sets them. Checks without a number still report line and operands when they
fail: a check in a header or in a macro's definition, one whose format is not a literal, and those beyond the
bounds of a table.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpucache.checks.failures import MAX_SIZES, OUTSIDE, problem
from gpucache.errors import SourceError
from gpucache.model import BuildRequest, Check, Checks

MAX_CHECKS = 4096
MAX_TABLE_CHARACTERS = 64 * 1024  # in the JSON of a head up to 12 bytes each
MAX_DECLARATION_BYTES = 4096
MAX_SEARCHED_BYTES = 8 << 20
"""The bytes that are searched for arguments of all checks: checks inside checks are read repeatedly."""

_SKIPPED = (
    rb"//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)"  # comments
    rb'|R"(?P<fence>[^ ()\\\t\v\f\n]{0,16})\(.*?(?:\)(?P=fence)"|\Z)'
    rb'|"(?:\\.|[^"\\\n])*"?|' + rb"'(?:\\.|[^'\\\n])*'?"
    rb"|(?<![\w.])\.?\d(?:'?[\w.])*"  # numbers, in which ' separates digits
)
_DIRECTIVE = rb"^[ \t]*(?:\#|%:)(?:\\\r?\n|/\*.*?\*/|//(?:\\\r?\n|[^\n])*|[^\n])*"
_CALL = re.compile(
    rb"(?P<call>\bGPUCACHE_CHECK(?P<index>_INDEX)?(?P<kind>_SYNC|_INSIDE)?)(?=\s*\()|(?P<sign>[{};])"
    rb"|(?P<directive>" + _DIRECTIVE + rb")|" + _SKIPPED,
    re.DOTALL | re.MULTILINE,
)
_LINE = re.compile(rb'\s*(?:\#|%:)\s*(?:line\b\s*)?(?P<line>\d{1,9})(?:\s+"(?P<file>(?:\\.|[^"\\\n])*)")?')
_NOT_CODE = re.compile(_DIRECTIVE + rb"|" + _SKIPPED, re.DOTALL | re.MULTILINE)
_NAMED = re.compile(rb"(?P<name>[A-Za-z_]\w*)\s*(?=\()|(?P<sign>[()])|(?P<rest>(?<!:):(?!:))")
_NO_NAMES = frozenset([b"__attribute__", b"__launch_bounds__", b"__declspec", b"alignas", b"noexcept"])
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
    table: tuple[Check, ...]
    """The failure table: each check, at the index of its number."""
    whole: bool = True
    """Whether the table has every check, within its bounds."""


def instrument(source: bytes, mode: Checks) -> Instrumented:
    """A source with its checks enabled and numbered; unchanged if the mode is ``none``.

    Raises SourceError for a check whose format does not fit its operands.
    """
    if mode is Checks.NONE:
        return Instrumented(source, ())
    mark, text = (source[:3], source[3:]) if source.startswith(b"\xef\xbb\xbf") else (b"", source)
    pieces, done = [mark, b"#define GPUCACHE_CHECKS %b\n#line 1\n" % _MODES[mode]], 0
    table: list[Check] = []
    room, whole = MAX_TABLE_CHARACTERS, True
    for call in _calls(text):
        room -= len(call.check.message) + len(call.check.function) + len(call.check.file)
        if len(table) == MAX_CHECKS or room < 0:
            whole = False
            break
        number = b"%d, " % len(table)
        if call.buffer is not None:
            number += b"%d, " % call.buffer
        pieces += [text[done : call.name_end], b"_N", text[call.name_end : call.opened], number]
        done = call.opened
        table.append(call.check)
    return Instrumented(b"".join([*pieces, text[done:]]), tuple(table), whole)


def instrumented(request: BuildRequest) -> Instrumented:
    """The source of a request as it is compiled, with its failure table; raises SourceError."""
    return instrument(request.program.source, request.checks)


@dataclass(frozen=True, slots=True)
class _Call:
    name_end: int
    opened: int
    check: Check
    buffer: int | None = None
    """For a check of an index: the position of its buffer among the kernel's own arguments."""


class _Place:
    def __init__(self, text: bytes) -> None:
        self._text = text
        self._line, self._seen = 1, 0
        self.file = self.function = ""
        self.parameters: tuple[str, ...] = ()
        self._declaration = 0
        """The offset of the declaration whose body the next brace may open."""
        self._braces: list[str] = []
        """For each open brace, the function whose body it opened, if any."""

    def line(self, at: int) -> int:
        """The line of an offset; offsets have to be requested in order."""
        self._line, self._seen = self._line + self._text.count(b"\n", self._seen, at), at
        return self._line

    def pass_directive(self, start: int, end: int) -> None:
        """Remember the line number that a ``#line`` gives to the next line."""
        said = _LINE.match(_without_comments(self._text[start:end]))
        if said:
            self.line(end)
            self._line = int(said["line"]) - 1
            if said["file"] is not None:
                self.file = _unescaped(said["file"].decode("utf-8", "replace"))

    def pass_no_code(self, start: int, end: int) -> None:
        """Exclude the text before a declaration from it, such as the comment at the head of a file."""
        near = start - self._declaration <= MAX_DECLARATION_BYTES and not self.function
        if near and not self._text[self._declaration : start].strip():
            self._declaration = end

    def pass_sign(self, sign: bytes, at: int) -> None:
        """Track braces into and out of functions."""
        if sign == b"{":
            declaration = self._text[self._declaration : at]
            opens = "" if self.function else _function(declaration)
            self._braces.append(opens)
            if opens:
                self.parameters = _parameters(declaration, opens)
            self.function = self.function or opens
        elif sign == b"}" and self._braces and self._braces.pop():
            self.function = ""
        if not self.function:
            self._declaration = at + 1


def _function(declaration: bytes) -> str:
    """The name of the function that a declaration before a body declares; empty if it declares none."""
    if len(declaration) > MAX_DECLARATION_BYTES:
        return ""
    name, depth = b"", 0
    for match in _NAMED.finditer(_NOT_CODE.sub(b" ", declaration)):
        if match["sign"]:
            depth += 1 if match["sign"] == b"(" else -1
        elif match["rest"] and name:
            break  # the start of a constructor
        elif depth == 0 and match["name"] not in _NO_NAMES:
            name = match["name"]
    return name.decode()


def _parameters(declaration: bytes, function: str) -> tuple[str, ...]:
    """The names of the parameters of a function; none if their text is not that of plain C."""
    code = _NOT_CODE.sub(b" ", declaration)
    named = re.search(rb"\b%s\s*\(" % function.encode(), code)
    arguments = _arguments(code, named.end(), len(code))[0] if named else []
    if any(sign in argument for argument in arguments for sign in (b"<", b"(")):
        return ()
    words = (re.findall(rb"[A-Za-z_]\w*", argument.partition(b"=")[0]) for argument in arguments)
    return tuple(found[-1].decode() if found else "" for found in words)


def _calls(text: bytes) -> Iterator[_Call]:
    """The checks whose formats are literals, in order; raises SourceError."""
    place, left = _Place(text), MAX_SEARCHED_BYTES
    for match in _CALL.finditer(text):
        if match["sign"] is not None:
            place.pass_sign(match["sign"], match.start())
            continue
        if match["call"] is None:
            if match["directive"] is not None:
                place.pass_directive(*match.span())
            place.pass_no_code(*match.span())
            continue
        opened = text.index(b"(", match.end()) + 1
        arguments, end = _arguments(text, opened, opened + left)
        left -= end - opened
        if not arguments:  # also true of the checks within it
            return
        if match["index"]:
            yield _index_call(place, match, opened, arguments)
            continue
        before = 2 if match["kind"] == b"_SYNC" else 1  # condition, and the sync point's name
        message = _literal(arguments[before]) if len(arguments) > before else ""
        if message is not None:
            wrong = problem(message, max(0, len(arguments) - before - 1))
            line = place.line(match.start())
            if wrong is not None:
                where = f" of {place.file}" if place.file else ""
                raise SourceError(f"the check in line {line}{where} cannot be reported: {wrong}")
            yield _Call(match.end(), opened, Check(line, message, place.function, place.file))


def _index_call(place: _Place, match: re.Match[bytes], opened: int, arguments: list[bytes]) -> _Call:
    """The check of an index of a buffer, which is a parameter of its kernel; raises SourceError."""
    line, wanted = place.line(match.start()), 3 if match["kind"] == b"_SYNC" else 2
    name = _without_comments(arguments[-2]).strip().decode(errors="replace") if len(arguments) > 1 else ""
    is_known = place.parameters[:MAX_SIZES].count(name) == 1
    if len(arguments) != wanted or not is_known or match["kind"] == b"_INSIDE":
        raise SourceError(
            f"the check in line {line} does not name a parameter of its kernel; write "
            "GPUCACHE_CHECK_INDEX(buffer, index) inside a kernel, with a parameter as the buffer"
        )
    check = Check(line, OUTSIDE.format(name), place.function, place.file)
    return _Call(match.end(), opened, check, place.parameters.index(name))


def _arguments(text: bytes, opened: int, limit: int) -> tuple[list[bytes], int]:
    """The arguments of a call as the preprocessor splits them, and where they end; none if not closed."""
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
    """The text of string literals; None if it is anything else."""
    code = _without_comments(argument)
    if not code.strip() or not _LITERALS.fullmatch(code):
        return None
    return "".join(_unescaped(part[1].decode("utf-8", "replace")) for part in _LITERAL.finditer(code))


def _without_comments(text: bytes) -> bytes:
    return _COMMENT.sub(lambda match: match[1] or b" ", text)


def _unescaped(text: str) -> str:
    def sign(match: re.Match[str]) -> str:
        if match[1] or match[2]:
            return chr((int(match[1], 16) if match[1] else int(match[2], 8)) & 0xFF)
        return _ESCAPES.get(match[3], match[3])

    return _ESCAPE.sub(sign, text)
