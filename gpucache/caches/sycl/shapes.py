"""The two files of an entry: where their parts lie, every length held against the file's size.

Source: libsycl, ``persistent_device_code_cache.cpp`` (``writeSourceItem``, ``writeBinaryDataToFile``),
all integers unsigned 64-bit little-endian::

    .src   four times length and bytes: device string, build options, spec constants, device images
    .bin   number of binaries (1), then length and bytes of each

Must not know folders, nor what the bytes mean.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gpucache.errors import FormatError
from gpucache.outcomes import FindingKind
from gpucache.units import format_size

Read = Callable[[int, int], bytes]
"""Bytes of a file from an offset, at most so many."""

_WORD = 8
_FRAMES_READ = 1024
ABSURD_BYTES = 1 << 40
"""A length that no machine has the memory for."""
PASSED_OVER = "programs pass it over and keep another copy beside it"
LOST = "a program that asks for it gets nothing, tries no other copy and adds one at every run"
DIES = "every program that asks for it dies with std::bad_alloc"


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
