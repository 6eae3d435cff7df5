"""The words of which the name in an include through a macro can be made. Pure.

The preprocessor makes such a name from tokens in the include itself and in the bodies of the macros that it
leads to. So every word of the name is one of theirs or several of them put together, and every other
character is one of theirs, too. Such an include cannot mean a file whose name has anything else. That leaves
far fewer files than everything below the include directories, and needs no list of suffixes. Two things are
in no text: numbers, which macros of the compiler may give, and the ``_cl_`` that PoCL puts before names of
built-in functions.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# For compilers a dollar sign and all letters outside of ASCII are letters.
WORD = re.compile(rb"[\w$\x80-\xff]+")
DEFINITION = re.compile(rb"^([\w$\x80-\xff]+)(\([^)\n]*\))?[ \t\v\f]*([^\n]*)", re.MULTILINE)
FILE_NAMES = frozenset({b"__FILE__", b"__BASE_FILE__", b"__FILE_NAME__"})
RENAMED = b"_cl_"


@dataclass(frozen=True, slots=True)
class MacroWords:
    """The words and other characters of which the name of a header can be made."""

    words: frozenset[bytes]
    signs: frozenset[int]
    upward: bool
    """Whether a name may hold ``..``."""
    _known: dict[bytes, bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def rooted(self) -> bool:
        """Whether a name may begin at the root, as text before a slash can expand to nothing."""
        return ord("/") in self.signs

    def allows(self, component: bytes) -> bool:
        """Whether one part of a path, between slashes, can be made of these."""
        if not self.signs.issuperset(WORD.sub(b"", component)):
            return False
        return all(map(self._makes, WORD.findall(component)))

    def _makes(self, word: bytes) -> bool:
        if word not in self._known:
            self._known[word] = word in self.words or is_composed(word, self.words)
        return self._known[word]


Macros = Mapping[bytes, Sequence[tuple[bytes, bytes]]]
"""For each name its definitions: parameters in parentheses, empty for a macro without any, and the body."""


def macros_of(definitions: Iterable[bytes]) -> Macros:
    """The definitions of each name; every text holds operands of ``#define``, one a line."""
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
