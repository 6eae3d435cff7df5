"""The index of Taichi's cache, ``ticache.tcb``: a row for each kernel, without which its file is not read.

Source: Taichi 1.7, ``taichi/util/offline_cache.h``; checked against files that it wrote. Little-endian: u64
size of this file, three u16 of Taichi's version, u64 size of all kernels, u64 their number, and for each the
name of its file and its key with u64 lengths ahead, u64 size, i64 seconds when it was made and last used.
Must not know files, nor what a kernel is.
"""

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gpucache.errors import FormatError

LARGEST_BYTES = 64 << 20
_HEAD, _TAIL, _LENGTH = struct.Struct("<Q3HQQ"), struct.Struct("<Qqq"), struct.Struct("<Q")


class Row(NamedTuple):
    """One kernel."""

    name: str
    """The name of its file without the ending."""
    key: str
    size_bytes: int
    made_s: int
    used_s: int


@dataclass(frozen=True, slots=True)
class Index:
    """What an index says."""

    version: tuple[int, ...]
    rows: Mapping[str, Row]
    """By name."""

    @classmethod
    def read(cls, data: bytes) -> "Index":
        """An index of its bytes; raises FormatError where they do not hold together."""
        rows: dict[str, Row] = {}
        try:
            size, *version, _, count = _HEAD.unpack_from(data)
            if size != len(data):
                raise FormatError(f"it says that it has {size} bytes, and has {len(data)}")
            at = _HEAD.size
            while len(rows) < count:
                name, at = _text(data, at)
                key, at = _text(data, at)
                if name in rows:
                    raise FormatError(f"it has two rows for {name}")
                rows[name] = Row(name, key, *_TAIL.unpack_from(data, at))
                at += _TAIL.size
        except struct.error:
            raise FormatError("it ends in the middle of a row") from None
        return cls(tuple(version), rows)

    def without(self, names: Collection[str]) -> bytes:
        """The bytes of the same index without some rows."""
        rows = [row for row in self.rows.values() if row.name not in names]
        body = b"".join(
            _bytes(row.name) + _bytes(row.key) + _TAIL.pack(row.size_bytes, row.made_s, row.used_s)
            for row in rows
        )
        kernels_bytes = sum(row.size_bytes for row in rows)
        return _HEAD.pack(_HEAD.size + len(body), *self.version, kernels_bytes, len(rows)) + body


def _bytes(text: str) -> bytes:
    return _LENGTH.pack(len(text)) + text.encode("latin-1")


def _text(data: bytes, at: int) -> tuple[str, int]:
    start = at + _LENGTH.size
    end = start + _LENGTH.unpack_from(data, at)[0]
    if end > len(data):
        raise FormatError("a name in it ends behind the file")
    return data[start:end].decode("latin-1"), end
