"""One numbered place in a folder of entries: its files as seen, taken apart and read.

Every length is held against the file's size. Must not judge what the bytes mean, but for the kernels that
images name. Source: libsycl, ``persistent_device_code_cache.cpp`` (``writeSourceItem``,
``writeBinaryDataToFile``), all integers unsigned 64-bit little-endian::

    .src   four times length and bytes: device string, build options, spec constants, device images
    .bin   number of binaries (1), then length and bytes of each
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpucache.answers.entries import FindingKind
from gpucache.caches import files
from gpucache.caches.files import Identity
from gpucache.caches.sycl import naming
from gpucache.caches.sycl.naming import Family, Group
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.payload import describe, spirv
from gpucache.payload.mangled import readable
from gpucache.units import format_size

Read = Callable[[int, int], bytes]
"""Reads a file from an offset, at most a number of bytes."""
Identities = tuple[Identity | None, Identity | None]
"""What tells ``.bin`` and ``.src`` of an entry from any other."""

_WORD = 8
_FRAMES_READ = 1024
ABSURD_BYTES = 1 << 40
"""A length that no machine has the memory for."""
PASSED_OVER = "programs pass it over and keep another copy beside it"
LOST = "a program that asks for it gets nothing, tries no other copy and adds one at every run"
DIES = "every program that asks for it dies with std::bad_alloc"
READ_BYTES = 1 << 20
"""How much of the images is searched for names."""
_TOLD_BYTES = 4096
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


class DamagedError(FormatError):
    """A file that is not what its format says."""

    def __init__(self, kind: FindingKind, detail: str, *, stops: bool = False, kills: bool = False) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.stops = stops
        self.kills = kills


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a file."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        """Where the next part begins."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class SourceShape:
    """The parts of a ``.src``, and how many bytes follow them."""

    device: Span
    options: Span
    spec: Span
    images: Span
    trailing: int


@dataclass(frozen=True, slots=True)
class BinaryShape:
    """The first binary of a ``.bin``, how many it claims and holds, and how many bytes follow them."""

    payload: Span
    claimed: int
    held: int
    trailing: int


def source_shape(read: Read, size_bytes: int) -> SourceShape:
    """Where the parts of a ``.src`` of some size lie; raises DamagedError, OSError."""
    if size_bytes == 0:
        raise DamagedError(FindingKind.TRUNCATED, f"its .src is empty: {PASSED_OVER}")
    spans: list[Span] = []
    for label in ("device", "build options", "spec constants", "images"):
        start = spans[-1].end if spans else 0
        length = _number(read, start, size_bytes)
        if length is None:
            raise DamagedError(FindingKind.TRUNCATED, f"its .src ends before the {label}: {PASSED_OVER}")
        if length >= ABSURD_BYTES:
            detail = f"its .src claims {length} bytes of {label}: {DIES}"
            raise DamagedError(FindingKind.CORRUPT, detail, kills=True)
        if start + _WORD + length > size_bytes:
            detail = f"its .src ends within the {label}, {format_size(length)} long: {PASSED_OVER}"
            raise DamagedError(FindingKind.TRUNCATED, detail)
        spans.append(Span(start + _WORD, length))
    device, options, spec, images = spans
    return SourceShape(device, options, spec, images, size_bytes - images.end)


def binary_shape(read: Read, size_bytes: int) -> BinaryShape:
    """Where the binary of a ``.bin`` of some size lies; raises DamagedError, OSError."""
    claimed, length = _number(read, 0, size_bytes), _number(read, _WORD, size_bytes)
    if claimed is None or length is None:
        detail = f"its .bin has {size_bytes} bytes, less than a header: {LOST}"
        raise DamagedError(FindingKind.TRUNCATED, detail, stops=True)
    payload = Span(2 * _WORD, length)
    if length >= ABSURD_BYTES:
        raise DamagedError(FindingKind.CORRUPT, f"its .bin claims {length} bytes of binary: {PASSED_OVER}")
    if payload.end > size_bytes:
        missing = format_size(payload.end - size_bytes)
        raise DamagedError(FindingKind.TRUNCATED, f"its .bin lacks its last {missing}: {LOST}", stops=True)
    if length == 0:
        raise DamagedError(FindingKind.CORRUPT, f"its .bin holds an empty binary: {LOST}", stops=True)
    held, end = _further(read, payload.end, size_bytes, min(claimed, _FRAMES_READ))
    return BinaryShape(payload, claimed, held, size_bytes - end)


