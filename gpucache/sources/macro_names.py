"""The names that an include through a macro can have. Pure.

Only the preprocessor knows which of a macro's definitions is in force, if any. So every definition counts,
and so does the unexpanded word. Most includes have few possible names, such as CCCL's ``#include
__THRUST_HOST_SYSTEM_ALGORITH_HEADER_INCLUDE(sort.h)``: the macro expanded in all possible ways, by
``names_of``. That gives up if a macro uses ``##`` or takes any number of arguments, or if there are too many
expansions.

``macro_words`` is the fallback. The preprocessor makes such a name from tokens in the include and in bodies
of the macros that it leads to. So every word of the name is one of these words or several joined together,
and every other character is one of theirs, too. That leaves far fewer files than everything below the include
directories, and needs no list of suffixes. Two things are in no text: numbers, which macros of the compiler
may give, and the ``_cl_`` that PoCL puts before names of built-in functions.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

# For compilers a dollar sign and all letters outside ASCII are letters.
WORD = re.compile(rb"[\w$\x80-\xff]+")
DEFINITION = re.compile(rb"^([\w$\x80-\xff]+)(\([^)\n]*\))?[ \t\v\f]*([^\n]*)", re.MULTILINE)
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


def macro_words(asked: Iterable[bytes], macros: Macros, names: Iterable[bytes]) -> MacroWords:
    """The words of includes through macros.

    ``asked`` are the operands of these includes, and ``names`` the paths that ``__FILE__`` may expand to.
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


def names_of(operand: bytes, macros: Macros) -> frozenset[Pattern] | None:
    """The names that the operand of an include can expand to; None if they cannot be found by expansion."""
    try:
        expanded = _Expansion(macros).all_of(_tokens(operand, frozenset()))
        # A zero byte separates tokens, as a compiler may put a blank between them.
        spelled = (_LITERAL.match(b"\0".join(text for text, _ in tokens)) for tokens in expanded)
        return frozenset(_pattern(match[1] or match[2]) for match in spelled if match)
    except _UntoldError:
        return None


class _Expansion:
    """All expansions of one operand; raises _UntoldError."""

    def __init__(self, macros: Macros) -> None:
        self._macros = macros
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
        if text in FILE_NAMES or text == b"_Pragma" or text.startswith(b"__has_"):
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
