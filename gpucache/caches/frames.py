"""Frames: the parts of a file's bytes as one line of text, and the rules that the parts keep.

A frame has one word for each part, in order: ``name:u8`` (u32, u64) is a little-endian number, ``name:z`` a C
string, ``name:p64`` bytes after their length as u64, ``name:rest`` all that follows, ``:N`` or ``:N*name``
bytes to pass over, ``/4`` zeros up to a multiple of 4. ``?name`` after a word reads it only if that number
is not 0. Only numbers and strings are read, and the parts that a rule asks for, each after a comparison with
the file's size. Must not know any system.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from gpucache.answers.entries import FindingKind
from gpucache.caches.files import Files
from gpucache.errors import FormatError
from gpucache.units import format_size

LOOKED_BYTES = 256 << 20
"""The largest part that is read whole."""
_PIECE_BYTES = 1 << 20
_HEAD_BYTES = 64 << 10
_TEXT_BYTES = 4096
_NUMBERS = {"u8": 1, "u32": 4, "u64": 8}
_WORD = re.compile(r"(\w*):(u8|u32|u64|z|p64|rest|\d+(?:\*\w+)?)(?:\?(\w+))?|/(\d+)")


class LargeError(FormatError):
    """A part is too large to be read; the message says so after 'it was'."""


class Span(NamedTuple):
    """The place of a part in its file."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        """Where the next part begins."""
        return self.offset + self.length


class Parts:
    """The parts of one file by name. Raises FormatError for a link and the like, OSError."""

    def __init__(self, item: Files, name: str, frame: str) -> None:
        self.item, self.name = item, name
        self.size_bytes = item.seen[name].st_size
        self.numbers: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.spans: dict[str, Span] = {}
        self.cut = ""
        """The part in which the file ends; empty if it is whole."""
        self._head = item.part(name, 0, _HEAD_BYTES)
        self._at = 0
        for part, kind, only, multiple in _words(frame):
            if only and not self.numbers.get(only):
                continue
            self._at = self._end(part, kind) if kind else -(-self._at // int(multiple)) * int(multiple)
            if self._at > self.size_bytes:
                self.cut = part or "head"
                return

    def read(self, part: str, most: int | None = None) -> bytes:
        """A part, or its first bytes; raises LargeError, FormatError if the file became shorter, OSError."""
        return self.part(self.spans[part], most)

    def part(self, span: Span, most: int | None = None) -> bytes:
        """The bytes of a span, like ``read``."""
        length = span.length if most is None else min(span.length, most)
        if length > LOOKED_BYTES and most is None:
            raise LargeError(f"not looked into: larger than {format_size(LOOKED_BYTES)}")
        data = self._bytes(span.offset, length)
        if len(data) != length:
            raise FormatError(f"{self.name} became shorter while it was read; try again")
        return data

    def _bytes(self, offset: int, length: int) -> bytes:
        if offset + length <= len(self._head):
            return self._head[offset : offset + length]
        return self.item.part(self.name, offset, length)

    def sha256(self, span: Span) -> str:
        """SHA-256 of a span of any length, as lower-case hex."""
        hasher = hashlib.sha256()
        for offset in range(span.offset, span.end, _PIECE_BYTES):
            hasher.update(self.part(Span(offset, min(_PIECE_BYTES, span.end - offset))))
        return hasher.hexdigest()

    def number(self, offset: int, size: int = 8) -> int:
        """The number at an offset; 0 if the file ends before it."""
        data = self._bytes(offset, size)
        return int.from_bytes(data, "little") if len(data) == size else 0

    def _end(self, part: str, kind: str) -> int:
        """Where a part ends, which is noted by its name."""
        start, left = self._at, self.size_bytes - self._at
        if kind in _NUMBERS:
            self.numbers[part] = self.number(start, _NUMBERS[kind])
            return start + _NUMBERS[kind]
        if kind == "z":
            text, end, _ = self._bytes(start, _TEXT_BYTES).partition(b"\0")
            self.texts[part] = text.decode("utf-8", "replace")
            return start + len(text) + 1 if end else self.size_bytes + 1
        if kind == "rest":
            self.spans[part] = Span(start, left)
        elif kind == "p64":
            self.spans[part] = Span(start + 8, self.number(start) if left >= 8 else left)
        else:
            times, _, of = kind.partition("*")
            return start + int(times) * (self.numbers.get(of, 0) if of else 1)
        return self.spans[part].end


class Rule(NamedTuple):
    """A property that the parts of a file must have."""

    kind: FindingKind | None
    """The kind of a violation; None if it is only noted."""
    broken: Callable[[Parts], object]
    """A false value if the rule is kept; else a value for ``{}`` in the sentence."""
    says: str
    effect: str = ""
    """The effect on programs, if it is not that of every damage of the file."""


class Frame(NamedTuple):
    """The files with some names: their parts, the effect of damage on programs, and their rules."""

    names: str
    """A pattern."""
    words: str
    effect: str
    """Ends the sentences about damage."""
    rules: Sequence[Rule] = ()


@cache
def _words(frame: str) -> tuple[tuple[str, str, str, str], ...]:
    return tuple(_iterated(frame))


def _iterated(frame: str) -> Iterator[tuple[str, str, str, str]]:
    for word in frame.split():
        match = _WORD.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is no word of a frame")
        part, kind, only, multiple = match.groups("")
        yield part, kind, only, multiple
