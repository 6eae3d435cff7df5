"""The bytes of one entry: written whole, read in stages from an open file, verified at every stage.

Little-endian; one file per entry:

    offset  size  field
         0     8  magic ``GPUCACHE``
         8     4  format version
        12     4  head length h (at most 1 MiB)
        16     8  detail length d (at most 64 MiB)
        24     8  payload length
        32     8  total file size (at most 4 GiB; compared before any length is used)
        40     8  zero
        48    32  cache key
        80    16  XXH3-128 of everything before this field, head and detail
        96    16  XXH3-128 of the payload
       112     h  head: canonical JSON (see ``description``)
               d  detail: canonical JSON
                  zero bytes up to the next multiple of 64
                  payload, as the compiler returned it

A checksum is the canonical (big-endian) digest of XXH3-128. Every length is bounded by its cap and
by the file's size before anything is allocated. A scan reads only header and head, and so cannot verify a
checksum. A hit reads everything and verifies both checksums, but parses only the head. Must not know
where entries are or who may write them.
"""

import errno
import os
import struct
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import xxhash

from gpucache.errors import FormatError
from gpucache.model import CacheKey, Entry, EntryDetail, EntryHead, FindingKind
from gpucache.store import description
from gpucache.units import format_size

if TYPE_CHECKING:
    from gpucache.payload import PayloadInfo

MAGIC = b"GPUCACHE"
VERSION = 1
HEAD_CAP = 1 << 20
DETAIL_CAP = 64 << 20
TOTAL_CAP = 4 << 30
HEADER = struct.Struct("<8sIIQQQQ32s16s16s")
_HEAD_BYTES = 4 << 10
"""How much a scan reads first: it covers header and head of nearly every entry."""
_FRONT_BYTES = 16 << 10
"""How much a hit reads first: header, head and detail of nearly every entry, and all of a small one."""
_CHECKED_BYTES = 80
SEAL = slice(_CHECKED_BYTES, _CHECKED_BYTES + 16)
"""The checksum of the description."""
_ALIGNMENT = 64
Claim = tuple[FindingKind, str]
"""The kind of a false claim, and a sentence about it."""
_T = TypeVar("_T")


class EntryFormatError(FormatError):
    """An entry is not sound: the kind of damage, and one sentence about it."""

    def __init__(self, damage: FindingKind, detail: str) -> None:
        super().__init__(detail)
        self.damage = damage
        self.detail = detail

    def __reduce__(self) -> tuple[type["EntryFormatError"], tuple[FindingKind, str]]:
        return (type(self), (self.damage, self.detail))


class Header(NamedTuple):
    """The fixed part of an entry; its lengths (in bytes) are within the caps and the file."""

    key: CacheKey
    head_bytes: int
    detail_bytes: int
    payload_bytes: int
    checked: bytes
    """The bytes of the header that the first checksum covers."""
    description_checksum: bytes
    payload_checksum: bytes
    payload_offset: int


class Description(NamedTuple):
    """Header, head and detail with a matching checksum; the detail is parsed on demand."""

    header: Header
    head: EntryHead
    detail_json: bytes

    def detail(self) -> EntryDetail:
        """The parsed detail; raises EntryFormatError."""
        return _parsed(description.decode_detail, self.detail_json, "detail")


def encode(entry: Entry) -> bytes:
    """The bytes of an entry's file; raises OSError (EFBIG) if the entry exceeds the caps of the format."""
    head = description.encode_head(entry.head)
    detail = description.encode_detail(entry.detail)
    start = _aligned(HEADER.size + len(head) + len(detail))
    total = start + len(entry.payload)
    if len(head) > HEAD_CAP or len(detail) > DETAIL_CAP or total > TOTAL_CAP:
        raise OSError(
            errno.EFBIG, f"an entry of {format_size(total)} is larger than the cache's format allows"
        )
    key, lengths = bytes.fromhex(entry.key.hex), (len(head), len(detail), len(entry.payload), total)
    front = HEADER.pack(MAGIC, VERSION, *lengths, 0, key, b"", b"")[:_CHECKED_BYTES]
    return b"".join(
        (
            front,
            _checksum(front, head, detail),
            _checksum(entry.payload),
            head,
            detail,
            bytes(start - HEADER.size - len(head) - len(detail)),
            entry.payload,
        )
    )


