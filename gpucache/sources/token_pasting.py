"""The names, such as probes, clocks and file macros, that a program can paste together with ``##``. Pure.

An operand of ``##`` is either a literal word, or a parameter, which can be any word in the texts or one that
is itself pasted. This grammar gives all pieces of such a name that a program can make, through any
number of macros. Two things restrict it:

* Text that no macro sees does not count: strings, directives, names of headers, messages of ``#error``.
* A parameter next to ``##`` gives the first or the last word of its argument. So ``struct has_##member``
  makes nothing that could follow ``__``: the word ``struct`` comes first, wherever it is used.

Words of one or two letters that do not begin with ``_`` are not counted as arguments, as they are in every
text; for the names of inline assembly, which are short, they are assumed to be present.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from gpucache.sources.macro_names import DEFINITION, WORD, is_composed

_PROBES = (b"__has_include_next", b"__has_include", b"__has_embed")
CLOCKS_AND_FILES = (b"__DATE__", b"__TIME__", b"__TIMESTAMP__", b"__FILE__", b"__BASE_FILE__")
ASSEMBLY = (b"__asm__", b"__asm")
DEPENDENCY = (b"dependency",)
PROBES_CLOCKS_AND_FILES = (*_PROBES, *CLOCKS_AND_FILES)
_NAMES = (*PROBES_CLOCKS_AND_FILES, *ASSEMBLY, *DEPENDENCY)
_SPANS = [(name, start, end) for name in _NAMES for start, end in combinations(range(len(name) + 1), 2)]
_PIECES = frozenset(name[start:end] for name, start, end in _SPANS)
PARTS = frozenset(piece for piece in _PIECES if len(piece) >= 3 or piece.startswith(b"_")) - {*_NAMES}
"""Words that may be part of such a name if they are next to ``##``."""
_SHORT = (
    frozenset(name[start:end] for name, start, end in _SPANS if name in ASSEMBLY and end - start < 3) - PARTS
)
_BEGINNINGS = frozenset(name[:end] for name, start, end in _SPANS if start == 0)
_PASTE = rb"(?:##|%:%:)"
_PASTES = re.compile(_PASTE)
_OPERAND = rb"[\w$\x80-\xff]*"
_CHAIN = re.compile(_OPERAND + rb"(?:\s*" + _PASTE + rb"\s*" + _OPERAND + rb")+")
_LAST_WORD = re.compile(WORD.pattern + rb"\Z")
_LONGEST = 32  # operands of one chain
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')

_Operands = tuple[bytes | None, ...]
"""The operands of ``##``, in order; None for a parameter."""


class Chain(NamedTuple):
    """Operands that one place of a definition pastes together."""

    macro: bytes
    operands: _Operands
    before: bytes | None
    """The word before them, empty for another character; None if an argument may begin with them."""

    def makes(self, piece: bytes, words: Collection[bytes]) -> bool:
        """Whether they make a piece if each parameter is one of some words, or empty."""
        ends = {0}
        for operand in self.operands:
            if operand is None:
                ends |= {end + len(word) for end in ends for word in words if piece.startswith(word, end)}
            else:
                ends = {end + len(operand) for end in ends if piece.startswith(operand, end)}
        return len(piece) in ends


class Paste(NamedTuple):
    """A name that can be pasted together, and the macro that pastes its last two parts."""

    name: bytes
    chain: Chain

    @property
    def probe(self) -> bool:
        """Whether it is the name of a probe, not of a clock or a file macro."""
        return self.name in _PROBES


def read_pastes(definition: bytes) -> tuple[list[Chain], set[bytes]]:
    """The chains in an operand of ``#define`` that may make a piece of a name, and its other words."""
    if (head := DEFINITION.match(definition.replace(b"\0", b" "))) is None:
        return [], set()
    macro, body = head[1], _STRING.sub(b'""', head[3]) if b'"' in head[3] else head[3]
    if b"__VA_OPT__" in body:  # the operand of ## may be anything in its parentheses
        return [Chain(macro, (None, None), None)], {*WORD.findall(body)}
    parameters = {*WORD.findall(head[2] or b""), b"__VA_ARGS__"}
    chains: list[Chain] = []
    for match in _CHAIN.finditer(body):
        words = map(bytes.strip, _PASTES.split(match[0]))
        operands = [None if word in parameters else word for word in words]
        if len(operands) > _LONGEST:
            return [Chain(macro, (None, None), None)], {*WORD.findall(body)}
        # An argument of several words ends one chain with its first word and begins another with its last.
        for start, end in combinations(range(len(operands) + 1), 2):
            first, last = operands[start], operands[end - 1]
            whole = (start == 0 or first is None) and (end == len(operands) or last is None)
            part = tuple(operand for operand in operands[start:end] if operand != b"")  # empty: a sign
            if (
                whole
                and part not in ((), (None,))
                and all(not operand or operand in _PIECES for operand in part)
            ):
                before = _before(body[: match.start()], parameters) if start == 0 else None
                chains.append(Chain(macro, part, before))
    return chains, {*WORD.findall(_CHAIN.sub(b" ", body))}


def find_paste(
    chains: Sequence[Chain],
    words: Iterable[bytes],
    macros: Callable[[], Collection[bytes]],
    names: Sequence[bytes],
) -> Paste | None:
    """The first of some names that can be pasted together; None if none can.

    ``words`` are the words in ``PARTS`` that macros see, without the operands of ``chains``. ``macros()`` is
    the names of all macros.
    """
    available = {*words, *(_SHORT if names is ASSEMBLY else ())}
    literals = {operand for chain in chains for operand in chain.operands if operand}
    if not chains or not any(is_composed(name, available | literals) for name in names):
        return None  # nearly always; the rest finds out which parts never meet
    defined = macros()
    before = -1
    while len(available) > before:
        before = len(available)
        for chain in chains:
            inner = chain.before is not None and chain.before not in defined
            candidates = _BEGINNINGS if inner else _PIECES
            available |= {piece for piece in candidates - available if chain.makes(piece, available)}
    made = (Paste(name, chain) for name in names for chain in chains if chain.makes(name, available))
    return next(made, None)


def _before(text: bytes, parameters: Collection[bytes]) -> bytes | None:
    """The word before a chain; None if there is none, or something that may expand to nothing."""
    text = text.rstrip()
    if not text or text[-1:] in b"(,)":
        return None
    word = _LAST_WORD.search(text)
    if word is None:
        return b""
    # Names that compilers define themselves begin with an underscore.
    return None if word[0] in parameters or word[0].startswith(b"_") else word[0]
