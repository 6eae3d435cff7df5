"""Scans of texts, remembered by the text's digest: in this process, and in packs for later processes.

A scan depends on the text alone, so a text is scanned once, whichever programs include it. Each hex digit
has a pack, for the digests that begin with it. A pack is a MessagePack map from a text's digest to its scan,
which is itself encoded. Losing a pack costs scans.
"""

import os
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar, cast

from gpucache.sources.closure_memos import WORTH_FILES, Memos, name_of
from gpucache.sources.scan import Scan, scan

if TYPE_CHECKING:
    from msgspec.msgpack import Decoder

PACK_BYTES_CAP = 2 << 20
"""Above this size the scans that were packed first are dropped."""
WORTH_BYTES = 32 << 10
"""The amount of text that takes about as long to scan as a full pack takes to read."""
_REMEMBERED = 4096
_scans: dict[str, Scan] = {}
_decoders: dict[type, "Decoder[Any]"] = {}
_making = Lock()
"""Held while a decoder is made: of a type that several threads decode for the first time msgspec crashes."""
T = TypeVar("T")


def _begin() -> None:
    global _making
    _making = Lock()  # a thread that the fork did not copy may have the old one locked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)


class Scans:
    """The scans of one walk."""

    def __init__(self, memos: Memos | None) -> None:
        self._memos = memos
        self._packs: dict[str, dict[str, bytes]] = {}
        self._asked_bytes: dict[str, int] = {}
        self._new: dict[str, Scan] = {}

    def of(self, content: str, data: bytes) -> Scan:
        """The scan of the text with this digest."""
        found = _scans.get(content)
        if found is None:
            if len(_scans) >= _REMEMBERED:
                _scans.clear()  # another thread may do so between any two of these lines
            found = self._packed(content, len(data))
            if found is None:
                found = self._new[content] = scan(data)
            _scans[content] = found
        return found

    def keep(self) -> None:
        """Write new scans into the packs that were read, if there are enough of them."""
        if self._memos is None or not self._memos.keeps:
            return
        new = [key for key in self._new if key[0] in self._packs and key not in self._packs[key[0]]]
        if len(new) < WORTH_FILES:
            return
        for digit in {key[0] for key in new}:
            lines = {key: encode(self._new[key]) for key in new if key[0] == digit}
            pack = self._packs[digit]
            pack |= {key: line for key, line in lines.items() if len(line) < PACK_BYTES_CAP}
            size = sum(map(len, pack.values()))
            while size > PACK_BYTES_CAP:
                size -= len(pack.pop(next(iter(pack))))
            self._memos.remember(name_of("scans", digit), encode(pack))

    def _packed(self, key: str, size: int) -> Scan | None:
        """The scan stored in a pack; None if there is none, or if reading a pack does not pay yet."""
        asked = self._asked_bytes[key[0]] = self._asked_bytes.get(key[0], 0) + size
        if self._memos is None or asked < WORTH_BYTES:
            return None
        pack = self._packs.get(key[0])
        if pack is None:
            data = self._memos.recall(name_of("scans", key[0])) or b""
            pack = self._packs[key[0]] = decode(data, dict[str, bytes]) or {}
        return decode(pack[key], Scan) if key in pack else None


def encode(value: object) -> bytes:
    from msgspec.msgpack import encode as encoded  # small programs do not need it

    return encoded(value)


def decode(data: bytes, kind: type[T]) -> T | None:
    """The value of this type encoded in bytes; None for any other bytes."""
    from msgspec import MsgspecError, msgpack

    with _making:
        decoder = _decoders[kind] = _decoders.get(kind) or msgpack.Decoder(kind)
    try:
        return cast("T", decoder.decode(data))
    except (ValueError, RecursionError, MsgspecError):
        return None