def read_head(fd: int, size: int) -> tuple[Header, EntryHead]:
    """Read header and head of an open file of ``size`` bytes, unverified; raises EntryFormatError."""
    front = _read(fd, 0, min(size, _HEAD_BYTES))
    header = _header(front, size)
    return header, _parsed(description.decode_head, _part(fd, front, HEADER.size, header.head_bytes), "head")


def read_description(fd: int, size: int) -> Description:
    """Read and verify header, head and detail of an open file of ``size`` bytes; raises EntryFormatError."""
    return _description(fd, size, _read(fd, 0, min(size, _FRONT_BYTES)))


def _description(fd: int, size: int, front: bytes) -> Description:
    """Read the description of a file whose first bytes, ``front``, have been read."""
    header = _header(front, size)
    block = _part(fd, front, HEADER.size, header.payload_offset - HEADER.size)
    described = header.head_bytes + header.detail_bytes
    if _checksum(header.checked, block[:described]) != header.description_checksum:
        raise EntryFormatError(FindingKind.CORRUPT, "the checksum of its description does not match")
    if block[described:].strip(b"\0"):
        raise EntryFormatError(FindingKind.CORRUPT, "the bytes before its payload are not zero")
    head = _parsed(_decode_head, block[: header.head_bytes], "head")
    return Description(header, head, block[header.head_bytes : described])


def read_sound(fd: int, size: int, key: CacheKey) -> tuple[Description, bytes]:
    """Read description and payload of an open file, and verify every byte and the key.

    Raises EntryFormatError: any changed byte and any truncation is noticed here.
    """
    return _sound(fd, size, _read(fd, 0, min(size, _FRONT_BYTES)), key)


def _sound(fd: int, size: int, front: bytes, key: CacheKey) -> tuple[Description, bytes]:
    """Read an entry from a file whose first bytes, ``front``, have been read."""
    read = _description(fd, size, front)
    payload = _part(fd, front, read.header.payload_offset, read.header.payload_bytes)
    if xxhash.xxh3_128_digest(payload) != read.header.payload_checksum:
        raise EntryFormatError(FindingKind.CORRUPT, "the checksum of its payload does not match")
    if read.header.key != key:
        raise misplaced(read.header)
    return read, payload


def read_whole(fd: int, size: int, key: CacheKey) -> Entry:
    """Read all of an open file, verified as for a hit, and also against the SHA-256 of its payload.

    Raises EntryFormatError.
    """
    return _whole(key, *read_sound(fd, size, key))


def parse(data: bytes, key: CacheKey) -> Entry:
    """The entry in some bytes, verified as by ``read_whole``, or EntryFormatError."""
    return _whole(key, *_sound(-1, len(data), data, key))


def parse_true(data: bytes, key: CacheKey) -> Entry:
    """The entry in some bytes, verified as by ``read_whole`` and ``false_claims``, or EntryFormatError."""
    whole = parse(data, key)
    for damage, detail in false_claims(whole):
        raise EntryFormatError(damage, detail)
    return whole


def false_claims(whole: Entry) -> Iterator[Claim]:
    """The false claims of an entry with matching checksums: about its payload, or by its key."""
    from gpucache.keys import cache_key  # which nothing but checking needs

    yield from false_labels(whole.head, whole.payload)
    if cache_key(whole.detail.key_fields) != whole.key:
        yield FindingKind.CORRUPT, "its key is not that of its key fields"


def false_labels(head: EntryHead, payload: bytes) -> Iterator[Claim]:
    """The false claims of a head about its payload."""
    from gpucache.payload import describe  # which nothing but checking needs

    return _misfits(describe(payload), head.language, head.artifact_kind, head.target)


