"""The description of compiled bytes, derived from the bytes alone, for entries of any cache.

Everything in this package is pure: for any bytes, nothing is executed, loaded or read from a disk.
:func:`describe` never raises. Every length in the bytes is compared with their number before it is used, and
the data kept is bounded. Each family of formats has a module, and each reader names the source of its
format. A module is imported when bytes of its format are met, because most processes meet at most one format.

This package must not know stores, compilers or devices. :func:`fits` compares an entry's claims about its
payload with the payload.
"""

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module

TYPE_CHECKING = False  # the one of typing, which type checkers know by its name

if TYPE_CHECKING:
    from gpucache.payload.label_checks import fits, holds_no_kernel
    from gpucache.payload.reading import PayloadInfo, PayloadKind, Reading

__all__ = ["PayloadInfo", "PayloadKind", "describe", "fits", "holds_no_kernel"]

_READERS = (
    (b"\x7fELF", "elf.read_elf"),
    (b"\x50\xed\x55\xba", "containers.read_fatbin"),
    (b"\xed\x43\x4e\x7f", "containers.read_ltoir"),
    (b"poclbin\0", "containers.read_poclbin"),
    (b"rusticl\0", "containers.read_rusticl"),
    (b"\1\0\0\0", "containers.read_rusticl"),
    (b"\x03\x02\x23\x07", "spirv.read_spirv"),
    (b"\x07\x23\x02\x03", "spirv.read_spirv"),
    (b"BC\xc0\xde", "bitcode.read_bitcode"),
    (b"\xde\xc0\x17\x0b", "bitcode.read_bitcode"),
    (b"__CLANG_OFFLOAD_BUNDLE__", "elf.read_bundle"),
    (b"CCOB", "elf.read_bundle"),
    (b"\x20\0\0\0\1\0\0\0", "containers.read_pipelines"),
    (b"\x93GPCFILE", "containers.read_files"),
)
"""The module and function that read bytes with a magic number; PTX has none and is tried last."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'gpucache.payload' has no attribute {name!r}")
    home = "reading" if name.startswith("Payload") else "label_checks"
    found = globals()[name] = getattr(import_module(f"gpucache.payload.{home}"), name)
    return found


@cache
def _function(reader: str) -> "Callable[[Reading], None]":
    module, function = reader.split(".")
    read: Callable[[Reading], None] = getattr(import_module(f"gpucache.payload.{module}"), function)
    return read


_MAGIC = tuple(magic for magic, _ in _READERS)
_INSIDE = (b"\x7fELF", b"BC\xc0\xde", b"\xde\xc0\x17\x0b", b"\x03\x02\x23\x07")
"""The magic numbers of payloads inside others that are read."""


def describe(data: bytes, *, inside: int = 0) -> "PayloadInfo":
    """The description of some bytes, by their magic number, or by their first directive for PTX.

    Fewer bytes than a magic number has are of kind ``unknown``. In longer bytes a missing end is a
    ``problem`` wherever the format gives its length; each reader documents how far that goes. With ``inside``
    every record of bitcode is read, in so many levels of payloads inside others, of which the first is these
    bytes.
    """
    from gpucache.payload.reading import BrokenError, PayloadKind, Reading

    reading = Reading(data)
    known = data.startswith(_MAGIC)
    reader = next(reader for magic, reader in _READERS if data.startswith(magic)) if known else "ptx.read_ptx"
    try:
        _function(reader)(reading)
        if reading.kind is PayloadKind.UNKNOWN:
            if not data:
                raise BrokenError("the payload is empty")
            reading.note("starts with", data[:16].hex(" "))
        if inside and reading.kind is PayloadKind.LLVM_BITCODE:
            from gpucache.payload.bitcode import walk

            walk(data)
        for start, part in _inside(reading) if inside else ():
            if problem := describe(part, inside=inside - 1).problem:
                raise BrokenError(f"in the {len(part)} bytes from byte {start} on {problem}")
    except BrokenError as broken:
        return reading.info(str(broken))
    return reading.info()


def _inside(reading: "Reading") -> "Iterator[tuple[int, bytes]]":
    """The payloads inside another one, each with its start; together they are no larger than it."""
    left = len(reading.data)
    for start, end in reading.parts:
        if reading.data.startswith(_INSIDE, start) and (left := left - (end - start)) > 0:
            yield start, reading.data[start:end]