def _further(read: Read, start: int, size_bytes: int, claimed: int) -> tuple[int, int]:
    """How many binaries there are in all, and where they end; versions before 2025 could store several."""
    held = 1
    while held < claimed:
        length = _number(read, start, size_bytes)
        if length is None or start + _WORD + length > size_bytes:
            break
        held, start = held + 1, start + _WORD + length
    return held, start


def _number(read: Read, offset: int, size_bytes: int) -> int | None:
    if offset + _WORD > size_bytes:
        return None
    data = read(offset, _WORD)
    return int.from_bytes(data, "little") if len(data) == _WORD else None


@dataclass(frozen=True, slots=True)
class Kernels:
    """Names of kernels as the images have them, mangled, in the order of the images."""

    names: tuple[str, ...]
    format: str
    """What the images are, such as ``spir-v``."""

    @property
    def shown(self) -> str:
        """The first name, readable, and how many more there are; the format where the images tell no name."""
        if not self.names:
            return f"{self.format} image" if self.format else ""
        first = readable(self.names[0])
        return f"{first} and {len(self.names) - 1} more" if self.names[1:] else first


def kernels(images: bytes) -> Kernels:
    """The kernels of some images, or of the first bytes of them. Raises nothing."""
    return Kernels(spirv.kernel_names(images), describe(images[:_TOLD_BYTES]).kind.value if images else "")


@dataclass(frozen=True, slots=True)
class Slot:
    """The files of an entry as they were seen; None for one that is not there."""

    group: Group
    stem: str
    binary: os.stat_result | None
    source: os.stat_result | None
    access: os.stat_result | None

    @property
    def identities(self) -> Identities:
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


def source_of(folder: Folder, slot: Slot) -> tuple[SourceShape, Read]:
    """Shape and bytes of a ``.src``; raises FormatError (DamagedError where a program is told), OSError."""
    read, size = _reader(folder, slot.stem + naming.SOURCE, slot.source)
    return source_shape(read, size), read


def binary_of(folder: Folder, slot: Slot) -> tuple[BinaryShape, Read]:
    """Shape and bytes of a ``.bin``; raises FormatError, OSError."""
    read, size = _reader(folder, slot.stem + naming.BINARY, slot.binary)
    return binary_shape(read, size), read


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


def part(read: Read, span: Span) -> bytes:
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


def head(read: Read, span: Span, count: int) -> bytes:
    """The first bytes of a part; raises FormatError, OSError."""
    return part(read, Span(span.offset, min(span.length, count)))


def pieces(read: Read, span: Span) -> Iterator[bytes]:
    """A part of a file piece by piece; raises FormatError where the file ends within it, OSError."""
    for offset in range(span.offset, span.end, _PIECE_BYTES):
        yield part(read, Span(offset, min(_PIECE_BYTES, span.end - offset)))


def sha256(read: Read, span: Span) -> str:
    """SHA-256 of a part, as lower-case hex; raises FormatError, OSError."""
    hasher = hashlib.sha256()
    for piece in pieces(read, span):
        hasher.update(piece)
    return hasher.hexdigest()


def _reader(folder: Folder, name: str, status: os.stat_result | None) -> tuple[Read, int]:
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
        effect = LOST if stops else PASSED_OVER
        detail = f"{name} cannot be read ({error.strerror}): {effect}; its owner can make it readable"
        raise DamagedError(FindingKind.UNTRUSTED, detail, stops=stops) from error


def _status(folder: Folder, name: str) -> os.stat_result | None:
    try:
        return folder.lstat(name)
    except OSError:
        return None
