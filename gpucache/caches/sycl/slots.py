"""One numbered place in a folder of entries: its files, as seen and as read.

Owns how an entry's files are opened and taken apart. Must not judge them.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from gpucache.caches import files
from gpucache.caches.files import Identity
from gpucache.caches.sycl import naming, shapes
from gpucache.caches.sycl.naming import Family, Group
from gpucache.caches.sycl.shapes import BinaryShape, DamagedError, SourceShape, Span
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.outcomes import FindingKind
from gpucache.units import format_size

LOOKED_INTO_BYTES = 256 << 20
"""The largest binary or images that are held in memory to look into them."""
EXTRACTED_BYTES = 1 << 30
"""The largest binary that is given out."""
_HEAD_BYTES = 64 << 10
_PIECE_BYTES = 1 << 20
_COUNT_BYTES, _COUNT_USED = 8, 3
"""Of the number that either file begins with, and of it what a real count or length takes."""
_TIME = re.compile(rb"[0-9]{1,19}")
_TIME_BYTES = 64


@dataclass(frozen=True, slots=True)
class Slot:
    """The files of an entry as they were seen; None for one that is not there."""

    group: Group
    stem: str
    binary: os.stat_result | None
    source: os.stat_result | None
    access: os.stat_result | None

    @property
    def identities(self) -> tuple[Identity | None, Identity | None]:
        """What tells ``.bin`` and ``.src`` from any other, wherever they are moved."""
        binary, source = (Identity.of(one) if one else None for one in (self.binary, self.source))
        return binary, source

    @property
    def allocated_bytes(self) -> int:
        """What its files take on disk."""
        return sum(files.allocated_bytes(one) for one in (self.binary, self.source, self.access) if one)

    @property
    def with_source(self) -> bool:
        """Whether entries of its kind have a ``.src``."""
        return self.group.family is Family.PROGRAM

    @property
    def half(self) -> str:
        """Which file is missing, as a sentence; empty where none is."""
        if self.binary is None:
            return f"{self.stem}.src has no .bin: programs miss and write it again"
        if self.with_source and self.source is None:
            return f"{self.stem}.bin has no .src, so programs pass it over and keep another copy beside it"
        return ""


def look(folder: Folder, group: Group, stem: str) -> Slot:
    """The files of one entry in an open group folder."""
    names = (stem + suffix for suffix in (naming.BINARY, naming.SOURCE, naming.ACCESS))
    return Slot(group, stem, *(_status(folder, name) for name in names))


def stranger(folder: Folder, slot: Slot) -> str:
    """The name of a file that stands alone and begins as none of libsycl's; empty for an entry of it.

    Others number their files as well. Two files of one number, a time beside them, nothing in a file, or a
    small number at its beginning, as a count or a length is, are libsycl's. Raises OSError.
    """
    if (slot.binary and slot.source) or access_number(folder, slot.stem) is not None:
        return ""
    suffix, status = (naming.SOURCE, slot.source) if slot.source else (naming.BINARY, slot.binary)
    if status is None or not stat.S_ISREG(status.st_mode):
        return ""
    name = slot.stem + suffix
    try:
        return name if any(files.read_part(folder, name, 0, _COUNT_BYTES)[_COUNT_USED:]) else ""
    except FormatError:  # replaced by something else meanwhile
        return name


def source_of(folder: Folder, slot: Slot) -> tuple[SourceShape, shapes.Read]:
    """Shape and bytes of a ``.src``; raises FormatError (DamagedError where a program is told), OSError."""
    read, size = _reader(folder, slot.stem + naming.SOURCE, slot.source)
    return shapes.source_shape(read, size), read


def binary_of(folder: Folder, slot: Slot) -> tuple[BinaryShape, shapes.Read]:
    """Shape and bytes of a ``.bin``; raises FormatError, OSError."""
    read, size = _reader(folder, slot.stem + naming.BINARY, slot.binary)
    return shapes.binary_shape(read, size), read


def payload_of(folder: Folder, slot: Slot) -> bytes:
    """The binary; raises FormatError, also for one over 1 GiB, OSError."""
    shape, read = binary_of(folder, slot)
    if shape.payload.length > EXTRACTED_BYTES:
        raise FormatError(
            f"the binary in {slot.stem}{naming.BINARY} has {format_size(shape.payload.length)}, over the "
            f"{format_size(EXTRACTED_BYTES)} that are extracted; copy the file itself"
        )
    return part(read, shape.payload)


def access_number(folder: Folder, stem: str) -> int | None:
    """The time in an access time file, in nanoseconds; None for none, or what is no time."""
    try:
        data = files.read(folder, stem + naming.ACCESS, _TIME_BYTES).strip()
    except (OSError, FormatError):
        return None
    return int(data) if _TIME.fullmatch(data) else None


def part(read: shapes.Read, span: Span) -> bytes:
    """A part of a file, whole; raises FormatError where the file ends within it, OSError."""
    data = read(span.offset, span.length)
    if len(data) != span.length:
        raise FormatError("the file became shorter while it was read; try again")
    return data


def unseen(span: Span) -> str:
    """Why a part is not looked into; empty where it is."""
    if span.length <= LOOKED_INTO_BYTES:
        return ""
    return f"not looked into: larger than {format_size(LOOKED_INTO_BYTES)}"


def head(read: shapes.Read, span: Span, count: int) -> bytes:
    """The first bytes of a part; raises FormatError, OSError."""
    return part(read, Span(span.offset, min(span.length, count)))


def pieces(read: shapes.Read, span: Span) -> Iterator[bytes]:
    """A part of a file piece by piece; raises FormatError where the file ends within it, OSError."""
    for offset in range(span.offset, span.end, _PIECE_BYTES):
        yield part(read, Span(offset, min(_PIECE_BYTES, span.end - offset)))


def sha256(read: shapes.Read, span: Span) -> str:
    """SHA-256 of a part, as lower-case hex; raises FormatError, OSError."""
    hasher = hashlib.sha256()
    for piece in pieces(read, span):
        hasher.update(piece)
    return hasher.hexdigest()


def _reader(folder: Folder, name: str, status: os.stat_result | None) -> tuple[shapes.Read, int]:
    """What reads a file, its first bytes kept, and its size; raises FormatError, OSError."""
    if status is None:
        raise FormatError(f"{name} does not exist")
    head = _part(folder, name, 0, _HEAD_BYTES)

    def read(offset: int, count: int) -> bytes:
        if offset + count <= len(head):
            return head[offset : offset + count]
        return _part(folder, name, offset, count)

    return read, status.st_size


def _part(folder: Folder, name: str, offset: int, count: int) -> bytes:
    try:
        return files.read_part(folder, name, offset, count)
    except PermissionError as error:
        stops = name.endswith(naming.BINARY)
        effect = shapes.LOST if stops else shapes.PASSED_OVER
        detail = f"{name} cannot be read ({error.strerror}): {effect}; its owner can make it readable"
        raise DamagedError(FindingKind.UNTRUSTED, detail, stops=stops) from error


def _status(folder: Folder, name: str) -> os.stat_result | None:
    try:
        return folder.lstat(name)
    except OSError:
        return None
