"""The names that an include through a macro can have. Pure.

Only the preprocessor knows which of a macro's definitions is in force, if any. So every definition counts,
and so does the unexpanded word. Most includes have few possible names, such as CCCL's ``#include
__THRUST_HOST_SYSTEM_ALGORITH_HEADER_INCLUDE(sort.h)``: the macro expanded in all possible ways, by
``names_of``. That gives up if a macro uses ``##`` or takes any number of arguments, or if there are too many
expansions.

``macro_words`` is the fallback. The preprocessor makes such a name from tokens in the include and in bodies
of the macros that it leads to. So every word of the name is one of these words or several joined together,
and every other character is one of theirs, too. That leaves far fewer files than all files below the include
directories, and needs no list of suffixes. Two things are in no text: numbers, which macros of the compiler
may give, and the ``_cl_`` that PoCL puts before names of built-in functions.

Also finds the names (probes, clocks, file macros) that a program can paste together with ``##``.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import NamedTuple

# For compilers a dollar sign and all letters outside ASCII are letters.
WORD = re.compile(rb"[\w$\x80-\xff]+")
DEFINITION = re.compile(rb"^([\w$\x80-\xff]+)(\([^)\n]*\))?[ \t\v\f]*([^\n]*)", re.MULTILINE)
# Compilers define such macros, some of them as words or as nothing: __SIZE_TYPE__, __USER_LABEL_PREFIX__.
# A word with other letters may be defined with universal character names.
_OF_COMPILER = re.compile(rb"__\w+__|[\w$]*[\x80-\xff][\w$\x80-\xff]*")
_UNIVERSAL = re.compile(rb"\\[uUN]")
FILE_NAMES = frozenset({b"__FILE__", b"__BASE_FILE__", b"__FILE_NAME__"})
RENAMED = b"_cl_"


@dataclass(frozen=True, slots=True)
class MacroWords:
    """The words and other characters from which the name of a header can be made."""

    words: frozenset[bytes]
    signs: frozenset[int]
    upward: bool
    """Whether a name may contain ``..``."""
    _known: dict[bytes, bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def rooted(self) -> bool:
        """Whether a name may begin at the root, as text before a slash can expand to nothing."""
        return ord("/") in self.signs

    def allows(self, component: bytes) -> bool:
        """Whether one part of a path, between slashes, can be made of these words and characters."""
        if not self.signs.issuperset(WORD.sub(b"", component)):
            return False
        return all(map(self._makes, WORD.findall(component)))

    def _makes(self, word: bytes) -> bool:
        if word not in self._known:
            self._known[word] = word in self.words or is_composed(word, self.words)
        return self._known[word]


Macros = Mapping[bytes, Sequence[tuple[bytes, bytes]]]
"""The definitions of each name: parameters in parentheses, empty for a macro without any, and the body."""


def macros_of(definitions: Iterable[bytes]) -> Macros:
    """The definitions of each name; every text contains operands of ``#define``, one per line."""
    macros: dict[bytes, dict[tuple[bytes, bytes], None]] = {}
    for text in definitions:
        for name, parameters, body in DEFINITION.findall(text):
            macros.setdefault(name, {})[parameters, body] = None
    return {name: tuple(found) for name, found in macros.items()}


