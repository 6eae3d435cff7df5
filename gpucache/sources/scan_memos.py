"""Scans of texts, remembered by the text's digest: in this process, and in packs for later processes.

A scan depends on the text alone, so a text is scanned once, whichever programs include it. There is a pack
for each hex digit, for the digests that begin with it. It holds a line for each text: the digest, whether
trigraphs were read, and the scan as JSON, in which bytes are written as Latin-1. Losing a pack costs scans.
"""

import json
from contextlib import suppress
from typing import Any

from gpucache.sources.closure_memos import WORTH_FILES, Memos, name_of
from gpucache.sources.path_constants import PathConstants
from gpucache.sources.scan import Mention, Scan, scan
from gpucache.sources.token_pasting import Chain

PACK_BYTES_CAP = 2 << 20
"""Above this the scans that were packed first are dropped."""
WORTH_BYTES = 32 << 10
"""The amount of text that takes about as long to scan as a full pack takes to read."""
_REMEMBERED = 4096
_scans: dict[str, Scan] = {}


class Scans:
    """The scans of one walk."""

    def __init__(self, memos: Memos | None) -> None:
        self._memos = memos
        self._packs: dict[str, dict[bytes, bytes]] = {}
        self._asked_bytes: dict[str, int] = {}
        self._new: dict[str, Scan] = {}

    def of(self, content: str, data: bytes, *, trigraphs: bool) -> Scan:
        """The scan of a text with this digest."""
        key = f"{content}{trigraphs:d}"
        found = _scans.get(key)
        if found is None:
            if len(_scans) >= _REMEMBERED:
                _scans.clear()  # another thread may do so between any two lines here
            found = self._packed(key, len(data))
            if found is None:
                found = self._new[key] = scan(data, trigraphs=trigraphs)
            _scans[key] = found
        return found

    def keep(self) -> None:
        """Write what was scanned into the packs that were read, if there is enough of it."""
        if self._memos is None or not self._memos.keeps:
            return
        new = [key for key in self._new if key[0] in self._packs and key.encode() not in self._packs[key[0]]]
        if len(new) < WORTH_FILES:
            return
        for digit in {key[0] for key in new}:
            lines = {key.encode(): encode(self._new[key]) for key in new if key[0] == digit}
            pack = self._packs[digit]
            pack |= {key: line for key, line in lines.items() if len(line) < PACK_BYTES_CAP}
            size = sum(map(len, pack.values()))
            while size > PACK_BYTES_CAP:
                size -= len(pack.pop(next(iter(pack))))
            self._memos.remember(_name(digit), b"\n".join(b"%b %b" % line for line in pack.items()))

    def _packed(self, key: str, size: int) -> Scan | None:
        """The scan in a pack; None if it has none, or if too little text was asked for to read a pack."""
        asked = self._asked_bytes[key[0]] = self._asked_bytes.get(key[0], 0) + size
        if self._memos is None or asked < WORTH_BYTES:
            return None
        line = self._pack(key[0]).get(key.encode())
        return None if line is None else decode(line)

    def _pack(self, digit: str) -> dict[bytes, bytes]:
        pack = self._packs.get(digit)
        if pack is None:
            data = self._memos.recall(_name(digit)) if self._memos is not None else None
            lines = (line.partition(b" ") for line in (data or b"").split(b"\n"))
            pack = self._packs[digit] = {key: text for key, _, text in lines if text}
        return pack


def encode(found: Scan) -> bytes:
    """A scan as a line."""
    return json.dumps(
        [
            [(_text(one.name), one.angled, one.followed, one.every) for one in found.mentions],
            [*map(_text, found.asked)],
            found.clock,
            sorted(map(_text, found.probe_macros)),
            _text(found.conditions),
            _text(found.definitions),
            [(_text(one.macro), [*map(_text, one.operands)], _text(one.before)) for one in found.chains],
            found.path_constants.value,
            sorted(map(_text, found.path_macros)),
            sorted(map(_text, found.parts)),
            found.renames,
        ],
        separators=(",", ":"),
    ).encode("ascii")


def decode(line: bytes) -> Scan | None:
    """The scan of a line; None if it is none."""
    with suppress(ValueError, TypeError, AttributeError, RecursionError):
        mentions, asked, clock, probes, conditions, definitions, chains, where, paths, parts, renames = (
            json.loads(line)
        )
        return Scan(
            tuple(Mention(_bytes(name), *flags) for name, *flags in mentions),
            tuple(map(_bytes, asked)),
            clock,
            frozenset(map(_bytes, probes)),
            _bytes(conditions),
            _bytes(definitions),
            tuple(
                Chain(_bytes(macro), tuple(map(_some, row)), _some(before)) for macro, row, before in chains
            ),
            PathConstants(where),
            frozenset(map(_bytes, paths)),
            frozenset(map(_bytes, parts)),
            renames,
        )
    return None


def _name(digit: str) -> str:
    return name_of("scans", digit)


def _text(data: bytes | None) -> Any:
    return None if data is None else data.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _some(text: str | None) -> bytes | None:
    return None if text is None else _bytes(text)
