"""ELF files: CUDA cubins, Intel's OpenCL binaries, AMD code objects, shared libraries, and any other.

Source: the System V gABI for headers and tables; vendors' additions are named where they are read. All of a
payload's tables, sections and segments must be inside it, so a cut is noticed wherever it takes away
something that a table names. Compilers of cubins end them with the section or program header table:
of a cubin, every cut after the magic number is a problem.

Of AMD it reads code objects and the offload bundles that HIP's compiler packs them into.
"""

import re
import struct
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from gpucache.payload.reading import BrokenError, CutError, PayloadKind, Reading, Source
from gpucache.units import printable

_ET_DYN = 3
_EM_X86 = (3, 62)
_KINDS = {190: PayloadKind.CUBIN, 205: PayloadKind.INTEL_GPU, 224: PayloadKind.AMDGPU}
_MACHINES = {3: "x86", 62: "x86-64", 183: "aarch64", 190: "CUDA", 205: "Intel graphics", 224: "AMD GPU"}
_INTEL_CPU_TYPES = range(0xFF01, 0xFF05)
_INTEL_CPU_LEVELS = ("", "sse4_2", "avx", "avx2", "avx512vl", "avx512_vbmi2", "avx512_vbmi2")
"""The CPU feature that marks a level of Intel's binaries for CPUs, which is in their flags; with one of a
higher level than the CPU's the runtime refuses to build."""
NEEDED = "CPU feature"
"""The label of that feature in a description."""
_SHT_PROGBITS, _SHT_SYMTAB, _SHT_STRTAB, _SHT_NOBITS, _SHT_DYNSYM = 1, 2, 3, 8, 11
_SHN_XINDEX = 0xFFFF
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_NT_GNU_BUILD_ID = 3
_DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 1, 5, 15, 29
_TABLE_LIMIT = 65_536
"""How many sections, segments and symbols are looked at, for any claim of the file."""
_LISTED_BYTES = 1 << 20
"""The size limit of the dynamic section and the notes of a library together."""
_NAME_LIMIT = 4096
_COMMENT_BYTES = 4096
_TOOL_ARCH = re.compile(rb"-arch sm_(\d{1,4})([af])\b")
_CLANG = re.compile(rb"clang version (\d{1,4}\.\d{1,4}\.\d{1,4})")


class Library(NamedTuple):
    """A shared library by its headers."""

    build_id: str | None = None
    """The build id in hex, from the note ``NT_GNU_BUILD_ID``."""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


class Exports(NamedTuple):
    """The exports of a shared library or an object file."""

    shared: bool
    machine: int
    symbols: frozenset[str]
    """Names of its global and defined symbols, which other libraries can use."""
    compilers: tuple[str, ...]
    """Versions of clang in its comment, such as ``15.0.6``."""


class _Layout(NamedTuple):
    """The layout of files of some class: struct formats, and the places of the fields in a row."""

    header: str
    section: str
    segment: str
    segment_places: tuple[int, int, int, int]
    """Kind, offset, address, and size in the file."""
    symbol: str
    symbol_places: tuple[int, int, int]
    """Name, info and section index."""
    tag: str


_LAYOUTS = {
    1: _Layout("HHIIIIIHHHHHH", "IIIIIIIIII", "IIIIIIII", (0, 1, 2, 4), "IIIBBH", (0, 3, 5), "iI"),
    2: _Layout("HHIQQQIHHHHHH", "IIQQQQIIQQ", "IIQQQQQQ", (0, 2, 3, 5), "IBBHQQ", (0, 1, 3), "qQ"),
}


class _Section(NamedTuple):
    name_offset: int
    kind: int
    offset: int
    size: int
    link: int


class _File(NamedTuple):
    source: Source
    order: str
    layout: _Layout
    abi_version: int
    kind: int
    machine: int
    flags: int
    segments: tuple[int, int, int]
    """Where the table begins, the size of a row, and how many rows it has."""
    sections: tuple[int, int, int]
    names_index: int

    def rows(self, layout: str, table: tuple[int, int, int], part: str) -> Iterator[tuple[int, ...]]:
        """The rows of a table; raises BrokenError if it does not fit the format or exceeds the file."""
        offset, row_bytes, count = table
        size = struct.calcsize(self.order + layout)
        if row_bytes != size:
            raise BrokenError(f"the {part} has entries of {row_bytes} bytes where the format has {size}")
        self.source.require(offset + count * size, part)
        for start in range(offset, offset + min(count, _TABLE_LIMIT) * size, size):
            yield struct.unpack(self.order + layout, self.source.cut(start, start + size))


