"""ELF files: CUDA cubins, Intel's OpenCL binaries, AMD code objects, and any other.

Source: the System V gABI for header and tables; what vendors add is named where it is read. All of a
file's tables, sections and segments must lie inside it, so a cut is noticed wherever it takes away
something that a table names. Compilers of cubins end them with the section or program header table:
of a cubin, every cut behind the magic number is a problem.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpucache.payload import amd
from gpucache.payload.reading import BrokenError, PayloadKind, Reading

_EM_X86 = (3, 62)
_EM_CUDA = 190
_EM_INTELGT = 205
_EM_AMDGPU = 224
_MACHINES = {3: "x86", 62: "x86-64", 183: "aarch64", 190: "CUDA", 205: "Intel graphics", 224: "AMD GPU"}
_INTEL_CPU_TYPES = range(0xFF01, 0xFF05)
_SHT_NOBITS = 8
_SHN_XINDEX = 0xFFFF
_TABLE_LIMIT = 65_536
"""Sections and segments that are looked at, whatever the file claims."""
_TOOL_ARCH = re.compile(rb"-arch sm_(\d{1,4})([af])\b")


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a file of some class and byte order is laid out; struct formats, see the gABI."""

    header: str
    section: str
    segment: str
    segment_offset_index: int
    segment_size_index: int


_LAYOUTS = {
    1: _Layout("HHIIIIIHHHHHH", "IIIIIIIIII", "IIIIIIII", 1, 4),
    2: _Layout("HHIQQQIHHHHHH", "IIQQQQIIQQ", "IIQQQQQQ", 2, 5),
}


@dataclass(frozen=True, slots=True)
class _Section:
    name_offset: int
    kind: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class _Table:
    """The section table: its struct layout, place, number of entries, and which section holds the names."""

    layout: str
    offset: int
    count: int
    names_index: int


def read(reading: Reading) -> None:
    """Describe an ELF file; raises BrokenError where its tables do not fit its bytes."""
    reading.kind = PayloadKind.ELF
    ident = reading.unpack("16B", 0, "ELF identification")
    layout, order = _LAYOUTS.get(ident[4]), {1: "<", 2: ">"}.get(ident[5])
    if layout is None or order is None:
        raise BrokenError(f"ELF class {ident[4]} with byte order {ident[5]} does not exist")
    elf_type, machine = reading.unpack(f"{order}HH", 16, "ELF header")
    reading.kind = _kind(elf_type, machine)
    reading.note("machine", _MACHINES.get(machine, f"number {machine}"))
    header = reading.unpack(order + layout.header, 16, "ELF header")
    if reading.kind is PayloadKind.CUBIN:
        reading.architecture = _cuda_architecture(ident[8], header[6])
        reading.note("CUDA ABI version", ident[8])
    elif reading.kind is PayloadKind.AMDGPU:
        reading.architecture = amd.architecture(reading.data, header[6])
    table = _table(reading, order + layout.section, header)
    _check_segments(reading, order, layout, header)
    if table is not None:
        _describe_sections(reading, table)


def _kind(elf_type: int, machine: int) -> PayloadKind:
    if machine == _EM_CUDA:
        return PayloadKind.CUBIN
    if machine == _EM_AMDGPU:
        return PayloadKind.AMDGPU
    if machine == _EM_INTELGT:
        return PayloadKind.INTEL_GPU
    if elf_type in _INTEL_CPU_TYPES and machine in _EM_X86:
        return PayloadKind.INTEL_CPU
    return PayloadKind.ELF


def _cuda_architecture(abi_version: int, flags: int) -> str | None:
    """The architecture in a cubin's ``e_flags``.

    ABI version 7 (OS ABI 0x33): number in bits 0..7, ``a`` in bit 11. ABI version 8 (OS ABI 0x41):
    number in bits 8..15, ``a`` in bit 3. Observed in cubins of NVRTC 11.8, 12.4 and 12.9 (version 7
    up to sm_90a, version 8 from sm_100), 13.5 and ptxas 13.0 (version 8 for all; these two never set
    bit 3, not even for ``a``). ``f`` is in no flag. LLVM's ELF.h names the same fields. None for a
    version that was not observed.
    """
    if abi_version == 7:
        return f"sm_{flags & 0xFF}{'a' if flags & 0x800 else ''}"
    if abi_version == 8:
        return f"sm_{flags >> 8 & 0xFF}{'a' if flags & 0x8 else ''}"
    return None


