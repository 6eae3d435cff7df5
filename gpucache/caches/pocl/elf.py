"""What a compiled kernel exports, for which machine it is, and which compiler says it made it.

Source: the System V gABI. Must be handed an ELF file that ``gpucache.payload`` found sound; what else is
wrong is met with FormatError. Nothing is loaded.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from gpucache.errors import FormatError

_SHT_PROGBITS, _SHT_SYMTAB, _SHT_DYNSYM = 1, 2, 11
_SECTION_LIMIT = 4096
_SYMBOL_LIMIT = 65_536
_NAME_LIMIT = 4096
_COMMENT_BYTES = 4096
_CLANG = re.compile(rb"clang version (\d{1,4}\.\d{1,4}\.\d{1,4})")


@dataclass(frozen=True, slots=True)
class _Layout:
    """Struct layouts of a class of files; the header is read from byte 16 on."""

    header: str
    section: str
    symbol: str
    symbol_places: tuple[int, int, int]
    """Where name, info and section index are among a symbol's fields."""


_LAYOUTS = {
    1: _Layout("HHIIIIIHHHHHH", "IIIIIIIIII", "IIIBBH", (0, 3, 5)),
    2: _Layout("HHIQQQIHHHHHH", "IIQQQQIIQQ", "IBBHQQ", (0, 1, 3)),
}


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library or an object file."""

    shared: bool
    machine: int
    symbols: frozenset[str]
    """Names that others can find in it: global and defined."""
    compilers: tuple[str, ...]
    """Versions of clang in its comment, such as ``15.0.6``."""


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def read(data: bytes) -> Library:
    """What an ELF file says; raises FormatError for what is none or contradicts itself."""
    try:
        return _read(data)
    except (struct.error, IndexError, KeyError, OverflowError) as error:
        raise FormatError("its tables do not fit each other") from error


def is_cut(data: bytes) -> bool:
    """Whether an ELF file ends before its header or its section table, which linkers write last, does."""
    try:
        layout, order = _LAYOUTS[data[4]], {1: "<", 2: ">"}[data[5]]
        header = struct.unpack_from(order + layout.header, data, 16)
    except (struct.error, IndexError):
        return True
    except KeyError:
        return False
    return bool(header[5] + header[11] * struct.calcsize(order + layout.section) > len(data))


def _read(data: bytes) -> Library:
    if data[:4] != b"\x7fELF":
        raise FormatError("it is no ELF file")
    layout, order = _LAYOUTS[data[4]], {1: "<", 2: ">"}[data[5]]
    header = struct.unpack_from(order + layout.header, data, 16)
    sections = list(_sections(data, order + layout.section, header[5], header[11]))
    shared = header[0] == 3
    tables = [one for one in sections if one.kind == (_SHT_DYNSYM if shared else _SHT_SYMTAB)]
    symbols = (name for table in tables[:1] for name in _symbols(data, order, layout, table, sections))
    return Library(shared, header[1], frozenset(islice(symbols, _SYMBOL_LIMIT)), _compilers(data, sections))


def _sections(data: bytes, layout: str, offset: int, count: int) -> Iterator[_Section]:
    size = struct.calcsize(layout)
    for index in range(min(count, _SECTION_LIMIT) if offset else 0):
        _, kind, _, _, start, length, link, *_ = struct.unpack_from(layout, data, offset + index * size)
        yield _Section(kind, start, length, link)


def _symbols(
    data: bytes, order: str, layout: _Layout, table: _Section, sections: list[_Section]
) -> Iterator[str]:
    names = sections[table.link]
    size = struct.calcsize(order + layout.symbol)
    name_at, info_at, section_at = layout.symbol_places
    for index in range(min(table.size // size, _SYMBOL_LIMIT)):
        row = struct.unpack_from(order + layout.symbol, data, table.offset + index * size)
        if row[info_at] >> 4 and row[section_at]:
            start = names.offset + row[name_at]
            raw = data[start : min(start + _NAME_LIMIT, names.offset + names.size)]
            yield raw.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _compilers(data: bytes, sections: list[_Section]) -> tuple[str, ...]:
    """Compilers write their name into ``.comment``, which is small; the words are looked for in all such."""
    found = {
        match[1].decode()
        for one in sections
        if one.kind == _SHT_PROGBITS and one.size <= _COMMENT_BYTES
        for match in islice(_CLANG.finditer(data, one.offset, min(one.offset + one.size, len(data))), 16)
    }
    return tuple(sorted(found))
