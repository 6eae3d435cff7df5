"""The form of manual pages in roff, and the texts of pages, which are files in ``pages/``.

A text has blocks between blank lines: ``# WORDS`` is a heading, lines after four blanks are printed as they
are, a term has its meaning below it after ``: ``, ``{name}`` is a part that code makes, ``SEE name(1)`` names
other pages, and everything else is a paragraph. The first block of a page is its headline.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gpucache import __version__

_PAGES = Path(__file__).with_name("pages")
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
    return f".SH {escaped(words)}"


def subheading(words: str) -> str:
    return f".SS {escaped(words)}"


def synopsis(command: str, pieces: str) -> str:
    """A command in bold, with the placeholders for the user's words in italics."""
    arguments = _PLACEHOLDER.sub(r"\\fI\g<0>\\fR", escaped(pieces))
    return rf"\fB{escaped(command)}\fR {arguments}"


def paragraphs(texts: Iterable[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number:
            yield ".PP"
        yield filled(text)


def verbatim(text: str) -> Iterator[str]:
    yield from (".PP", ".RS 4", ".nf", *(escaped(line) for line in text.splitlines()), ".fi", ".RE")


def listing(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
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
    return rf"\fB{escaped(name)}\fR({section})"


def see_also(pages: Sequence[tuple[str, int]]) -> Iterator[str]:
    yield from (heading("SEE ALSO"), ",\n".join(reference(*page) for page in pages))


def filled(text: str) -> str:
    lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(escaped, lines))


def escaped(text: str) -> str:
    plain = text.translate(_ESCAPES)
    return rf"\&{plain}" if plain.startswith(".") else plain


_MADE = re.compile(r"\{(\w+)\}")
_OTHER_PAGE = re.compile(r"(\S+)\((\d)\)")


def page(name: str, section: int, text: str, **made: Iterable[str]) -> Iterator[str]:
    """The lines of a page with a text; ``made`` are its parts that code makes."""
    headline, *rest = _blocks(text)
    yield from title(name, section, headline)
    yield from _lines(rest, made)


def part(text: str) -> Iterator[str]:
    """The lines of a text that is a part of a page."""
    return _lines(_blocks(text), {})


def verbatims(text: str) -> dict[str, list[str]]:
    """What users copy of a text, by the heading above it."""
    found: dict[str, list[str]] = {}
    for block in _blocks(text):
        if block.startswith("# "):
            found[here := block[2:]] = []
        elif block.startswith(" "):
            found[here].append(textwrap.dedent(block))
    return found


def terms(text: str) -> dict[str, list[str]]:
    """The terms of a text, each with the parts of its meaning."""
    split = (block.split("\n: ") for block in _blocks(text) if "\n: " in block)
    return {term: [" ".join(one.split()) for one in told] for term, *told in split}


def _blocks(text: str) -> list[str]:
    found: list[str] = []
    for block in (_PAGES / f"{text}.txt").read_text(encoding="utf-8").strip("\n").split("\n\n"):
        if found and block.startswith(" ") and found[-1].startswith(" "):
            found[-1] += f"\n\n{block}"
        else:
            found.append(block if block.startswith(" ") else block.replace("\n  ", " "))
    return found


def _lines(blocks: Iterable[str], made: dict[str, Iterable[str]]) -> Iterator[str]:
    is_first = True
    for block in blocks:
        if block.startswith("# "):
            yield heading(block[2:])
        elif block.startswith(" "):
            yield from verbatim(textwrap.dedent(block))
        elif "\n: " in block:
            term, meaning, *more = block.split("\n: ")
            yield from listing([(term, meaning)])
            yield from (line for one in more for line in (".IP", filled(one)))
        elif match := _MADE.fullmatch(block):
            yield from made[match[1]]
        elif block.startswith("SEE "):
            yield from see_also([(name, int(section)) for name, section in _OTHER_PAGE.findall(block)])
        else:
            yield from () if is_first else (".PP",)
            yield filled(block)
        is_first = block.startswith("# ")