def macro_words(
    asked: Collection[bytes],
    macros: Macros,
    names: Collection[bytes],
    *,
    renamed: bool = False,
    conditions: Collection[bytes] = (),
) -> MacroWords | None:
    """The words of includes through macros; None if one may have any word, such as of a compiler's macro.

    ``asked`` are the operands of these includes, and ``names`` the paths that ``__FILE__`` may expand to,
    unless they are ``renamed`` by ``#line``. Those among ``conditions`` have words besides a header's name.
    """
    words: set[bytes] = {RENAMED}
    reached: list[bytes] = []
    pending = [(frozenset[bytes](), operand) for operand in asked]
    while pending:
        parameters, text = pending.pop()
        reached.append(text)
        new = {word for word in WORD.findall(text) if word not in parameters} - words
        words |= new
        if new & FILE_NAMES:
            pending += [(frozenset(), name) for name in names]
        pending += [
            (frozenset(WORD.findall(parameters)), body)
            for word in new
            for parameters, body in macros.get(word, ())
        ]
        if not pending and any(b"##" in text or b"%:%:" in text for text in reached):
            made = {name for name in macros if name not in words and is_composed(name, words)}
            pending += [(frozenset(), name) for name in made]
    signs = frozenset(WORD.sub(b"", b" ".join(reached)))
    dots = (text.strip(b' \t"<>()') for text in reached)
    upward = any(b".." in text or text[:1] == b"." or text[-1:] == b"." for text in dots)
    includes = [operand for operand in asked if operand not in conditions]
    if len(includes) < len(asked) and includes and macro_words(includes, macros, names) is None:
        return None
    own = len(includes) == len(asked) and any(
        _OF_COMPILER.fullmatch(word) and word not in macros for word in words - FILE_NAMES
    )
    letters = any(_UNIVERSAL.search(text) for text in reached)
    if own or letters or (renamed and not words.isdisjoint(FILE_NAMES)):
        return None
    return MacroWords(frozenset(words), signs, upward)


def is_composed(word: bytes, pieces: Collection[bytes]) -> bool:
    """Whether a word is a sequence of pieces and digits."""
    ends = {0}
    for end in range(1, len(word) + 1):
        if any(word[start:end] in pieces or word[start:end].isdigit() for start in ends):
            ends.add(end)
    return len(word) in ends


Pattern = tuple[bytes, ...]
"""A path as regular expressions, one for each part between slashes; the first is empty for the root."""

_Token = tuple[bytes, frozenset[bytes]]
"""A text, and the macros that it came from and that do not expand it again."""
_TOKEN = re.compile(rb'"[^"\n]*"|' + WORD.pattern + rb"|\s+|##?|%:%:|.", re.DOTALL)
_PIECE = re.compile(WORD.pattern + rb"|[^\s\0]")
_MOST = 512
_DEEPEST = 16
_LONGEST = 2000
_PIECES_OF_A_NAME = 32
_BLANKS = rb"[ \t]*"
_LITERAL = re.compile(rb'[\s\0]*(?:<([^>\n]+)>|"([^"\n]+)")')


class _UntoldError(Exception):
    """The names of an include cannot be found by expansion."""


def names_of(operand: bytes, macros: Macros, *, condition: bool = False) -> frozenset[Pattern] | None:
    """The names that the operand of an include can expand to; None if they cannot be found by expansion.

    A ``condition`` has words besides a header's name.
    """
    try:
        expanded = _Expansion(macros, condition=condition).all_of(_tokens(operand, frozenset()))
        # A zero byte separates tokens, as a compiler may put a blank between them.
        spelled = (_LITERAL.match(b"\0".join(text for text, _ in tokens)) for tokens in expanded)
        return frozenset(_pattern(match[1] or match[2]) for match in spelled if match)
    except _UntoldError:
        return None


