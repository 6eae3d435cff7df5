"""The names that an include through a macro can have. Pure.

Only the preprocessor knows which of a macro's definitions is in force, if any. So every definition counts,
and so does the unexpanded word: ``which_names`` expands an operand in all possible ways, such as CCCL's
``#include __THRUST_HOST_SYSTEM_ALGORITH_HEADER_INCLUDE(sort.h)``. It accepts only what it recognises: macros
with or without arguments, and ``#``, of plain ASCII, that come to one name and nothing else, or to a word,
which no compiler takes for a name. Anything else may name any file. Of 1,015 sources of other programs, 28
have such includes, and none needs more.

Compilers define macros of their own: numbers, and in capitals anything, which cannot be followed. PoCL puts
``_cl_`` before names of built-in functions.

Also finds the names (probes, clocks, file macros) that a program can paste together with ``##``.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import NamedTuple

# For compilers a dollar sign and all letters outside ASCII are letters.
WORD = re.compile(rb"[\w$\x80-\xff]+")
DEFINITION = re.compile(rb"^([\w$\\\x80-\xff]+)(\([^)\n]*\))?[ \t\v\f]*([^\n]*)", re.MULTILINE)
# Compilers define such macros, some of them as words or as nothing: __SIZE_TYPE__, __USER_LABEL_PREFIX__.
_NOT_FOLLOWED = re.compile(rb"__\w+__|__has_\w+|_Pragma|as_\w+|kernel_exec")
# And these, with a text that has no slash: NULL, INFINITY, __cplusplus, cl_khr_depth_images.
OF_COMPILER = re.compile(rb"[A-Z_][A-Z0-9_]+|_\w*|cl_\w*|" + _NOT_FOLLOWED.pattern)
_PROBES = (b"__has_include_next", b"__has_include", b"__has_embed")
RENAMED = b"_cl_"
_SUFFIX = b"stdh"
"""The suffix that NVRTC appends to names without a dot."""

Pattern = tuple[bytes, ...]
"""A path as regular expressions, one for each part between slashes; the first is empty for the root."""

Macros = Mapping[bytes, Sequence[tuple[bytes, bytes]]]
"""The definitions of each name: parameters in parentheses, empty for a macro without any, and the body."""


def macros_of(definitions: Iterable[bytes]) -> Macros:
    """The definitions of each name; every text contains operands of ``#define``, one per line."""
    macros: dict[bytes, dict[tuple[bytes, bytes], None]] = {}
    for text in definitions:
        for name, parameters, body in DEFINITION.findall(text):
            macros.setdefault(name, {})[parameters, body] = None
    return {name: tuple(found) for name, found in macros.items()}


def which_names(operand: bytes, macros: Macros) -> frozenset[Pattern] | None:
    """The names that the operand of an include can have; None if it may have any name.

    None at all means that no expansion is the name of a header, so that no compiler accepts the include.
    """
    try:
        expanded = _Expansion(macros).all_of(_tokens(operand, frozenset()))
        # A zero byte separates tokens, as a compiler may put a blank between them.
        texts = {b"\0".join(text for text, _ in tokens) for tokens in expanded}
        return frozenset(name for text in texts for name in _name(text, macros))
    except _UntoldError:
        return None


def is_composed(word: bytes, pieces: Collection[bytes], short: Collection[bytes]) -> bool:
    """Whether a word is a sequence of pieces, and of at most three of other, ``short`` words."""
    fewest = {0: 0}
    for end in range(1, len(word) + 1):
        parts = [(word[at:end], count) for at, count in fewest.items()]
        counts = [n + (part not in pieces) for part, n in parts if part in pieces or part in short]
        fewest |= {end: min(counts)} if counts else {}
    return fewest.get(len(word), _MOST_SHORT + 1) <= _MOST_SHORT


_Token = tuple[bytes, frozenset[bytes]]
"""A text, and the macros that it came from and that do not expand it again."""
_QUOTED = rb'"(?:[^"\\\n]|\\")*"'
_TOKEN = re.compile(_QUOTED + rb"|\w+|[ \t]+|.", re.DOTALL)
# An option with a name in quotes may be defined as it is written: no compiler takes that for a name.
_PLAIN = re.compile(rb"['\\](?![uUN])[^\n]*|(?:" + _QUOTED + rb"|[\w \t.,/+()<>-]|#(?!#))*")
"""Text of which all compilers make the same tokens; other characters may be digraphs, for example."""
_PIECE = re.compile(rb"\w+|[^ \t\0]")
_MOST = 512
_DEEPEST = 16
_LONGEST = 2000
_PIECES_OF_A_NAME = 32
_BLANKS = rb"[ \t]*"
# The token -> ends no name.
_NAME = re.compile(rb"[ \t\0]*(?:<([\w \t\0.,/+()-]+)(?<!-)(?<!-\0)>|(" + _QUOTED + rb"))[ \t\0]*")
_NO_NAME = re.compile(rb"""[ \t\0]*(?:(?:""|['\\]).*|[^"<]*)""")
_MADE = b"\1"
"""At the beginning of a string that ``#`` makes, as its words may be macros; a string of a text is exact."""


class _UntoldError(Exception):
    """The names of an include cannot be found by expansion."""


