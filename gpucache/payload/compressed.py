"""Data packed by zlib (RFC 1950) or into a frame of zstd (RFC 8878): whether it is whole, and its content.

A zlib stream is unpacked to be checked, and ends in a checksum. The blocks of a zstd frame contain their
lengths, so a cut is noticed without unpacking; that needs the package ``zstandard``. Bytes after the data are
no damage, as readers ignore them. For any data, no more is unpacked than the caller allows.
"""

import zlib
from importlib import import_module

from gpucache.payload.reading import BrokenError, CutError

ZSTD, ZLIB = b"\x28\xb5\x2f\xfd", b"\x78"
_PIECE_BYTES = 1 << 20


def is_verified(data: bytes, most_bytes: int) -> bool:
    """Whether all of the data could be verified by unpacking at most ``most_bytes`` of it.

    Raises CutError for data that end too early, BrokenError for damaged data or an unknown form.
    """
    if data.startswith(ZSTD):
        _require_whole_frame(data)
        return True
    if data.startswith(ZLIB):
        return _is_stream_verified(data, most_bytes)
    raise BrokenError("it is not zstd or zlib")


def unpack(data: bytes, most_bytes: int) -> bytes:
    """At most so many bytes of packed data, from its beginning; raises BrokenError for damaged data, and
    for zstd if this Python cannot read it."""
    if data.startswith(ZLIB):
        try:
            return zlib.decompressobj().decompress(data, most_bytes)
        except zlib.error as error:
            raise BrokenError(f"its zlib data are damaged ({error})") from error
    try:
        zstandard = import_module("zstandard")
    except ImportError:
        raise BrokenError(
            "it is packed with zstd, which this Python cannot read; install zstandard"
        ) from None
    try:
        found: bytes = zstandard.ZstdDecompressor().stream_reader(data).read(most_bytes)
    except zstandard.ZstdError as error:
        raise BrokenError(f"its zstd data are damaged ({error})") from error
    return found


def _is_stream_verified(data: bytes, most_bytes: int) -> bool:
    stream, size = zlib.decompressobj(), 0
    try:
        while data and not stream.eof and size < most_bytes:
            size += len(stream.decompress(data, _PIECE_BYTES))
            data = stream.unconsumed_tail
    except zlib.error as error:
        raise BrokenError(f"its zlib data are damaged ({error})") from error
    if not stream.eof and size < most_bytes:
        raise CutError("its zlib data are cut off")
    return stream.eof


def _require_whole_frame(data: bytes) -> None:
    descriptor = data[4] if len(data) > 4 else 0
    single = descriptor >> 5 & 1
    at = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + (single, 2, 4, 8)[descriptor >> 6]
    last = False
    while not last:
        if at + 3 > len(data):
            raise CutError("its zstd data are cut off")
        header = int.from_bytes(data[at : at + 3], "little")
        last, kind = bool(header & 1), header >> 1 & 3
        if kind == 3:
            raise BrokenError(f"its zstd data have no such block as at byte {at}")
        at += 3 + (1 if kind == 1 else header >> 3)
    at += 4 * (descriptor >> 2 & 1)  # the checksum
    if at > len(data):
        raise CutError("its zstd data are cut off")
