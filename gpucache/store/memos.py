"""Data that processes remember to save time: compressed, with a checksum, bounded.

A file is an XXH3-128 of the rest, then the data compressed by zlib. Must not know what the data says.
"""

import zlib

import xxhash

from gpucache.store import layout
from gpucache.store.bounded_folder import BoundedFolder, Bounds
from gpucache.store.root_folder import RootFolder

UNPACKED_BYTES_CAP = 32 << 20
"""Longer data is not kept."""
_BOUNDS = Bounds(files=1024, file_bytes=4 << 20, total_bytes=16 << 20)
_CHECKSUM_BYTES = 16
_FASTEST = 1


class Memos:
    """The memos below one root."""

    def __init__(self, root: RootFolder) -> None:
        self._folder = BoundedFolder(root, layout.CLOSURES, ".memo", _BOUNDS)

    def recall(self, name: str, *, use: bool) -> bytes | None:
        """The data kept under a name; None if there is none, or its checksum does not match."""
        file = self._folder.get(name, use=use)
        if file is None or xxhash.xxh3_128_digest(file[_CHECKSUM_BYTES:]) != file[:_CHECKSUM_BYTES]:
            return None
        unpacking = zlib.decompressobj()
        try:
            data = unpacking.decompress(file[_CHECKSUM_BYTES:], UNPACKED_BYTES_CAP)
        except zlib.error:
            return None
        return data if unpacking.eof else None

    def remember(self, name: str, data: bytes) -> None:
        """Keep something under a name."""
        if len(data) <= UNPACKED_BYTES_CAP:
            packed = zlib.compress(data, _FASTEST)
            self._folder.put(name, xxhash.xxh3_128_digest(packed) + packed)
