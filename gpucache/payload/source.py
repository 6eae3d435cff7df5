"""Source text of kernels, OpenCL C and CUDA C++ alike: the names of the kernels that it declares.

Text is not compiled, so conditionals are not followed, and a kernel that a macro makes is not seen. Work is
bounded, as a source may contain thousands of words that begin like a declaration.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping

_READ_BYTES = 1_000_000
_KERNELS = 1000
_DECLARATION_BYTES = 65_536
_FAILED_BYTES = 64 * _DECLARATION_BYTES
"""How much is read in total after words like ``kernel`` that do not begin a declaration."""
_NAME_BYTES = 512
_QUALIFIERS = frozenset({b"__kernel", b"kernel", b"__global__"})
_COMMENT = rb"(?s)//[^\n]*|/\*.*?(?:\*/|\Z)"
_DIRECTIVE = rb"(?m)^[ \t]*#(?:[^\n]*\\\r?\n)*[^\n]*"
_DEFINE = rb"(?m)^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]*)"
_ATTRIBUTES = (b"__attribute__", b"__launch_bounds__")
_MACROS_FOLLOWED = 4
_WORD = re.compile(rb"[A-Za-z_]\w*")
_TOKEN = re.compile(rb"[A-Za-z_]\w*|[^\s\w]")
# Nearly all kernels are declared like this; the bound limits the text that may be read in vain.
_SIMPLE = re.compile(
    rb"\s+void\s+(?!void\b|__attribute__\b|__launch_bounds__\b)([A-Za-z_]\w*)\s*\([^(){};]{0,2000}\)\s*[{;]"
)


def _qualified(marks: Iterable[bytes]) -> re.Pattern[bytes]:
    return re.compile(rb"(?:\b(void)\s+)?\b(?:%s)\b" % b"|".join(map(re.escape, sorted(marks))))


_QUALIFIED = _qualified(_QUALIFIERS)


def kernel_names(source: bytes) -> Iterator[str]:
    """The names of the kernels of a source, each once, in order; reads no further than requested.

    Macros for a qualifier (``#define KERNEL __kernel``) and for a name (``#define KERNEL_NAME scan``) are
    followed, regardless of the conditionals around them: the first definition counts.
    """
    text = source[:_READ_BYTES]
    if b"/" in text:
        text = re.sub(_COMMENT, b" ", text)
    macros, code = {}, text
    if b"#" in text:
        macros = {match[1]: match[2] for match in reversed(list(re.finditer(_DEFINE, text)))}
        code = re.sub(_DIRECTIVE, b"", text)
    own = (name for name, body in macros.items() if not _QUALIFIERS.isdisjoint(_WORD.findall(body)))
    marks = _QUALIFIERS.union(own)
    qualified = _QUALIFIED if marks == _QUALIFIERS else _qualified(marks)
    seen: set[str] = set()
    place = failed = 0
    while failed < _FAILED_BYTES and len(seen) < _KERNELS and (match := qualified.search(code, place)):
        simple = _SIMPLE.match(code, match.end())
        if simple and simple[1] not in marks:
            name, end = simple[1], simple.end()
        else:
            name, end = _declared(code, match.end(), marks, is_void=match[1] is not None)
        if not name:
            place = match.end()
            failed += end - place
            continue
        place = end
        shown = _expanded(name, macros)[:_NAME_BYTES].decode("ascii")
        if shown not in seen:
            seen.add(shown)
            yield shown


def _declared(code: bytes, start: int, marks: Container[bytes], *, is_void: bool) -> tuple[bytes, int]:
    """The name that a declaration has before its parameters, read from after its qualifier; and its end.

    The name is empty if it declares no kernel, and the end is then how far it was read. Attributes have
    parentheses, too, but the declaration goes on after them.
    """
    word, name, depth, end = b"", b"", 0, start
    for match in _TOKEN.finditer(code, start, start + _DECLARATION_BYTES):
        token, end = match[0], match.end()
        if depth or (token == b"(" and word):
            depth += (token == b"(") - (token == b")")
            if not depth:
                name = word if is_void and word not in (b"void", *_ATTRIBUTES) else b""
        elif token in (b"{", b";") or token in _ATTRIBUTES:
            if name or token in (b"{", b";"):
                return name, end
            word = token
        elif token in marks or not (word or _WORD.match(token)):
            break
        elif _WORD.match(token):
            is_void |= token == b"void"
            word, name = token, b""
    return b"", end


def _expanded(name: bytes, macros: Mapping[bytes, bytes]) -> bytes:
    for _ in range(_MACROS_FOLLOWED):
        body = macros.get(name, b"").strip()
        if not _WORD.fullmatch(body):
            break
        name = body
    return name