def read_elf(reading: Reading) -> None:
    """Describe an ELF file; raises BrokenError if its tables do not fit its bytes."""
    reading.kind = PayloadKind.ELF
    _, _, kind, machine = _machine(reading)
    reading.kind = _kind(kind, machine)
    reading.note("machine", _MACHINES.get(machine, f"number {machine}"))
    file = _open(reading)
    _describe_target(reading, file)
    sections = _sections(file)
    for index, section in enumerate(sections):
        if index and section.kind != _SHT_NOBITS:
            reading.require(section.offset + section.size, f"content of section {index}")
            end = section.offset + section.size
            if section.kind == _SHT_STRTAB and section.size and reading.data[end - 1]:
                raise BrokenError(f"the names in section {index} do not end")
            reading.parts.append((section.offset, end))
    for index, (_, offset, _, size) in enumerate(_segments(file)):
        reading.require(offset + size, f"content of segment {index}")
    if sections:
        _describe_sections(reading, list(_named(reading, file, sections)))
    if reading.kind is PayloadKind.INTEL_CPU:
        tables = (table[0] + table[1] * table[2] for table in (file.sections, file.segments))
        behind = len(reading.data) - max(*tables, *(end for _, end in reading.parts), 0)
        if behind > 0:  # the driver refuses them
            raise BrokenError(f"{behind} bytes follow its last section")


def _describe_target(reading: Reading, file: _File) -> None:
    if reading.kind is PayloadKind.CUBIN:
        reading.architecture = _cuda_architecture(file.abi_version, file.flags)
        reading.note("CUDA ABI version", file.abi_version)
    elif reading.kind is PayloadKind.AMDGPU:
        reading.architecture = architecture(reading.data, file.flags)
    elif reading.kind is PayloadKind.INTEL_CPU and file.flags:
        known = file.flags < len(_INTEL_CPU_LEVELS)
        reading.note(NEEDED, _INTEL_CPU_LEVELS[file.flags] if known else f"level {file.flags}")


def is_cut(data: bytes) -> bool:
    """Whether an ELF file ends inside its header or its section table, which linkers write last."""
    try:
        _sections(_open(Reading(data)))
    except BrokenError as error:
        return isinstance(error, CutError)
    return False


def is_loadable(data: bytes) -> bool:
    """Whether the file contains all segments, which is all that the loader reads of a library."""
    try:
        segments = list(_segments(_open(Reading(data))))
    except BrokenError:
        return False
    return bool(segments) and all(offset + size <= len(data) for _, offset, _, size in segments)


def read_exports(data: bytes) -> Exports:
    """The exports of an ELF file; raises BrokenError if it is not one or contradicts itself."""
    file = _open(Reading(data))
    sections = _sections(file)
    shared = file.kind == _ET_DYN
    tables = (one for one in sections if one.kind == (_SHT_DYNSYM if shared else _SHT_SYMTAB))
    symbols = (name for table in islice(tables, 1) for name in _symbols(data, file, table, sections))
    # Compilers write their name into .comment, which is small; the words are looked for in all such.
    compilers = {
        match[1].decode()
        for one in sections
        if one.kind == _SHT_PROGBITS and one.size <= _COMMENT_BYTES
        for match in islice(_CLANG.finditer(data[one.offset : one.offset + one.size]), 16)
    }
    return Exports(shared, file.machine, frozenset(symbols), tuple(sorted(compilers)))


