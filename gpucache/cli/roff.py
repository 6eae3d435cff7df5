"""Text as man(7) macros: the pieces that every manual page is made of.

Owns the roff. Knows nothing of the contents of a page.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from gpucache import __version__

_ESCAPES = str.maketrans(
    {"\\": r"\(rs", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}
)
_WIDTH = 72
_PLACEHOLDER = re.compile(r"[A-Z]{2,}")


def title(name: str, section: int, headline: str) -> Iterator[str]:
    """How a page begins; the headline is a phrase without a capital and a full stop."""
    yield f'.TH {escaped(name.upper())} {section} "" "gpucache {__version__}" "gpucache manual"'
    yield from (".nh", ".ad l", ".SH NAME")
    phrase = (headline[:1].lower() + headline[1:]).rstrip(".")
    yield rf"{escaped(name)} \- {escaped(phrase)}"


def heading(words: str) -> str:
    """The heading of a section."""
    return f".SH {escaped(words)}"


def subheading(words: str) -> str:
    """The heading of a part of a section."""
    return f".SS {escaped(words)}"


def synopsis(command: str, pieces: str) -> str:
    """A command in bold, with the placeholders for the user's words in italics."""
    arguments = _PLACEHOLDER.sub(r"\\fI\g<0>\\fR", escaped(pieces))
    return rf"\fB{escaped(command)}\fR {arguments}"


def paragraphs(texts: Iterable[str]) -> Iterator[str]:
    """Filled paragraphs."""
    for number, text in enumerate(texts):
        if number:
            yield ".PP"
        yield filled(text)


def verbatim(text: str) -> Iterator[str]:
    """Indented lines, as they are."""
    yield from (".PP", ".RS 4", ".nf", *(escaped(line) for line in text.splitlines()), ".fi", ".RE")


def listing(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Terms in bold, each with its meaning."""
    for term, meaning in rows:
        yield from (".TP", rf"\fB{escaped(term)}\fR", filled(meaning))


def options(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Options as Click spells them, such as ``-j, --jobs N``: names in bold, values in italics."""
    for spelled, meaning in rows:
        *others, last = spelled.split(", ")
        name, _, value = last.partition(" ")
        bold = ", ".join(rf"\fB{escaped(one)}\fR" for one in (*others, name))
        yield from (".TP", rf"{bold} \fI{escaped(value)}\fR" if value else bold, filled(meaning))


def reference(name: str, section: int) -> str:
    """Another page."""
    return rf"\fB{escaped(name)}\fR({section})"


def see_also(pages: Sequence[tuple[str, int]]) -> Iterator[str]:
    """The section that names other pages."""
    yield from (heading("SEE ALSO"), ",\n".join(reference(*page) for page in pages))


def filled(text: str) -> str:
    """Text that a page may break as it likes."""
    return "\n".join(
        map(escaped, textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False))
    )


def escaped(text: str) -> str:
    """Text escaped so that roff prints it as it is."""
    plain = text.translate(_ESCAPES)
    return rf"\&{plain}" if plain.startswith(".") else plain
