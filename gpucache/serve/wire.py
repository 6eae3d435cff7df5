"""The frames that a library inside a command and this process exchange. Bounded in every length.

A frame is little-endian: u32 number of bytes that follow, u16 version, u16 kind, then the fields one after
another, each a u32 length and as many bytes. Numbers inside fields are ASCII decimal, text is bytes as the
program gave them. Each connection carries one request and one reply. Must not know the meaning of a request.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from gpucache.host.environment import Given
from gpucache.units import format_size

if TYPE_CHECKING:
    from socket import socket

VERSION = 1
FRAME_BYTES_CAP = 256 << 20
LARGEST = format_size(FRAME_BYTES_CAP)
TOO_LARGE = f"it exists, but is larger than the {LARGEST} that a command can take at once"
FIELD_CAP = 1 << 16
_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<HH")
_DIGITS_CAP = 19
_CHUNK = 1 << 20


class Kind(IntEnum):
    """The kind of a frame. Requests come from the library, replies go to it."""

    BUILD = 1
    """An OpenCL program is about to be built: can it be served?"""
    BUILT = 2
    """The result of a build."""
    REJECTED = 3
    """The driver refused a binary of ours."""
    LAUNCHED = 4
    """A kernel was launched with a local size."""
    OTHER = 5
    """The program called an entry point that is never served."""
    LOADED = 6
    """A program loads OpenCL, and may ask for builds soon. It may not wait for the reply.

    Our layer says its process: then it is loaded itself, and not only a library that may load it.
    """
    PART = 7
    """An OpenCL program is about to be compiled, to be linked later. A layer's answer has its mark."""
    PART_COMPILED = 8
    """A part was compiled: by which mark do links know it, if its headers are unchanged?"""
    LINK = 9
    """Parts are about to be linked: can that be served? Fields as of BUILD, marks for the source."""
    NOTE = 10
    """A line of the file next to the socket, where that cannot be written."""
    BUILD_DOUBTED = 11
    """The program does not see what the view of a reply says: nothing of this build is kept or served."""
    COMPILE = 16
    """NVRTC is asked to compile: can it be served?"""
    COMPILED = 17
    """The results of NVRTC."""
    NVRTC_LOADED = 18
    """A program loads NVRTC, and may ask for compiles soon. It does not wait for the reply."""
    COMPILE_DOUBTED = 19
    PASS = 0x80
    """Not served: compile as without gpucache."""
    HIT = 0x81
    """The artifact follows."""
    MISS = 0x82
    """Not in the cache: compile it, and send the result."""
    OK = 0x83
    """The request was received."""
    REFUSED = 0x84
    """Not in the cache, but the program requires a hit: fail the build for this reason."""


LINKING = (Kind.PART, Kind.PART_COMPILED, Kind.LINK)
_BUILDING = (Kind.BUILD, Kind.BUILT, Kind.BUILD_DOUBTED, Kind.REJECTED, Kind.LAUNCHED)
OPENCL = (Kind.LOADED, *_BUILDING, Kind.OTHER, *LINKING)
NVRTC = (Kind.NVRTC_LOADED, Kind.COMPILE, Kind.COMPILED, Kind.COMPILE_DOUBTED)
"""The questions of a program's OpenCL layer, and of the library in front of NVRTC."""


WITH_VIEW = 0x100
"""Added to the kind of a reply whose first field is a view: what its program must see, see ``conditions``."""


class WireError(Exception):
    """Bytes that are not a frame, or fields that do not fit their kind."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A request or a reply."""

    kind: int
    """One of ``Kind``, or a number that this version does not know."""
    fields: tuple[bytes, ...] = ()


class Fields:
    """The fields of a frame, taken one after another. Every method raises WireError where that fails."""

    def __init__(self, fields: Iterable[bytes]) -> None:
        self._left = iter(fields)

    def take(self) -> bytes:
        for field in self._left:
            return field
        raise WireError("a frame has too few fields")

    def text(self) -> str:
        """The next field as text; bytes that are not UTF-8 become surrogates."""
        return self.take().decode("utf-8", "surrogateescape")

    def number(self) -> int:
        digits = self.take()
        if len(digits) > _DIGITS_CAP or not digits.removeprefix(b"-").isdigit():
            raise WireError("a field is not a number")
        return int(digits)

    def count(self) -> int:
        """The next field as the number of things that follow."""
        number = self.number()
        if not 0 <= number <= FIELD_CAP:
            raise WireError("a frame counts too many things")
        return number

    def rest(self) -> tuple[bytes, ...]:
        return tuple(self._left)

    def end(self) -> None:
        """Raise WireError where something is left."""
        if self.rest():
            raise WireError("a frame has too many fields")


@lru_cache(maxsize=16)
def variables(data: bytes) -> Mapping[str, str]:
    """The variables of a program, each ended by NUL; the first of a name counts, as it does for getenv."""
    lines = reversed(data.decode("utf-8", "surrogateescape").split("\0"))
    return Given((name, value) for name, _, value in (line.partition("=") for line in lines if "=" in line))


def number(value: int) -> bytes:
    return b"%d" % value


def fits(fields: Sequence[bytes]) -> bool:
    return len(fields) <= FIELD_CAP and _size(fields) <= FRAME_BYTES_CAP


def encode(frame: Frame) -> bytes:
    """The bytes of a frame; raises WireError where it is too large."""
    if not fits(frame.fields):
        raise WireError("a frame is too large")
    parts = [_LENGTH.pack(_size(frame.fields)), _HEAD.pack(VERSION, frame.kind)]
    for field in frame.fields:
        parts += (_LENGTH.pack(len(field)), field)
    return b"".join(parts)


def _size(fields: Iterable[bytes]) -> int:
    return _HEAD.size + sum(_LENGTH.size + len(field) for field in fields)


def receive(connection: "socket") -> Frame:
    """Read one frame; raises WireError for anything else, and OSError where the connection fails.

    Memory is taken as bytes arrive and not as a length promises. Bytes after the frame stay unread.
    """
    (size,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if not _HEAD.size <= size <= FRAME_BYTES_CAP:
        raise WireError(f"a frame of {size} bytes cannot be")
    return _decode(_exactly(connection, size))


def _exactly(connection: "socket", size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), _CHUNK))
        if not part:
            raise WireError("a frame ends too early")
        data += part
    return bytes(data)


def _decode(data: bytes) -> Frame:
    version, kind = _HEAD.unpack_from(data)
    if version != VERSION:
        raise WireError(f"frames of version {version} are not known")
    fields: list[bytes] = []
    place = _HEAD.size
    while place < len(data):
        begin = place + _LENGTH.size
        if begin > len(data) or len(fields) == FIELD_CAP:
            raise WireError("a frame has no end, or too many fields")
        place = begin + _LENGTH.unpack_from(data, begin - _LENGTH.size)[0]
        if place > len(data):
            raise WireError("a field is longer than its frame")
        fields.append(data[begin:place])
    return Frame(kind, tuple(fields))