def read_library(source: Source) -> Library:
    """The headers of a shared library; raises BrokenError if its tables do not fit its bytes."""
    file = _open(source)
    segments = list(_segments(file))
    build_id: str | None = None
    tags: list[tuple[int, int]] = []
    listed = 0
    for kind, offset, _, size in segments:
        if kind in (_PT_NOTE, _PT_DYNAMIC):
            source.require(offset + size, "dynamic section" if kind == _PT_DYNAMIC else "notes")
            listed += size
            if listed > _LISTED_BYTES:
                raise BrokenError("no library has a dynamic section or notes that are that large")
            data = source.cut(offset, offset + size)
            if kind == _PT_NOTE:
                build_id = _build_id(file.order, data) or build_id
            else:
                tag_bytes = struct.calcsize(file.order + file.layout.tag)
                whole = data[: len(data) // tag_bytes * tag_bytes]
                tags += struct.iter_unpack(file.order + file.layout.tag, whole)
    strings = dict(tags).get(_DT_STRTAB, 0)
    inside = (one for one in segments if one[0] == _PT_LOAD and one[2] <= strings < one[2] + one[3])
    _, offset, address, _ = next(inside, (0, 0, 0, 0))

    def texts(wanted: int) -> tuple[str, ...]:
        places = (offset + strings - address + value for tag, value in tags if tag == wanted)
        return tuple(_text(source.cut(place, place + _NAME_LIMIT)) for place in places)

    def folders(wanted: int) -> tuple[str, ...]:
        return tuple(place for text in texts(wanted) for place in text.split(":") if place)

    return Library(build_id, texts(_DT_NEEDED), folders(_DT_RPATH), folders(_DT_RUNPATH))


def sections_at(source: Source, names: Collection[str]) -> Iterator[tuple[int, int]]:
    """Where the sections of some names begin and end; raises BrokenError if they exceed the file."""
    file = _open(source)
    sections = _sections(file)
    index = sections[0].link if sections and file.names_index == _SHN_XINDEX else file.names_index
    if not 0 < index < len(sections):
        return
    for one in sections[1:]:
        start = sections[index].offset + one.name_offset
        if one.kind != _SHT_NOBITS and _text(source.cut(start, start + _NAME_LIMIT)) in names:
            source.require(one.offset + one.size, "section with code")
            yield one.offset, one.offset + one.size


def loaded_build_id(image: Source) -> str | None:
    """The build id of a library in memory, whose parts are at their addresses; raises BrokenError."""
    file = _open(image)
    found = None
    for kind, _, address, size in _segments(file):
        if kind == _PT_NOTE and size <= _LISTED_BYTES:
            found = _build_id(file.order, image.cut(address, address + size)) or found
    return found


def _machine(source: Source) -> tuple[str, _Layout, int, int]:
    """Byte order and layout, by which the rest is read, and the type and machine of a file."""
    ident = source.cut(0, 16)
    if not b"\x7fELF".startswith(ident[:4]):
        raise BrokenError("it is not an ELF file")
    source.require(16, "ELF identification")
    layout, order = _LAYOUTS.get(ident[4]), {1: "<", 2: ">"}.get(ident[5])
    if layout is None or order is None:
        raise BrokenError(f"ELF class {ident[4]} with byte order {ident[5]} does not exist")
    source.require(20, "ELF header")
    return order, layout, *struct.unpack(f"{order}HH", source.cut(16, 20))


def _open(source: Source) -> _File:
    order, layout, kind, machine = _machine(source)
    end = 16 + struct.calcsize(order + layout.header)
    source.require(end, "ELF header")
    header = struct.unpack(order + layout.header, source.cut(16, end))
    return _File(
        source,
        order,
        layout,
        abi_version=source.cut(8, 9)[0],
        kind=kind,
        machine=machine,
        flags=header[6],
        segments=(header[4], header[8], header[9]),
        sections=(header[5], header[10], header[11]),
        names_index=header[12],
    )


def _kind(elf_type: int, machine: int) -> PayloadKind:
    if elf_type in _INTEL_CPU_TYPES and machine in _EM_X86:
        return PayloadKind.INTEL_CPU
    return _KINDS.get(machine, PayloadKind.ELF)


def _cuda_architecture(abi_version: int, flags: int) -> str | None:
    """The architecture in a cubin's ``e_flags``.

    ABI version 7 (OS ABI 0x33): number in bits 0..7, ``a`` in bit 11. ABI version 8 (OS ABI 0x41):
    number in bits 8..15, ``a`` in bit 3. Observed in cubins of NVRTC 11.8, 12.4 and 12.9 (version 7
    up to sm_90a, version 8 from sm_100), 13.5 and ptxas 13.0 (version 8 for all; these two never set
    bit 3, not even for ``a``). ``f`` is not in any flag. LLVM's ELF.h names the same fields. None for a
    version that was not observed.
    """
    if abi_version == 7:
        return f"sm_{flags & 0xFF}{'a' if flags & 0x800 else ''}"
    if abi_version == 8:
        return f"sm_{flags >> 8 & 0xFF}{'a' if flags & 0x8 else ''}"
    return None


def _sections(file: _File) -> list[_Section]:
    """All sections, of which the first is empty; raises BrokenError if their table exceeds the file."""
    offset, row_bytes, count = file.sections
    if offset == 0:
        return []
    if count == 0:  # the gABI's extended numbering: the first row has the number
        first = next(file.rows(file.layout.section, (offset, row_bytes, 1), "section table"))
        count = first[5]
    rows = file.rows(file.layout.section, (offset, row_bytes, count), "section table")
    return [_Section(name, kind, start, size, link) for name, kind, _, _, start, size, link, *_ in rows]


def _segments(file: _File) -> Iterator[tuple[int, int, int, int]]:
    offset, _, count = file.segments
    if offset and count:
        for row in file.rows(file.layout.segment, file.segments, "program header table"):
            kind, start, address, size = (row[place] for place in file.layout.segment_places)
            yield kind, start, address, size


def _named(reading: Reading, file: _File, sections: Sequence[_Section]) -> Iterator[tuple[str, _Section]]:
    index = sections[0].link if file.names_index == _SHN_XINDEX else file.names_index
    if 0 < index < len(sections):
        names = sections[index]
        for section in sections[1:]:
            yield reading.text(names.offset + section.name_offset, names.offset + names.size), section


def _describe_sections(reading: Reading, named: Sequence[tuple[str, _Section]]) -> None:
    if reading.kind is not PayloadKind.CUBIN:
        # Intel's CPU compiler leaves the machine number out of objects that were compiled but not linked.
        if any(name.startswith(".ocl.") for name, _ in named):
            reading.kind = PayloadKind.INTEL_CPU
        reading.note_names("sections", (name for name, _ in named if name))
        return
    code = (name.removeprefix(".text.") for name, _ in named if name.startswith(".text."))
    reading.note_names("functions", code, kernels=True)
    # The suffix that the flags leave out is in the tool's own note: .note.nv.tkinfo has ptxas' command
    # line, such as "-arch sm_90a"; observed in NVRTC 13.5 and ptxas 13.0. NVIDIA documents neither the
    # section nor its text.
    note = next((section for name, section in named if name == ".note.nv.tkinfo"), None)
    if note is not None and note.kind != _SHT_NOBITS:
        found = _TOOL_ARCH.search(reading.data, note.offset, note.offset + note.size)
        if found and reading.architecture == f"sm_{found[1].decode()}":
            reading.architecture += found[2].decode()


def _symbols(data: bytes, file: _File, table: _Section, sections: Sequence[_Section]) -> Iterator[str]:
    if table.link >= len(sections):
        raise BrokenError("its symbols have no table of names")
    names = sections[table.link]
    size = struct.calcsize(file.order + file.layout.symbol)
    count = min(table.size // size, _TABLE_LIMIT)
    name_at, info_at, section_at = file.layout.symbol_places
    for row in file.rows(file.layout.symbol, (table.offset, size, count), "symbol table"):
        if row[info_at] >> 4 and row[section_at]:
            start = names.offset + row[name_at]
            yield _text(data[start : min(start + _NAME_LIMIT, names.offset + names.size)])


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _build_id(order: str, notes: bytes) -> str | None:
    place = 0
    while place + 12 <= len(notes):
        name, length, kind = struct.unpack_from(f"{order}III", notes, place)
        place += 12 + (name + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[place - 4 : place] == b"GNU\0":
            return notes[place : place + length].hex()
        place += length + 3 & ~3
    return None


_MAGIC_BYTES = 24
_BUNDLE, COMPRESSED = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
_BUNDLE_LIST_BYTES, _PAGE_BYTES = 64 << 10, 4096
_OBJECT_LIMIT = 256
_IDENTIFIER_LIMIT = 256
_GFX = re.compile(r"gfx[0-9a-f]{3,8}")
_NOTE = re.compile(rb"amdgcn-amd-amdhsa-[\w.]{0,32}-(gfx[0-9a-f]{3,8})")
# fmt: off
_AMD_MACHINES = {
    0x20: "600", 0x21: "601", 0x22: "700", 0x23: "701", 0x24: "702", 0x25: "703", 0x26: "704", 0x28: "801",
    0x29: "802", 0x2A: "803", 0x2B: "810", 0x2C: "900", 0x2D: "902", 0x2E: "904", 0x2F: "906", 0x30: "908",
    0x31: "909", 0x32: "90c", 0x33: "1010", 0x34: "1011", 0x35: "1012", 0x36: "1030", 0x37: "1031",
    0x38: "1032", 0x39: "1033", 0x3A: "602", 0x3B: "705", 0x3C: "805", 0x3D: "1035", 0x3E: "1034",
    0x3F: "90a", 0x40: "940", 0x41: "1100", 0x42: "1013", 0x43: "1150", 0x44: "1103", 0x45: "1036",
    0x46: "1101", 0x47: "1102", 0x48: "1200", 0x49: "1250", 0x4A: "1151", 0x4B: "941", 0x4C: "942",
    0x4E: "1201", 0x4F: "950", 0x55: "1152", 0x58: "1153", 0x5A: "1251",
}
# fmt: on


def architecture(data: bytes, flags: int) -> str | None:
    """The architecture of a code object, such as ``gfx90a``; None if it does not say.

    A loader goes by the ELF header's ``e_flags``, the lowest byte of which numbers the processor. If that
    is not the number of a single processor, the target in the notes is used.
    """
    if machine := _AMD_MACHINES.get(flags & 0xFF):
        return f"gfx{machine}"
    found = _NOTE.search(data)
    return found[1].decode() if found else None


def read_bundle(reading: Reading) -> None:
    """Describe an offload bundle; of a compressed bundle only the magic is read.

    A bundle is little-endian. The magic text of 24 bytes precedes the number of code objects as u64 and,
    for each of them u64 offset, u64 size, u64 length of its identifier, and the identifier, such as
    ``hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-``. Raises BrokenError if the list or a code object exceeds the
    payload.
    """
    reading.kind = PayloadKind.OFFLOAD_BUNDLE
    if reading.data.startswith(COMPRESSED):
        return
    found: dict[str, None] = {}
    try:
        for identifier, end in _objects(reading):
            found |= dict.fromkeys(_GFX.findall(identifier))
            reading.require(end, f"code object {identifier}")
    finally:
        if len(found) == 1:
            (reading.architecture,) = found
        elif found:
            reading.note("architectures", ", ".join(found))


def bundled(source: Source, start: int, end: int) -> Iterator[str]:
    """The architectures in some offload bundles one behind the other, at multiples of a page, of which only
    the lists are read; none of compressed ones. Raises BrokenError."""
    while start < end:
        reading = Reading(source.cut(start, min(end, start + _BUNDLE_LIST_BYTES)))
        if not reading.data.startswith(_BUNDLE):
            return
        last = _MAGIC_BYTES
        for identifier, last_of_one in _objects(reading):
            last = max(last, last_of_one)
            yield from _GFX.findall(identifier)
        start += (last + _PAGE_BYTES - 1) // _PAGE_BYTES * _PAGE_BYTES


def _objects(reading: Reading) -> Iterator[tuple[str, int]]:
    part = "list of code objects"
    place = _MAGIC_BYTES + 8
    (count,) = reading.unpack("<Q", _MAGIC_BYTES, part)
    for _ in range(min(count, _OBJECT_LIMIT)):
        offset, size, length = reading.unpack("<QQQ", place, part)
        reading.require(place + 24 + length, part)
        if length > _IDENTIFIER_LIMIT:
            raise BrokenError(f"the identifier of a code object has {length} bytes, more than clang writes")
        place += 24 + length
        yield printable(reading.data[place - length : place]), offset + size