@lru_cache(maxsize=256)
def false_labels_of_ptx(architecture: str, language: str, kind: str, target: str) -> tuple[Claim, ...]:
    """The false claims of a head about PTX that has no fault itself."""
    from gpucache.payload import PayloadInfo, PayloadKind  # which nothing but checking needs

    info = PayloadInfo(PayloadKind.PTX, f"compute_{architecture}", (), None)
    return tuple(_misfits(info, language, kind, target))


def _misfits(info: "PayloadInfo", language: str, kind: str, target: str) -> Iterator[Claim]:
    from gpucache.payload import fits

    opaque = language == ""  # an entry of ProgramCache, which has no target
    misfit = None if opaque else fits(info, kind, target)
    if misfit is not None:
        yield FindingKind.MISLABELLED, misfit
    if info.problem is not None:
        yield FindingKind.MISLABELLED, info.problem


def _whole(key: CacheKey, description: Description, payload: bytes) -> Entry:
    from gpucache.keys import digest

    if digest(payload) != description.head.payload_sha256:
        raise EntryFormatError(FindingKind.CORRUPT, "its payload does not have the SHA-256 of its head")
    return Entry(key, description.head, description.detail(), payload)


def misplaced(header: Header) -> EntryFormatError:
    """The error for an entry that is in the place of another key."""
    return EntryFormatError(FindingKind.MISPLACED, f"it is the entry of the key {header.key}")


_decode_head = lru_cache(maxsize=256)(description.decode_head)
"""Cached, as a program requests the same entries again."""


def _header(data: bytes, size: int) -> Header:
    if size < HEADER.size:
        raise EntryFormatError(FindingKind.TRUNCATED, f"it has {size} bytes, fewer than a header")
    magic, version, head, detail, payload, total, zero, key, checksum, payload_checksum = HEADER.unpack_from(
        data
    )
    if magic != MAGIC:
        raise EntryFormatError(FindingKind.CORRUPT, "it does not begin like an entry")
    # Before the size, as another version may store its size elsewhere.
    if version != VERSION:
        raise EntryFormatError(
            FindingKind.UNSUPPORTED, f"it has format version {version}; this gpucache reads {VERSION}"
        )
    if size < total:
        raise EntryFormatError(FindingKind.TRUNCATED, f"it has {size} bytes where {total} were written")
    start = _aligned(HEADER.size + head + detail)
    within = head <= HEAD_CAP and detail <= DETAIL_CAP and total <= TOTAL_CAP
    if not within or size != total or start + payload != total or zero != 0:
        raise EntryFormatError(FindingKind.CORRUPT, "the lengths in its header contradict each other")
    checked = data[:_CHECKED_BYTES]
    return Header(CacheKey(key.hex()), head, detail, payload, checked, checksum, payload_checksum, start)


def _part(fd: int, front: bytes, offset: int, count: int) -> bytes:
    """Read bytes of a file whose first bytes, ``front``, have been read."""
    if offset + count <= len(front):
        return front[offset : offset + count]
    return _read(fd, offset, count)


def _read(fd: int, offset: int, count: int) -> bytes:
    """Read exactly ``count`` bytes, in pieces, as one read returns at most 2 GiB."""
    if sys.platform != "win32" and len(whole := os.pread(fd, count, offset)) == count:
        return whole
    pieces = []
    while count:
        if hasattr(os, "pread"):
            piece = os.pread(fd, count, offset)
        else:
            os.lseek(fd, offset, os.SEEK_SET)
            piece = os.read(fd, count)
        if not piece:
            raise EntryFormatError(FindingKind.TRUNCATED, f"it ends {count} bytes early")
        pieces.append(piece)
        offset, count = offset + len(piece), count - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _parsed(decode: Callable[[bytes], _T], data: bytes, part: str) -> _T:
    try:
        return decode(data)
    except (ValueError, RecursionError) as error:
        raise EntryFormatError(FindingKind.CORRUPT, f"its {part} cannot be parsed: {error}") from error


def _checksum(*parts: bytes) -> bytes:
    return xxhash.xxh3_128_digest(b"".join(parts))


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
