"""LLVM bitcode: the blocks, abbreviations and records of its bit stream, and a module's data about itself.

Source: LLVM's "Bitcode File Format" and llvm/include/llvm/Bitcode/LLVMBitCodes.h. A module is read at its
outermost level: the blocks fit into the file, and a module exists with the string table that contains its
names. ``walk`` reads every record of every block. Bitcode has no checksum, so a changed byte is noticed only
if the records after it no longer fit. The work is bounded by the number of bytes: no field takes fewer bits
than it is counted for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from gpucache.payload.reading import BrokenError, CutError, PayloadKind, Reading
from gpucache.units import printable

_MAGIC = b"BC\xc0\xde"
_WRAPPER = b"\xde\xc0\x17\x0b"
_BLOCKINFO, _MODULE, _IDENTIFICATION, _STRTAB = 0, 8, 13, 23
_SET_BLOCK = 1
_IDENTIFICATION_STRING = 1
_STRTAB_BLOB = 1
_VERSION, _TRIPLE, _FUNCTION, _SOURCE = 1, 2, 8, 16
_WITH_STRTAB = 2
_SPIR_KERNEL = 76
_BLOCK_LIMIT = 256
_KERNEL_LIMIT = 10_000
_NAME_LIMIT = 4096

_END, _ENTER, _DEFINE, _UNABBREVIATED = range(4)
_FIXED, _VBR, _ARRAY, _CHAR6, _BLOB = range(1, 6)
_LITERAL = 0
_CHAR6_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
_WORD_BYTES = 4
_WIDEST = 64
_ABBREVIATION_LIMIT = 512
_OPERAND_LIMIT = 64
"""How many operands an abbreviation may have; LLVM's own have about ten at most."""
_WORK_LIMIT = 4_000_000
"""The number of operands up to which a block is read; each takes a number in memory."""
_WALKED_BYTES = 4 << 20
"""The largest bitcode that is walked; some seconds."""
_DEPTH_LIMIT = 32
_GARBAGE_BYTES = 8
"""How many bytes after the last block are ignored, as LLVM's own reader ignores them."""


class Module(NamedTuple):
    """A program as its bitcode describes it; texts are printable, and empty if it does not say."""

    producer: str
    """The program that wrote it, such as ``LLVM15.0.6``."""
    triple: str
    source: str
    """The file it was compiled from: a temporary one in the cache that it was built in."""
    kernels: tuple[str, ...]


class Block(NamedTuple):
    """A block by its number: its content is between two offsets in bytes, with ids of some bits."""

    number: int
    id_bits: int
    start: int
    end: int


class Record(NamedTuple):
    """A record: code and operands; a blob or text in it is kept as bytes in place."""

    code: int
    operands: tuple[int, ...]
    blob: bytes = b""

    def text(self) -> bytes:
        return bytes(value & 0xFF for value in self.operands)


def read_bitcode(reading: Reading) -> None:
    """Describe bitcode, bare or in its wrapper, by its length alone, which costs nothing.

    Bitcode is made of 32-bit words and does not say how many: in bare bitcode a cut inside a word is
    noticed; in wrapped bitcode every cut is.
    """
    reading.kind = PayloadKind.LLVM_BITCODE
    length = len(_unwrapped(reading))
    if length % _WORD_BYTES:
        raise BrokenError(f"bitcode is made of 4-byte words and there are {length} bytes")


def read_module(data: bytes) -> Module:
    """The module in some bytes; raises CutError if they end too early, BrokenError for other damage."""
    if not data:
        raise CutError("it is empty")
    data = _unwrapped(Reading(data))
    if not data.startswith(_MAGIC):
        raise BrokenError("it does not begin as LLVM bitcode does")
    found = list(islice(blocks(data, len(_MAGIC)), _BLOCK_LIMIT))
    module = next((block for block in found if block.number == _MODULE), None)
    if module is None:
        raise CutError("it ends before the module begins")
    version, texts = 0, {_TRIPLE: "", _SOURCE: ""}
    named: list[tuple[int, int]] = []
    for one in records(data, module):
        if one.code == _VERSION:
            version = one.operands[0] if one.operands else 0
        elif one.code in texts:
            texts[one.code] = texts[one.code] or printable(one.text())
        elif one.code == _FUNCTION and len(one.operands) >= 5 and len(named) < _KERNEL_LIMIT:
            offset, size, _type, convention, declared = one.operands[:5]
            if convention == _SPIR_KERNEL and not declared:
                named.append((offset, min(size, _NAME_LIMIT)))
    table = _first(data, found, _STRTAB, _STRTAB_BLOB)
    if table is None and version >= _WITH_STRTAB:
        raise CutError("it ends before the string table, which has its names")
    names = table.blob if table is not None else b""
    kernels = (names[at : at + size].decode("utf-8", "surrogateescape") for at, size in named)
    producer = _first(data, found, _IDENTIFICATION, _IDENTIFICATION_STRING)
    return Module(
        producer=printable(producer.text()) if producer is not None else "",
        triple=texts[_TRIPLE],
        source=texts[_SOURCE],
        kernels=tuple(filter(None, kernels)),
    )


