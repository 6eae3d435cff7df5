"""PTX, NVIDIA's virtual assembly, as text. Source: the PTX ISA, chapters on syntax and directives.

PTX does not contain its length. A cut is noticed if the text ends inside a block, a parenthesis, a
comment, a string or a statement, or before ``.target``. A cut between two functions, inside the header's last
line or inside a ``//`` comment leaves valid PTX and is not noticed. Text that ends before the end of
``.version`` is not recognised as PTX.
"""

import re
from collections.abc import Iterator

from gpucache.payload.reading import BrokenError, PayloadKind, Reading
from gpucache.units import printable

_BLANK = rb"(?>\s+|//[^\n]*+|/\*(?s:.*?)\*/)*+"
_VERSION = re.compile(_BLANK + rb"\.version\s+(\d{1,3}\.\d{1,3})(?=\s)")
_TARGET = re.compile(_BLANK + rb"\.target\s+(?:sm|compute)_(\d{1,4}[a-z]?)(?=[\s,/])")
# Begins with a set of characters, so that the text between pieces is skipped quickly. Dots are not in
# the set, as every instruction has some.
_PIECE = re.compile(
    rb'[/"{()}]'
    rb"(?:(?<=/)(?:/[^\n]*+|(?P<comment>\*)(?s:.*?)(?:(?P<closed>\*/)|\Z))"
    rb'|(?<=")(?:[^"\\\n]|\\.)*+(?P<quote>"?)'
    rb"|(?P<open>(?<=[{(])[{(]*+)|(?P<close>(?<=[)}])[)}]*+))"
)
_NO_BRACKET = bytes(set(range(256)).difference(b"{}()"))
_COMMENT = re.compile(rb"//[^\n]*")
_ENTRY = re.compile(rb"\.entry\s+([\w$%]{1,4096})")
_LAST_LINE = re.compile(
    rb'.*(?:[;}]|\*/)|\.(?:version|target|address_size)\s.*|\.file\s+\d+\s+"[^"]*"(?:,.*)?|@@DWARF.*'
    rb'|\.section\s+\.comment\s+"[^"]*"'  # NVRTC's --version-ident adds it
)
_SCAN_LIMIT = 64 * 1024 * 1024
_TAIL = 65_536


def read_ptx(reading: Reading) -> None:
    """Describe PTX, or leave the kind unchanged if the bytes are not PTX.

    Raises BrokenError if the text is incomplete. NVRTC returns PTX with one NUL after it, which is part of
    the payload and no problem. PTX is code for a virtual architecture, so ``.target sm_90`` is shown as the
    architecture ``compute_90``.
    """
    data = reading.data
    end = len(data) - 1 if data.endswith(b"\0") else len(data)
    version = _VERSION.match(data, 0, end)
    if version is None:
        return
    reading.kind = PayloadKind.PTX
    reading.note("PTX version", version[1].decode())
    target = _TARGET.match(data, version.end(), end)
    if target is None:
        raise BrokenError("no .target directive follows .version")
    reading.architecture = f"compute_{target[1].decode()}"
    if (nul := data.find(b"\0", 0, end)) >= 0:
        raise BrokenError(f"there is a NUL byte inside the text, at byte {nul}")
    if end <= _SCAN_LIMIT:
        reading.note_names("entries", _entries(data, version.end(), end), kernels=True)


def _entries(data: bytes, start: int, end: int) -> Iterator[str]:
    """The names of entries; raises BrokenError after the last of them if the text is incomplete."""
    # Nothing else hides a bracket. One byte is found many times as fast as two.
    if data.find(b'"', start, end) < 0 and data.find(b"*", start, end) < 0:
        text = _COMMENT.sub(b"", data[start:end])
        yield from (printable(entry[1]) for entry in _ENTRY.finditer(text))
        text = text.translate(None, _NO_BRACKET)
        if text.count(b"{") + text.count(b"(") != text.count(b"}") + text.count(b")"):
            raise BrokenError("the text ends inside a block")
        _require_last_line(data[max(start, end - _TAIL) : end])
        return
    depth, comment_open, string_open = 0, False, False
    entries = _ENTRY.finditer(data, start, end)
    entry = next(entries, None)
    for piece in _PIECE.finditer(data, start, end):
        while entry is not None and entry.start() < piece.end():
            if entry.start() < piece.start():  # else it is in a comment or a string
                yield printable(entry[1])
            entry = next(entries, None)
        opened, closed = piece["open"], piece["close"]
        depth += (opened is not None and len(opened) + 1) - (closed is not None and len(closed) + 1)
        comment_open = piece["comment"] is not None and not piece["closed"]
        string_open = piece["quote"] == b""
    while entry is not None:
        yield printable(entry[1])
        entry = next(entries, None)
    if comment_open:
        raise BrokenError("the text ends inside a comment")
    if string_open:
        raise BrokenError("the text ends inside a string")
    if depth:
        raise BrokenError("the text ends inside a block")
    _require_last_line(data[max(start, end - _TAIL) : end])


def _require_last_line(tail: bytes) -> None:
    """The last line of code must be one that can end a module; a path in it may contain the comment sign."""
    end = len(tail)
    while end > 0:
        start = tail.rfind(b"\n", 0, end)
        line = tail[start + 1 : end].strip()
        code = line.partition(b"//")[0].rstrip()
        if code and not any(_LAST_LINE.fullmatch(text) for text in (code, line)):
            raise BrokenError("the text ends inside a statement")
        if code:
            return
        end = start