def _name(text: bytes, macros: Macros) -> Iterator[Pattern]:
    """The header's name that tokens spell; None if no compiler accepts them as one."""
    if match := _NAME.fullmatch(text):
        if match[2] and not match[2].startswith(b'"' + _MADE):
            # Compilers do not agree on whether an escaped quote ends a name.
            yield from (_with_suffix(_exactly(name)) for name in {match[2][1:-1], match[2].split(b'"')[1]})
        else:
            yield _with_suffix(_pattern(match[1] or match[2][1:-1], macros))
    elif not _NO_NAME.fullmatch(text):
        raise _UntoldError


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
            expands = (at for at, _ in enumerate(rest) if self._expands(rest, at, inner=depth > 0 or at > 0))
            place = next(expands, len(rest))
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

    def _expands(self, tokens: Sequence[_Token], place: int, *, inner: bool) -> bool:
        text, hidden = tokens[place]
        if _NOT_FOLLOWED.fullmatch(text):
            raise _UntoldError
        if text in self._macros:
            return text not in hidden
        # No compiler has a macro with arguments that makes a whole name, but it may make a part of one.
        following = (each for each, _ in tokens[place + 1 :] if not each.isspace())
        if inner and WORD.fullmatch(text) and next(following, b"") == b"(":
            raise _UntoldError
        return False

    def _replaced(
        self, token: _Token, rest: tuple[_Token, ...], depth: int
    ) -> Iterator[tuple[tuple[_Token, ...], tuple[_Token, ...]]]:
        """For each definition of a macro, the tokens that replace it and the tokens left after it."""
        name, own = token
        for parameters, body in self._macros[name]:
            if not _PLAIN.fullmatch(parameters + body) or b"..." in parameters:
                raise _UntoldError
            if not parameters:
                yield (*_tokens(body, own | {name}),), rest
                continue
            called = _arguments(rest)
            if called is None:
                continue
            arguments, left, behind = called
            named = dict(zip(WORD.findall(parameters), arguments, strict=False))
            if len(named) != len(arguments) and any(map(_text, arguments)):
                raise _UntoldError
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
                parts.append([((b'"%b%b"' % (_MADE, written), hidden),)])
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
    if not _PLAIN.fullmatch(text):
        raise _UntoldError
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


def _exactly(name: bytes) -> Pattern:
    return tuple(map(re.escape, name.split(b"/")))


def _pattern(name: bytes, macros: Macros) -> Pattern:
    """The pattern of a name: blanks may be around its words, and a word may be a macro for the compiler."""
    raw = name.replace(_MADE, b"").split(b"/")
    parts = [_PIECE.findall(part) for part in raw]
    if any(map(bytes.isspace, raw)) or any(len(pieces) > _PIECES_OF_A_NAME for pieces in parts):
        raise _UntoldError
    return tuple(_part(pieces, macros) for pieces in parts)


def _with_suffix(pattern: Pattern) -> Pattern:
    """A pattern that NVRTC's suffix may end."""
    return (*pattern[:-1], pattern[-1] + rb"(?:\.%b)?" % _SUFFIX)


def _part(pieces: Sequence[bytes], macros: Macros) -> bytes:
    known = _BLANKS.join(_piece(piece, macros) for piece in pieces)
    return known if {b"."}.issuperset(pieces) else _BLANKS + known + _BLANKS


def _piece(piece: bytes, macros: Macros) -> bytes:
    known = re.escape(piece)
    if not WORD.fullmatch(piece):
        return known
    any_text = piece not in macros and OF_COMPILER.fullmatch(piece)
    return rb"(?:(?:%b)?%b|%b)" % (RENAMED, known, rb"[^/]*" if any_text else rb"\d\w*(?:\.\d+)?")


FILES = (b"__FILE__", b"__BASE_FILE__")
CLOCKS_AND_FILES = (b"__DATE__", b"__TIME__", b"__TIMESTAMP__", *FILES)
ASSEMBLY = (b"__asm__", b"__asm")
DEPENDENCY = (b"dependency",)
PROBES_CLOCKS_AND_FILES = (*_PROBES, *CLOCKS_AND_FILES)
_NAMES = (*PROBES_CLOCKS_AND_FILES, *ASSEMBLY, *DEPENDENCY)
_SPANS = [(name, start, end) for name in _NAMES for start, end in combinations(range(len(name) + 1), 2)]
_PIECES = frozenset(name[start:end] for name, start, end in _SPANS)
PARTS = _PIECES - {*_NAMES}
"""Words that may become part of a probe's, a clock's or a file macro's name by ``##``."""
_OF_COMPILERS = frozenset({b"L"})
"""Words of ``PARTS`` that a compiler's own macros expand to, such as ``__INT64_C_SUFFIX__``."""
_MOST_SHORT = 3
"""Of more, as of the single letters that large libraries have all, any name could be put together."""
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
    """The word before the operands, or empty; None if an argument of a macro may begin with them."""

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
    available = {*words, *_OF_COMPILERS}
    literals = {operand for chain in chains for operand in chain.operands if operand}
    pieces = literals | {word for word in available if len(word) >= 3 or word[:1] == b"_"}
    if not chains or not (names := [name for name in names if is_composed(name, pieces, available)]):
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