def _unwrapped(reading: Reading) -> bytes:
    """The bitcode without its wrapper, which says where it begins and how long it is, if it has one."""
    if not reading.data.startswith(_WRAPPER):
        return reading.data
    offset, size = reading.unpack("<II", 8, "bitcode wrapper")
    reading.require(offset + size, "bitcode")
    return reading.data[offset : offset + size]


def _first(data: bytes, found: Sequence[Block], number: int, code: int) -> Record | None:
    block = next((one for one in found if one.number == number), None)
    return next((one for one in records(data, block) if one.code == code), None) if block else None


@dataclass(slots=True)
class Bits:
    """A position in some bytes, counted in bits, and the position where reading must end."""

    data: bytes
    position: int
    end: int

    def take(self, count: int) -> int:
        """The next bits as a number, the first the lowest; raises CutError beyond the end."""
        start = self.position
        if start + count > self.end:
            raise CutError(f"it ends in the middle of a field, at byte {self.end // 8}")
        self.position = start + count
        piece = int.from_bytes(self.data[start // 8 : (start + count + 7) // 8], "little")
        return piece >> start % 8 & (1 << count) - 1

    def vbr(self, width: int) -> int:
        """A number in chunks of some bits, of which the highest says that more follow."""
        more = 1 << width - 1
        value = shift = 0
        while shift <= _WIDEST:
            chunk = self.take(width)
            value |= (chunk & more - 1) << shift
            if not chunk & more:
                return value
            shift += width - 1
        raise BrokenError("it has a number of more than 64 bits")

    def align(self) -> None:
        self.position += -self.position % 32

    @property
    def left(self) -> int:
        return self.end - self.position


Operand = tuple[int, int]
"""The encoding of an operand, and its width or value."""
_Abbreviation = tuple[Operand, ...]


def blocks(data: bytes, start: int) -> Iterator[Block]:
    """The outermost blocks from an offset on, up to the end of the bytes; raises BrokenError."""
    bits = Bits(data, start * 8, len(data) * 8)
    while bits.left > _GARBAGE_BYTES * 8:
        if bits.take(2) != _ENTER:
            raise BrokenError(f"no block begins at byte {bits.position // 8}")
        yield _enter(bits)


def walk(data: bytes) -> None:
    """Read every record; raises BrokenError where one does not fit its context. Larger bitcode than
    4 MiB is not walked."""
    data = _unwrapped(Reading(data))
    inherited: dict[int, list[_Abbreviation]] = {}
    stack = [iter(blocks(data, len(_MAGIC)))] if len(data) <= _WALKED_BYTES else []
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
        elif len(stack) > _DEPTH_LIMIT:
            raise BrokenError(f"it has blocks more than {_DEPTH_LIMIT} deep")
        else:
            stack.append(one for one in _contents(data, found, inherited) if isinstance(one, Block))


def records(data: bytes, block: Block) -> Iterator[Record]:
    """The records directly in a block, without the records of nested blocks; raises BrokenError."""
    return (one for one in _contents(data, block, {}) if isinstance(one, Record))


def _contents(
    data: bytes, block: Block, inherited: "dict[int, list[_Abbreviation]]"
) -> "Iterator[Record | Block]":
    """Records and nested blocks of a block in order. ``inherited`` are the abbreviations by block that block
    0 defines for others. Raises BrokenError."""
    bits = Bits(data, block.start * 8, block.end * 8)
    known = list(inherited.get(block.number, ()))
    about = known
    work = 0
    while (kind := bits.take(block.id_bits)) != _END:
        if kind == _ENTER:
            yield _enter(bits)
        elif kind == _DEFINE:
            count = bits.vbr(5)
            if count > _OPERAND_LIMIT:
                raise BrokenError(f"an abbreviation of {count} operands is not made by LLVM")
            about.append(tuple(_operand(bits) for _ in range(count)))
            if len(about) > _ABBREVIATION_LIMIT:
                raise BrokenError("it defines more abbreviations than LLVM makes")
        else:
            if kind - 4 >= len(known):
                number = bits.position // 8
                raise BrokenError(f"it uses an abbreviation that it does not define, at byte {number}")
            record = _plain(bits) if kind == _UNABBREVIATED else _abbreviated(bits, known[kind - 4])
            work += 1 + len(record.operands)
            if work > _WORK_LIMIT:
                raise BrokenError(f"block {block.number} has more than LLVM writes into one")
            if block.number == _BLOCKINFO and record.code == _SET_BLOCK and record.operands:
                about = inherited.setdefault(record.operands[0], [])
            yield record
    bits.align()
    if bits.position != bits.end:
        raise BrokenError(f"block {block.number} ends at byte {bits.position // 8} of {block.end}")


def _enter(bits: Bits) -> Block:
    """Step over a block whose id was read; returns the block."""
    number, id_bits = bits.vbr(8), bits.vbr(4)
    bits.align()
    words = bits.take(32)
    start = bits.position // 8
    end = start + words * _WORD_BYTES
    if not 2 <= id_bits <= 32:
        raise BrokenError(f"block {number} has ids of {id_bits} bits")
    if end * 8 > bits.end:
        raise CutError(f"block {number} ends at byte {end}, beyond byte {bits.end // 8} where all ends")
    bits.position = end * 8
    return Block(number, id_bits, start, end)


def _operand(bits: Bits) -> Operand:
    if bits.take(1):
        return _LITERAL, bits.vbr(8)
    encoding = bits.take(3)
    if encoding in (_FIXED, _VBR):
        width = bits.vbr(5)
        if width > _WIDEST or (encoding == _VBR and width == 1):
            raise BrokenError(f"an operand of {width} bits is not made by LLVM")
        return (encoding, width) if width else (_LITERAL, 0)
    if encoding not in (_ARRAY, _CHAR6, _BLOB):
        raise BrokenError(f"there is no encoding {encoding}")
    return encoding, 0


def _plain(bits: Bits) -> Record:
    code = bits.vbr(6)
    return Record(code, tuple(bits.vbr(6) for _ in range(_count(bits, 6, "record"))))


def _abbreviated(bits: Bits, operands: Sequence[Operand]) -> Record:
    numbers: list[int] = []
    blob = b""
    rest = iter(operands)
    for encoding, value in rest:
        if encoding == _ARRAY:
            element = next(rest, (_LITERAL, 0))
            if element[0] not in (_FIXED, _VBR, _CHAR6):
                raise BrokenError("an array has no elements that take room")
            numbers += [_scalar(bits, *element) for _ in range(_count(bits, 1, "array"))]
        elif encoding == _BLOB:
            count = bits.vbr(6)
            bits.align()
            if count * 8 > bits.left:
                raise CutError(f"a blob of {count} bytes ends beyond the bytes")
            start = bits.position // 8
            blob = bits.data[start : start + count]
            bits.position += count * 8
            bits.align()
        else:
            numbers.append(_scalar(bits, encoding, value))
    if not numbers:
        raise BrokenError("a record has no code")
    return Record(numbers[0], tuple(numbers[1:]), blob)


def _scalar(bits: Bits, encoding: int, value: int) -> int:
    if encoding == _LITERAL:
        return value
    if encoding == _FIXED:
        return bits.take(value)
    return bits.vbr(value) if encoding == _VBR else _CHAR6_LETTERS[bits.take(6)]


def _count(bits: Bits, width: int, part: str) -> int:
    """The length of an array; raises if fewer numbers of that width remain in the block."""
    count = bits.vbr(6)
    if count * width > bits.left:
        raise CutError(f"a {part} of {count} numbers ends beyond the bytes")
    return count