def _table(reading: Reading, layout: str, header: Sequence[int]) -> _Table | None:
    """The section table, if any; raises BrokenError where it or what it names leaves the payload."""
    offset, entry_size, count = header[5], header[10], header[11]
    if offset == 0:
        return None
    size = struct.calcsize(layout)
    if entry_size != size:
        raise BrokenError(f"the section table has entries of {entry_size} bytes where the format has {size}")
    first = _section(reading, layout, offset)
    if count == 0:  # the gABI's extended numbering
        count = first.size
    reading.require(offset + count * size, "section table")
    table = _Table(layout, offset, count, first.link if header[12] == _SHN_XINDEX else header[12])
    for index, section in enumerate(_sections(reading, table), start=1):
        if section.kind != _SHT_NOBITS:
            reading.require(section.offset + section.size, f"content of section {index}")
    return table


def _section(reading: Reading, layout: str, offset: int) -> _Section:
    name, kind, _flags, _address, start, size, link, *_ = reading.unpack(layout, offset, "section table")
    return _Section(name, kind, start, size, link)


def _sections(reading: Reading, table: _Table) -> Iterator[_Section]:
    """All sections but the first, which is none."""
    size = struct.calcsize(table.layout)
    for index in range(1, min(table.count, _TABLE_LIMIT)):
        yield _section(reading, table.layout, table.offset + index * size)


def _check_segments(reading: Reading, order: str, layout: _Layout, header: Sequence[int]) -> None:
    offset, entry_size, count = header[4], header[8], header[9]
    if offset == 0 or count == 0:
        return
    size = struct.calcsize(order + layout.segment)
    if entry_size != size:
        raise BrokenError(f"the program headers have {entry_size} bytes where the format has {size}")
    reading.require(offset + count * size, "program header table")
    for index in range(count):
        row = reading.unpack(order + layout.segment, offset + index * size, "program header table")
        end = row[layout.segment_offset_index] + row[layout.segment_size_index]
        reading.require(end, f"content of segment {index}")


def _describe_sections(reading: Reading, table: _Table) -> None:
    if reading.kind is PayloadKind.CUBIN:
        names = (name for name, _ in _named(reading, table))
        code = (name.removeprefix(".text.") for name in names if name.startswith(".text."))
        reading.note_names("functions", code, kernels=True)
        _add_suffix(reading, table)
        return
    # Intel's CPU compiler leaves the machine number out of what was compiled but not linked.
    if any(name.startswith(".ocl.") for name, _ in _named(reading, table)):
        reading.kind = PayloadKind.INTEL_CPU
    reading.note_names("sections", (name for name, _ in _named(reading, table) if name))


def _named(reading: Reading, table: _Table) -> Iterator[tuple[str, _Section]]:
    if not 0 < table.names_index < table.count:
        return
    place = table.offset + table.names_index * struct.calcsize(table.layout)
    names = _section(reading, table.layout, place)
    for section in _sections(reading, table):
        yield reading.text(names.offset + section.name_offset, names.offset + names.size), section


def _add_suffix(reading: Reading, table: _Table) -> None:
    """Take the suffix that the flags leave out from the tool's own note, where it has one.

    ``.note.nv.tkinfo`` holds ptxas' command line, such as ``-arch sm_90a``; observed in NVRTC 13.5
    and ptxas 13.0. NVIDIA documents neither the section nor its text.
    """
    for name, section in _named(reading, table):
        if name == ".note.nv.tkinfo" and section.kind != _SHT_NOBITS:
            found = _TOOL_ARCH.search(reading.data, section.offset, section.offset + section.size)
            if found and reading.architecture == f"sm_{found[1].decode()}":
                reading.architecture += found[2].decode()
