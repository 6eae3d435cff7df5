"""Many sources joined into one program, in which each means the same as alone. Pure.

The lines with which all sources begin (includes, pragmas, types, shared functions) are written once. The rest
of each source follows after a ``#line`` with its name, so that messages name it. Sources could affect each
other: by a macro; by a name that two of them declare, which C++ may silently take for an overload; by a
header that is included again under other macros. So the sources are read, and if this cannot be ruled out
they are ``Apart``, with the reason. The macros of a source are undefined at its end, and an ``#error`` stops
a source whose macro was defined before.

Only names built with ``##`` are missed: if two sources make the same one, a C compiler refuses it, and C++
treats them as overloads.
"""

import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_TOKEN = re.compile(
    rb"""//(?:\\\r?\n|[^\n])*|/\*.*?\*/
    |(?P<open>/\*)
    |(?P<directive>^[ \t]*(?:\#|%:|\?\?=)
        (?:\\\r?\n|//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|(?P<unended>\Z))|"(?:\\.|[^"\\\n])*"|[^\n])*)
    |(?P<raw>(?:u8|[uUL])?R")
    |(?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<number>\.?\d(?:[eEpP][+-]|'?\w|\.)*)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<mark>::|\S)""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_BETWEEN = re.compile(rb"\\\r?\n|//(?:\\\r?\n|[^\n])*|/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(rb"\s*(?:#|%:|\?\?=)\s*(\w*)\s*(.*)", re.DOTALL)
_NAME = re.compile(rb"[A-Za-z_]\w*")
_HARMLESS_PRAGMAS = (b"unroll", b"nounroll", b"once")
# Words before a parenthesis, a brace or a comma that the program does not declare.
_PLAIN = re.compile(
    rb"(?:u?(?:char|short|int|long)|float|double|half|bool|size_t|u?intptr_t|u?int(?:8|16|32|64)_t)\d*"
    rb"|void|unsigned|signed|const|volatile|auto|noexcept|override|final|sizeof|struct|union|enum|class"
    rb"|typename|static_assert|alignas|decltype|__\w+"
)
_NAMING = (b"(", b";", b"=", b",", b"[", b"{", b":")
_CLOSING = {b"(": b")", b"[": b"]", b"{": b"}"}


@dataclass(frozen=True, slots=True)
class Part:
    """One source of a batch."""

    name: str
    """For people; in messages and in ``__FILE__``."""
    source: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """Sources as one program."""

    name: str
    source: bytes


@dataclass(frozen=True, slots=True)
class Apart:
    """Sources that are not joined."""

    reason: str
    """Why the sources are not joined, as a clause."""


class _Token(NamedTuple):
    kind: str
    text: bytes
    """The text of a directive, without comments and with single blanks."""
    end: int


@dataclass(slots=True)
class _Body:
    """A source without the tokens with which all sources begin."""

    part: Part
    start: int
    words: set[bytes] = field(default_factory=set)
    declared: set[bytes] = field(default_factory=set)
    macros: dict[bytes, bool] = field(default_factory=dict)
    """Macros that the source defines or undefines, and whether only below an ``#ifndef`` of them."""


class _Unfit(Exception):  # noqa: N818 - a result on its way up, not an error
    """Sources cannot be joined; the text says why."""


def join(parts: Sequence[Part]) -> Joined | Apart:
    """One program of one or more sources; equal sources count once. A single source is not changed."""
    unlike = list({part.source: part for part in reversed(parts)}.values())[::-1]
    if len(unlike) == 1:
        return Joined(unlike[0].name, unlike[0].source)
    try:
        read = [_read(part) for part in unlike]
        shared = _shared(read)
        bodies = [_body(part, tokens, shared) for part, tokens in zip(unlike, read, strict=True)]
        _keep_apart(bodies)
    except _Unfit as unfit:
        return Apart(str(unfit))
    head = unlike[0].source[: bodies[0].start]
    source = b"".join([_line(unlike[0].name, 1), head, b"\n", *map(_written, bodies)])
    return Joined(f"{unlike[0].name} and {len(unlike) - 1} more", source)


def _read(part: Part) -> list[_Token]:
    tokens = []
    for match in _TOKEN.finditer(part.source):
        kind, text = match.lastgroup, match[0]
        if kind is None:
            continue
        if kind in ("open", "raw") or match["unended"] is not None or text in (b"#", b'"', b"'"):
            raise _Unfit(f"{part.name} contains a raw string, or an unterminated comment or string")
        if kind == "directive":
            text = b" ".join(_BETWEEN.sub(b" ", text).split())
        tokens.append(_Token(kind, text, match.end()))
    return tokens


def _shared(read: Sequence[Sequence[_Token]]) -> int:
    """How many tokens all sources have in common at their start, up to the end of a whole declaration."""
    first, rest = read[0], read[1:]
    alike = min(len(tokens) for tokens in read)
    for tokens in rest:
        pairs = zip(first[:alike], tokens[:alike], strict=True)
        alike = next((at for at, (one, other) in enumerate(pairs) if one[:2] != other[:2]), alike)
    return max((end for end in _ends(first) if end <= alike), default=0)


def _ends(tokens: Sequence[_Token]) -> Iterator[int]:
    """The numbers of tokens after which a source could be cut in two."""
    depth = conditions = 0
    pending = function = False
    for at, (kind, text, _) in enumerate(tokens):
        if kind == "directive":
            name, _ = _directive(text)
            conditions += name.startswith(b"if") - (name == b"endif")
        elif kind == "mark" and text in _CLOSING:
            if not depth and text == b"{":
                function = at > 0 and tokens[at - 1].text == b")"
            depth += 1
        elif kind == "mark" and text in _CLOSING.values():
            depth -= 1
        if not depth and kind != "directive":
            pending = not (text == b";" or (text == b"}" and function))
        if not (depth or conditions or pending):
            yield at + 1


def _directive(text: bytes) -> tuple[bytes, bytes]:
    match = _DIRECTIVE.fullmatch(text)
    return (match[1], match[2]) if match else (b"", b"")


def _body(part: Part, tokens: Sequence[_Token], shared: int) -> _Body:
    body = _Body(part, tokens[shared - 1].end if shared else 0)
    depth = conditions = 0
    before = b""
    for kind, text, _ in tokens[shared:]:
        if kind == "directive":
            name, rest = _directive(text)
            conditions += name.startswith(b"if") - (name == b"endif")
            _take_directive(body, name, rest, depth, before)
        elif kind == "mark":
            depth += (text in _CLOSING) - (text in _CLOSING.values())
        if kind in ("directive", "word"):
            body.words.update(_NAME.findall(text))
        if depth < 0 or conditions < 0:
            break
        before = text
    if depth or conditions:
        raise _Unfit(f"{part.name} opens a brace or a condition that it does not close, or closes one")
    code = [token for token in tokens[shared:] if token.kind != "directive"]
    defined = (_directive(text) for kind, text, _ in tokens if kind == "directive")
    macros = {match[0] for name, rest in defined if name == b"define" and (match := _NAME.match(rest))}
    body.declared = {name for name in _declared(part, code, macros) if not _PLAIN.fullmatch(name)}
    return body


def _take_directive(body: _Body, name: bytes, rest: bytes, depth: int, before: bytes) -> None:
    first = rest.split(b" ", 1)[0]
    if name.startswith((b"include", b"import")) or (
        name == b"pragma" and not depth and first.split(b"(")[0] not in _HARMLESS_PRAGMAS
    ):
        raise _Unfit(
            f"{body.part.name} says '#{_text(name)} {_text(rest)}' where the other sources do not; "
            "begin all of them with the same lines"
        )
    match = _NAME.match(rest)
    if name in (b"define", b"undef") and match:
        default = name == b"define" and _directive(before) == (b"ifndef", match[0])
        body.macros[match[0]] = default and body.macros.get(match[0], True)


def _declared(part: Part, code: Sequence[_Token], macros: Container[bytes]) -> Iterator[bytes]:
    """The names that a source may declare at file scope; some of them it only mentions."""
    at, fresh, see_through = 0, True, 0
    while at < len(code):
        kind, text, _ = code[at]
        following = code[at + 1].text if at + 1 < len(code) else b""
        if text == b"template" and following == b"<":
            at, fresh = _closed(code, at + 1, {b"<": b">"}), True
            continue
        if text == b"_Pragma" or (text == b"using" and following == b"namespace"):
            raise _Unfit(f"{part.name} says '{_text(text)}', which affects all text after it")
        if text == b"enum":
            yield from _constants(code, at)
        elif kind == "word" and following == b"(" and not _PLAIN.fullmatch(text):
            end = _closed(code, at + 1, _CLOSING)
            inside = [token.text for token in code[at:end] if token.kind == "word"]
            called = fresh or text in macros or (end < len(code) and code[end].text == b"(")
            yield from inside[1:] if called else inside[:1]
        elif kind == "word" and following in _NAMING:
            yield text
        elif text == b"{" and (code[at - 1].kind == "string" or code[at - 1].text == b"namespace"):
            at, fresh, see_through = at + 1, True, see_through + 1
            continue
        if text in _CLOSING and kind == "mark":
            at = _closed(code, at, _CLOSING)
            fresh = text == b"{"
        else:
            at, fresh = at + 1, text == b";" or (text == b"}" and see_through > 0)


def _constants(code: Sequence[_Token], at: int) -> Iterator[bytes]:
    """The words in the braces of an enumeration, if it has braces."""
    while at < len(code) and code[at].text not in (b"{", b";", b"("):
        at += 1
    if at < len(code) and code[at].text == b"{":
        yield from (token.text for token in code[at : _closed(code, at, _CLOSING)] if token.kind == "word")


def _closed(code: Sequence[_Token], at: int, closing: dict[bytes, bytes]) -> int:
    """The position after the bracket that closes the one at ``at``; ``at`` plus one if there is none."""
    depth = 0
    for end in range(at, len(code)):
        kind, text, _ = code[end]
        if kind == "mark":
            depth += (text in closing) - (text in closing.values())
        if not depth:
            return end + 1
    return len(code)


def _keep_apart(bodies: Sequence[_Body]) -> None:
    """Raise _Unfit if a source declares a name that another one mentions."""
    mentioned = Counter(word for body in bodies for word in body.words)
    for body in bodies:
        for name in sorted(body.declared):
            if mentioned[name] > 1:
                other = next(one for one in bodies if one is not body and name in one.words)
                raise _Unfit(f"{body.part.name} and {other.part.name} both have the name {_text(name)}")


def _written(body: _Body) -> bytes:
    """The rest of a source, between lines that keep its macros to itself."""
    label = body.part.name
    before, after = [_line(label, 1)] if body.macros else [], []
    for name, default in sorted(body.macros.items()):
        kept = b"gpucache_keeps_" + name
        if default:
            before.append(b"#ifdef %s\n#define %s\n#endif\n" % (name, kept))
            after.append(b"#ifndef %s\n#undef %s\n#endif\n#undef %s\n" % (kept, name, kept))
        else:
            had = b"%s has a meaning before this source defines it" % name
            before.append(b'#ifdef %s\n#error "%s"\n#endif\n' % (name, had))
            after.append(b"#undef %s\n" % name)
    source = body.part.source
    here = _line(label, 1 + source.count(b"\n", 0, body.start))
    return b"".join([*before, here, source[body.start :], b"\n", *after])


def _line(name: str, number: int) -> bytes:
    """A ``#line`` directive; characters that its name cannot contain are left out."""
    spelled = "".join(char for char in name if char.isprintable()).replace("\\", "/").replace('"', "'")
    return b'#line %d "%s"\n' % (number, spelled.encode(errors="replace"))


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
