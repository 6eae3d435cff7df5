"""Several files as one payload: the results of a compiler for one kernel in more than one file.

The magic number, the u32 count of files, for each file the u32 length of its name in UTF-8, its u64 size and
the name, then the bytes of all files in that order. Little-endian; nothing follows.
"""

import struct
from collections.abc import Iterator, Mapping

from gpucache.errors import FormatError
from gpucache.payload.reading import BrokenError, PayloadKind, Reading

MAGIC = b"\x93GPCFILE"
_FILE = struct.Struct("<IQ")
_COUNT = struct.Struct("<I")
_MOST_FILES = 4096
_LONGEST_NAME = 255


def pack(files: Mapping[str, bytes]) -> bytes:
    """The payload of some files by name."""
    parts = [MAGIC, _COUNT.pack(len(files))]
    for name, data in files.items():
        written = name.encode()
        parts += [_FILE.pack(len(written), len(data)), written]
    return b"".join([*parts, *files.values()])


def unpack(payload: bytes) -> dict[str, bytes]:
    """The files of a payload by name, none of which names a directory; raises FormatError."""
    try:
        places = list(_places(Reading(payload)))
    except BrokenError as error:
        raise FormatError(str(error)) from None
    return {name: payload[start:end] for name, start, end in places}


def binary(payload: bytes) -> bytes:
    """The last file that is for an architecture, which is the binary; without one the payload itself."""
    from gpucache.payload import describe

    made = (data for data in reversed(unpack(payload).values()) if describe(data).architecture)
    return next(made, payload)


def read_files(reading: Reading) -> None:
    """Describe the files, and the architecture of the binary among them; raises BrokenError."""
    from gpucache.payload import describe

    reading.kind = PayloadKind.FILES
    places = list(_places(reading))
    reading.note_names("files", (name for name, _, _ in places))
    inside = (describe(reading.cut(start, end)) for _, start, end in reversed(places))
    reading.architecture = next((one.architecture for one in inside if one.architecture), None)


def _places(reading: Reading) -> Iterator[tuple[str, int, int]]:
    (count,) = reading.unpack(_COUNT.format, len(MAGIC), "count of files")
    if not reading.data.startswith(MAGIC) or count > _MOST_FILES:
        raise BrokenError("it does not list files")
    at = len(MAGIC) + _COUNT.size
    sizes: dict[str, int] = {}
    for _ in range(count):
        length, size = reading.unpack(_FILE.format, at, "list of files")
        at += _FILE.size
        reading.require(at + min(length, _LONGEST_NAME), "list of files")
        name = reading.cut(at, at + length).decode(errors="replace")
        if length > _LONGEST_NAME or {"/", "\\", "\0"} & set(name) or name in ("", ".", "..", *sizes):
            raise BrokenError(f"{name[:_LONGEST_NAME]!r} is not the name of a file in it")
        sizes[name] = size
        at += length
    for name, size in sizes.items():
        reading.require(at + size, f"file {name}")
        yield name, at, at + size
        at += size
    if at != len(reading.data):
        raise BrokenError(f"{len(reading.data) - at} bytes follow its last file")
