"""The bits of LLVM bitcode: blocks, abbreviations and records, as far as one level of them is walked.

Source: LLVM's "Bitcode File Format". Pure. Work is bounded by the bytes: no field takes fewer bits than
it is counted for, and blocks within the one that is walked are stepped over by their length. Must not
know what a block or record means.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpucache.errors import FormatError

_END, _ENTER, _DEFINE, _UNABBREVIATED = range(4)
_FIXED, _VBR, _ARRAY, _CHAR6, _BLOB = range(1, 6)
_LITERAL = 0
_CHAR6_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
_WORD_BYTES = 4
_WIDEST = 64
_ABBREVIATION_LIMIT = 512
_OPERAND_LIMIT = 64
"""Of an abbreviation; LLVM's own have at most about ten."""
_ARRAY_LIMIT = 65_536
_WORK_LIMIT = 4_000_000
"""Operands that are read of one block, each a number in memory."""
_GARBAGE_BYTES = 8
"""As many bytes after the last block are passed over, as LLVM's own reader does."""


class CutError(FormatError):
    """The bytes end before what they say they hold."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block by its number: its content lies between two offsets in bytes, with ids of some bits."""

    number: int
    id_bits: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Record:
    """A record: code and operands; a blob or text in it is kept as bytes where it lies."""

    code: int
    operands: tuple[int, ...]
    blob: bytes = b""

    def text(self) -> bytes:
        """The operands as the bytes of a text."""
        return bytes(value & 0xFF for value in self.operands)


@dataclass(slots=True)
class Bits:
    """A position in some bytes, counted in bits, and where reading has to end."""

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
        raise FormatError("it holds a number of more than 64 bits")

    def align(self) -> None:
        """Go on at the next 32-bit word."""
        self.position += -self.position % 32

    @property
    def left(self) -> int:
        """How many bits there are before the end."""
        return self.end - self.position


Operand = tuple[int, int]
"""How an operand is encoded, and its width or value."""


def blocks(data: bytes, start: int) -> Iterator[Block]:
    """The outermost blocks from an offset on, up to the end of the bytes; raises FormatError."""
    bits = Bits(data, start * 8, len(data) * 8)
    while bits.left > _GARBAGE_BYTES * 8:
        if bits.take(2) != _ENTER:
            raise FormatError(f"no block begins at byte {bits.position // 8}")
        yield _enter(bits)


def records(data: bytes, block: Block) -> Iterator[Record]:
    """The records directly in a block, without those of the blocks in it; raises FormatError."""
    bits = Bits(data, block.start * 8, block.end * 8)
    known: list[tuple[Operand, ...]] = []
    work = 0
    while (kind := bits.take(block.id_bits)) != _END:
        if kind == _ENTER:
            _enter(bits)
        elif kind == _DEFINE:
            known.append(_definition(bits))
            if len(known) > _ABBREVIATION_LIMIT:
                raise FormatError("it defines more abbreviations than LLVM makes")
        else:
            record = _record(bits, kind, known)
            work += 1 + len(record.operands)
            if work > _WORK_LIMIT:
                raise FormatError(f"block {block.number} holds more than LLVM writes into one")
            yield record


def _record(bits: Bits, kind: int, known: Sequence[Sequence[Operand]]) -> Record:
    if kind == _UNABBREVIATED:
        return _plain(bits)
    if kind - 4 < len(known):
        return _abbreviated(bits, known[kind - 4])
    raise FormatError(f"it uses an abbreviation that it does not define, at byte {bits.position // 8}")


def _enter(bits: Bits) -> Block:
    """Step over a block, whose id was read; what it is."""
    number, id_bits = bits.vbr(8), bits.vbr(4)
    bits.align()
    words = bits.take(32)
    start = bits.position // 8
    end = start + words * _WORD_BYTES
    if not 2 <= id_bits <= 32:
        raise FormatError(f"block {number} has ids of {id_bits} bits")
    if end * 8 > bits.end:
        raise CutError(f"block {number} ends at byte {end}, beyond byte {bits.end // 8} where all ends")
    bits.position = end * 8
    return Block(number, id_bits, start, end)


def _definition(bits: Bits) -> tuple[Operand, ...]:
    count = bits.vbr(5)
    if count > _OPERAND_LIMIT:
        raise FormatError(f"an abbreviation of {count} operands is none that LLVM makes")
    return tuple(_operand(bits) for _ in range(count))


def _operand(bits: Bits) -> Operand:
    if bits.take(1):
        return _LITERAL, bits.vbr(8)
    encoding = bits.take(3)
    if encoding in (_FIXED, _VBR):
        width = bits.vbr(5)
        if width > _WIDEST or (encoding == _VBR and width == 1):
            raise FormatError(f"an operand of {width} bits is none that LLVM makes")
        return (encoding, width) if width else (_LITERAL, 0)
    if encoding not in (_ARRAY, _CHAR6, _BLOB):
        raise FormatError(f"there is no encoding {encoding}")
    return encoding, 0


def _plain(bits: Bits) -> Record:
    code, count = bits.vbr(6), bits.vbr(6)
    _fits(bits, count, 6, "record")
    return Record(code, tuple(bits.vbr(6) for _ in range(count)))


@dataclass(slots=True)
class _Values:
    """The values of a record in the making, the code first."""

    numbers: list[int] = field(default_factory=list)
    blob: bytes = b""


def _abbreviated(bits: Bits, operands: Sequence[Operand]) -> Record:
    values = _Values()
    rest = iter(operands)
    for encoding, value in rest:
        if encoding == _ARRAY:
            values.numbers += _array(bits, next(rest, None))
        elif encoding == _BLOB:
            values.blob = _blob(bits)
        else:
            values.numbers.append(_scalar(bits, encoding, value))
    if not values.numbers:
        raise FormatError("a record has no code")
    return Record(values.numbers[0], tuple(values.numbers[1:]), values.blob)


def _scalar(bits: Bits, encoding: int, value: int) -> int:
    if encoding == _LITERAL:
        return value
    if encoding == _FIXED:
        return bits.take(value)
    return bits.vbr(value) if encoding == _VBR else _CHAR6_LETTERS[bits.take(6)]


def _array(bits: Bits, element: Operand | None) -> list[int]:
    count = bits.vbr(6)
    if element is None or element[0] not in (_FIXED, _VBR, _CHAR6):
        raise FormatError("an array has no elements that take room")
    _fits(bits, count, 1, "array")
    return [_scalar(bits, *element) for _ in range(count)]


def _fits(bits: Bits, count: int, width: int, part: str) -> None:
    """Raise where so many numbers of at least some bits are not there, or more than are ever written."""
    if count * width > bits.left:
        raise CutError(f"a {part} of {count} numbers ends beyond the bytes")
    if count > _ARRAY_LIMIT:
        raise FormatError(f"a {part} of {count} numbers is none that LLVM writes here")


def _blob(bits: Bits) -> bytes:
    count = bits.vbr(6)
    bits.align()
    start = bits.position // 8
    if count * 8 > bits.left:
        raise CutError(f"a blob of {count} bytes ends beyond the bytes")
    bits.position += count * 8
    bits.align()
    return bits.data[start : start + count]
