"""SPIR-V: modules, and the kernels that are their entry points. Source: its specification, 2.3 and 2.4.

Owns the values of specialization constants, as an option that only gpucache knows:
``--spec-constant=3:40000000`` sets the constant 3 to these bytes, in their order in memory. So constants are
key fields, and part of a request.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

from gpucache.payload.reading import BrokenError, PayloadKind, Reading
from gpucache.units import printable

_MAGIC = b"\x03\x02\x23\x07"
_HEADER_BYTES = 20
_ENTRY_POINT, _FUNCTION = 15, 54
_INSTRUCTION_LIMIT = 1 << 20
_PREAMBLES_LIMIT = 65_536
"""How many instructions are read in search of kernels, of all modules together."""
_NAME_BYTES = 4096
CONSTANT = "--spec-constant="
_CONSTANT = re.compile(rf"{CONSTANT}(\d{{1,10}}):((?:[0-9a-f]{{2}})+)")
_WRITTEN = re.compile(r"(\d{1,10})=(?:([uif])(8|16|32|64)|(bool)):(\S+)")
_FORMATS = {"u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "u64": "Q", "i64": "q"}
_FORMATS |= {"f16": "e", "f32": "f", "f64": "d", "bool": "?"}


def is_spirv(data: bytes) -> bool:
    """Whether bytes begin as a module of either byte order, as no text does."""
    return data.startswith((_MAGIC, _MAGIC[::-1]))


def constant_option(number: int, value: bytes) -> str:
    return f"{CONSTANT}{number}:{value.hex()}"


def constants_first(options: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The options that set constants, sorted by number, the last one of each; and all others in order."""
    constants, others = dict[int, str](), []
    for option in options:
        if set_here := _CONSTANT.fullmatch(option):
            constants[int(set_here[1])] = constant_option(int(set_here[1]), bytes.fromhex(set_here[2]))
        else:
            others.append(option)
    return tuple(constants[number] for number in sorted(constants)), tuple(others)


def constants_of(options: Iterable[str]) -> Iterator[tuple[int, bytes]]:
    """The number and the value of each constant that options set."""
    for option in options:
        if found := _CONSTANT.fullmatch(option):
            yield int(found[1]), bytes.fromhex(found[2])


def read_constant(text: str) -> str:
    """The option of a constant as people write it, such as ``3=u32:64``; raises ValueError that says how."""
    found = _WRITTEN.fullmatch(text)
    try:
        number, letter, bits, truth, value = found.groups() if found else ("", "", "", "", "")
        kind = truth or f"{letter}{bits}"
        is_real = letter == "f"
        values = {"true": 1, "false": 0} if truth else {}
        read = values[value] if value in values else float(value) if is_real else int(value, 0)
        return constant_option(int(number), struct.pack(f"<{_FORMATS[kind]}", bool(read) if truth else read))
    except (ValueError, KeyError, struct.error, OverflowError):
        raise ValueError(
            f"{text!r} is not a specialization constant; write ID=TYPE:VALUE, such as 3=u32:64, with a value "
            f"that fits one of the types {', '.join(_FORMATS)}"
        ) from None


def read_spirv(reading: Reading) -> None:
    """Describe a SPIR-V module of either byte order.

    Instructions must fill the module exactly: a cut inside one is noticed, a cut between two is not.
    """
    reading.kind = PayloadKind.SPIRV
    order = "<" if reading.data.startswith(_MAGIC) else ">"
    version, generator, _bound, _schema = reading.unpack(f"{order}4I", 4, "SPIR-V header")
    reading.note("SPIR-V version", f"{version >> 16 & 0xFF}.{version >> 8 & 0xFF}")
    reading.note("generator", f"{generator >> 16}")
    instructions = islice(_instructions(reading, order, _HEADER_BYTES), _INSTRUCTION_LIMIT)
    entered = (place for operation, *place in instructions if operation == _ENTRY_POINT)
    names = (printable(_literal(reading, order, *place)) for place in entered)
    reading.note_names("entry points", names, kernels=True)


def kernel_names(data: bytes) -> tuple[str, ...]:
    """The kernels of all little-endian modules that follow each other, each once, in order.

    A module declares its entry points together and before its functions, so its beginning is enough. Raises
    nothing; bytes that do not begin as SPIR-V have no kernel. The work is bounded, because bytes can be made
    to look like many modules, each of which leads through all that follow.
    """
    reading = Reading(data)
    found: dict[str, None] = {}
    budget = iter(range(_PREAMBLES_LIMIT))
    for start in _modules(data):
        declared = False
        with suppress(BrokenError):
            instructions = _instructions(reading, "<", start + _HEADER_BYTES)
            for _, (operation, *place) in zip(budget, instructions, strict=False):
                if operation == _ENTRY_POINT:
                    declared = True
                    found[printable(_literal(reading, "<", *place), _NAME_BYTES)] = None
                elif declared or operation == _FUNCTION:
                    break
    return tuple(found)


def _modules(data: bytes) -> Iterator[int]:
    """Where modules begin: at their magic number, aligned, before a version and the zero of the schema."""
    start = 0 if data.startswith(_MAGIC) else -1
    while start >= 0:
        header = data[start : start + _HEADER_BYTES]
        aligned = start % 4 == 0 and len(header) == _HEADER_BYTES
        if aligned and header[4] == 0 and header[6:8] == b"\x01\0" and header[16:] == bytes(4):
            yield start
        start = data.find(_MAGIC, start + 4)


def _instructions(reading: Reading, order: str, start: int) -> Iterator[tuple[int, int, int]]:
    """The operation of each instruction, and where its words begin and end; raises BrokenError."""
    while start < len(reading.data):
        (word,) = reading.unpack(f"{order}I", start, "last instruction")
        end = start + 4 * (word >> 16)
        if end == start:
            raise BrokenError(f"the instruction at byte {start} has no length")
        reading.require(end, "last instruction")
        yield word & 0xFFFF, start, end
        start = end


def _literal(reading: Reading, order: str, start: int, end: int) -> bytes:
    """The name at the end of an entry point: after operation, model and function.

    The first byte of a literal string is the lowest of its first word, for either byte order.
    """
    raw = reading.data[start + 12 : min(end, start + 12 + _NAME_BYTES)]
    if order == ">":
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    return raw.partition(b"\0")[0]
