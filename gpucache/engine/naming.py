"""What programs are called: a name for one without, and the names by which its builds are found. Pure."""

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from gpucache.keys import digest
from gpucache.model import Program

UNNAMED = "unnamed"
ALIAS = "alias of "
"""How a history begins that only says under which names builds are recorded."""
_DIGITS = 16
_READ_BYTES = 1_000_000
_DECLARATIONS_TRIED = 64
_DECLARATION_BYTES = 65_536
_QUALIFIERS = (b"__kernel", b"kernel", b"__global__")
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_DIRECTIVE = re.compile(rb"^[ \t]*#(?:[^\n]*\\\r?\n)*[^\n]*", re.MULTILINE)
_DEFINE = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]*)", re.MULTILINE)
_ATTRIBUTES = (b"__attribute__", b"__launch_bounds__")
_MACROS_FOLLOWED = 4
_WORD = re.compile(rb"[A-Za-z_]\w*")
_TOKEN = re.compile(rb"[A-Za-z_]\w*|[^\s\w]")


def program_name(source: bytes) -> str:
    """The name of the first kernel of a source, or ``unnamed``; for people, never part of a key.

    Macros for a qualifier (``#define KERNEL __kernel``) and for a name (``#define KERNEL_NAME scan``) are
    followed, whatever the conditionals around them say: the first definition counts.
    """
    text = _COMMENT.sub(b" ", source[:_READ_BYTES])
    macros = {match[1]: match[2] for match in reversed(list(_DEFINE.finditer(text)))}
    marks = {name for name, body in macros.items() if not set(_QUALIFIERS).isdisjoint(_WORD.findall(body))}
    marks.update(_QUALIFIERS)
    code = _DIRECTIVE.sub(b"", text)
    qualified = re.finditer(rb"(?:\b(void)\s+)?\b(?:%s)\b" % b"|".join(map(re.escape, sorted(marks))), code)
    for match in islice(qualified, _DECLARATIONS_TRIED):
        found = _TOKEN.finditer(code, match.end(), match.end() + _DECLARATION_BYTES)
        tokens = (token[0] for token in found)
        name = _declared(tokens, marks, is_void=match[1] is not None)
        if name is not None:
            return _expanded(name, macros).decode("ascii")
    return UNNAMED


def _declared(tokens: Iterable[bytes], marks: Container[bytes], *, is_void: bool) -> bytes | None:
    """The name that a declaration gives after its qualifier: what stands before its list of parameters.

    Attributes have parentheses, too, but the declaration goes on after them.
    """
    word, name, depth = b"", b"", 0
    for token in tokens:
        if depth or (token == b"(" and word):
            depth += (token == b"(") - (token == b")")
            if not depth:
                name = word if is_void and word not in (b"void", *_ATTRIBUTES) else b""
        elif token in (b"{", b";") or token in _ATTRIBUTES:
            if name or token in (b"{", b";"):
                return name or None
            word = token
        elif token in marks or not (word or _WORD.match(token)):
            return None
        elif _WORD.match(token):
            is_void |= token == b"void"
            word, name = token, b""
    return None


def _expanded(name: bytes, macros: Mapping[bytes, bytes]) -> bytes:
    for _ in range(_MACROS_FOLLOWED):
        body = macros.get(name, b"").strip()
        if not _WORD.fullmatch(body):
            break
        name = body
    return name


def source_mark(source: bytes) -> str:
    """The first digits of a source's SHA-256: enough to tell versions of a program apart."""
    return digest(source)[:_DIGITS]


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes a program known again under another name."""

    name: str
    kernel: str
    """Its first kernel, or ``unnamed``. A library that gives no name calls the program so."""
    mark: str

    @classmethod
    def of(cls, program: Program) -> "Identity":
        """The identity of a program."""
        return cls(program.name, program_name(program.source), source_mark(program.source))

    @property
    def names(self) -> tuple[str, ...]:
        """The histories of its own: one may say ``kernels/nbody.cl``, ``nbody.cl``, or the kernel's name."""
        kernel = () if self.kernel == UNNAMED else (self.kernel,)
        return tuple(dict.fromkeys((self.name, _base(self.name), *kernel)))

    @property
    def aliases(self) -> dict[str, str]:
        """The histories that lead to builds under any other name, each with the name that needs none.

        The first kernel's name stays while a source is edited; a source without one is known by its digest.
        """
        base = _base(self.name)
        if self.kernel == UNNAMED:
            return {f"{ALIAS}file {base}": base, f"{ALIAS}source {self.mark}": ""}
        return {f"{ALIAS}file {base}": base, f"{ALIAS}kernel {self.kernel}": self.kernel}

    def is_kin(self, name: str, mark: str) -> bool:
        """Whether what was built under a name, from a source of this mark, is this program in some state."""
        nameless = self.kernel != UNNAMED and self.kernel in (name, self.name)
        return mark == self.mark or _base(name) == _base(self.name) or nameless


def _base(name: str) -> str:
    return name.rpartition("/")[2] or name