class _Expansion:
    """All expansions of one operand; raises _UntoldError."""

    def __init__(self, macros: Macros, *, condition: bool) -> None:
        self._macros = macros
        self._condition = condition
        self._steps = 0

    def all_of(self, tokens: Sequence[_Token], depth: int = 0) -> set[tuple[_Token, ...]]:
        """Every sequence of tokens that some tokens can expand to; ``depth`` counts the enclosing calls."""
        found: set[tuple[_Token, ...]] = set()
        pending: list[tuple[tuple[_Token, ...], tuple[_Token, ...]]] = [((), (*tokens,))]
        while pending:
            done, rest = pending.pop()
            place = next((number for number, token in enumerate(rest) if self._expands(token)), len(rest))
            done, rest = (*done, *rest[:place]), rest[place:]
            if not rest:
                found.add(done)
                continue
            self._step()
            if depth > _DEEPEST or len(done) + len(rest) > _LONGEST:
                raise _UntoldError
            pending.append(((*done, rest[0]), rest[1:]))
            pending += [(done, (*made, *left)) for made, left in self._replaced(rest[0], rest[1:], depth)]
        return found

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST:
            raise _UntoldError

    def _expands(self, token: _Token) -> bool:
        text, hidden = token
        if text in FILE_NAMES or text in (b"_Pragma", b"\\") or text.startswith(b"__has_"):
            raise _UntoldError
        if not self._condition and _OF_COMPILER.fullmatch(text) and text not in self._macros:
            raise _UntoldError
        return text in self._macros and text not in hidden

    def _replaced(
        self, token: _Token, rest: tuple[_Token, ...], depth: int
    ) -> Iterator[tuple[tuple[_Token, ...], tuple[_Token, ...]]]:
        """For each definition of a macro, the tokens that replace it and the tokens left after it."""
        name, own = token
        for parameters, body in self._macros[name]:
            if b"##" in body or b"%:%:" in body or b"__VA_" in body or b"..." in parameters:
                raise _UntoldError
            if not parameters:
                yield (*_tokens(body, own | {name}),), rest
                continue
            called = _arguments(rest)
            if called is None:
                continue
            arguments, left, behind = called
            named = dict(zip(WORD.findall(parameters), arguments, strict=False))
            if len(named) == len(arguments) or not any(map(_text, arguments)):
                for made in self._substituted(body, named, (own & behind) | {name}, depth):
                    yield made, left

    def _substituted(
        self,
        body: bytes,
        arguments: Mapping[bytes, Sequence[_Token]],
        hidden: frozenset[bytes],
        depth: int,
    ) -> Iterator[tuple[_Token, ...]]:
        # A parameter after # becomes the argument as written; any other becomes the argument expanded.
        parts: list[Iterable[tuple[_Token, ...]]] = []
        string = False
        for token in _tokens(body, hidden):
            argument = arguments.get(token[0])
            if string and argument is not None:
                written = _text(argument)
                if b'"' in written or b"\\" in written:  # the # operator would add backslashes
                    raise _UntoldError
                parts.append([((b'"%b"' % written, hidden),)])
            elif argument is not None:
                expanded = self.all_of(argument, depth + 1)
                parts.append([tuple((text, own | hidden) for text, own in row) for row in expanded])
            elif token[0] != b"#":
                parts.append([(token,)])
            string = token[0] == b"#" or (string and token[0].isspace())
        for chosen in product(*parts):
            self._step()
            yield tuple(token for part in chosen for token in part)


def _tokens(text: bytes, hidden: frozenset[bytes]) -> list[_Token]:
    return [(each, hidden) for each in _TOKEN.findall(text)]


def _text(tokens: Sequence[_Token]) -> bytes:
    return b" ".join(b"".join(text for text, _ in tokens).split())


def _arguments(
    rest: Sequence[_Token],
) -> tuple[list[list[_Token]], tuple[_Token, ...], frozenset[bytes]] | None:
    """A call's arguments, the tokens after it, and the macros hidden at its end; None if no call begins."""
    begin = next((number for number, (text, _) in enumerate(rest) if not text.isspace()), len(rest))
    if begin == len(rest) or rest[begin][0] != b"(":
        return None
    depth, arguments = 1, [list[_Token]()]
    for number, (text, hidden) in enumerate(rest[begin + 1 :], begin + 1):
        depth += {b"(": 1, b")": -1}.get(text, 0)
        if not depth:
            return arguments, (*rest[number + 1 :],), hidden
        if text == b"," and depth == 1:
            arguments.append([])
        else:
            arguments[-1].append((text, hidden))
    raise _UntoldError


def _pattern(name: bytes) -> Pattern:
    """The pattern of a name: blanks may be around its words, and a word may be a number for the compiler."""
    parts = [_PIECE.findall(part) for part in name.split(b"/")]
    if any(len(pieces) > _PIECES_OF_A_NAME for pieces in parts):
        raise _UntoldError
    return tuple(map(_part, parts))


def _part(pieces: Sequence[bytes]) -> bytes:
    known = _BLANKS.join(map(_piece, pieces))
    return known if {b"."}.issuperset(pieces) else _BLANKS + known + _BLANKS


def _piece(piece: bytes) -> bytes:
    known = re.escape(piece)
    number = rb"\d\w*(?:\.\d+)?"
    return rb"(?:(?:%b)?%b|%b)" % (RENAMED, known, number) if WORD.fullmatch(piece) else known


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
_LONGEST_PASTED = 32  # operands of one chain
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
        if len(operands) > _LONGEST_PASTED:
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
