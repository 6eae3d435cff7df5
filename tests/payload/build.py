"""Small files of every binary format, laid out as by compilers."""

import struct
from collections.abc import Iterable, Sequence

_CHAR6 = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"


class Bits:
    """Bits written one field after another, the lowest first."""

    def __init__(self, written: bytes = b"") -> None:
        self.value = int.from_bytes(written, "little")
        self.count = len(written) * 8

    def put(self, value: int, width: int) -> None:
        self.value |= value << self.count
        self.count += width

    def vbr(self, value: int, width: int) -> None:
        top = 1 << width - 1
        while value >= top:
            self.put(value & top - 1 | top, width)
            value >>= width - 1
        self.put(value, width)

    def align(self) -> None:
        self.count += -self.count % 32

    def data(self) -> bytes:
        return self.value.to_bytes((self.count + 7) // 8, "little")


class Block(Bits):
    """The content of a block whose abbreviation ids have five bits."""

    width = 5

    def record(self, code: int, operands: Iterable[int]) -> "Block":
        values = list(operands)
        self.put(3, self.width)
        for value in (code, len(values), *values):
            self.vbr(value, 6)
        return self

    def define(self, *operands: tuple[int, int]) -> "Block":
        """An abbreviation: each operand with its encoding (0 for a literal) and its width or value."""
        self.put(2, self.width)
        self.vbr(len(operands), 5)
        for encoding, value in operands:
            self.put(int(encoding == 0), 1)
            if encoding == 0:
                self.vbr(value, 8)
            else:
                self.put(encoding, 3)
                if encoding < 3:
                    self.vbr(value, 5)
        return self

    def blob(self, data: bytes) -> "Block":
        """A record of the first abbreviation, which is a code and a blob."""
        self.put(4, self.width)
        self.vbr(len(data), 6)
        self.align()
        for byte in data:
            self.put(byte, 8)
        self.align()
        return self

    def char6(self, text: str) -> "Block":
        """A record of the first abbreviation, which is a code and an array of char6."""
        self.put(4, self.width)
        self.vbr(len(text), 6)
        for letter in text:
            self.put(_CHAR6.index(letter), 6)
        return self

    def ended(self) -> bytes:
        self.put(0, self.width)
        self.align()
        return self.data()


def bitcode(
    kernels: Sequence[str] = ("vecadd",),
    llvm: str = "LLVM15.0.6",
    triple: str = "x86_64-pc-linux-gnu",
    source: str = "/caches/pocl/tempfile_abcdef.cl",
) -> bytes:
    """A program's bitcode with all parts that are read, and a block that is skipped."""
    table = "".join(kernels) + "get_global_id"
    module = Block().record(1, [2]).record(2, triple.encode()).record(16, source.encode())
    at = 0
    for kernel in kernels:
        module.record(8, [at, len(kernel), 5, 76, 0, 0, 1, 0])
        at += len(kernel)
    module.record(8, [at, len("get_global_id"), 5, 76, 1, 0, 1, 0])
    enter(module, 17, Block().record(7, [1, 2, 3]).ended(), 5)
    whole = Bits(b"BC\xc0\xde")
    enter(whole, 13, Block().define((0, 1), (3, 0), (4, 0)).char6(llvm).record(2, [0]).ended())
    enter(whole, 8, module.ended())
    enter(whole, 23, Block().define((0, 1), (5, 0)).blob(table.encode()).ended())
    return whole.data()


def enter(into: Bits, number: int, content: bytes, width: int = 2) -> None:
    into.put(1, width)
    into.vbr(number, 8)
    into.vbr(Block.width, 4)
    into.align()
    into.put(len(content) // 4, 32)
    into.value |= int.from_bytes(content, "little") << into.count
    into.count += len(content) * 8


def elf64(
    machine: int = 62,
    elf_type: int = 2,
    flags: int = 0,
    abi_version: int = 0,
    sections: Sequence[tuple[str, bytes]] = (),
) -> bytes:
    """A little-endian ELF file: header, contents, names, and the section table last."""
    names, body, rows = bytearray(b"\0"), bytearray(), [bytes(64)]
    for name, content in [*sections, (".shstrtab", None)]:
        offset = len(names)
        names += name.encode() + b"\0"
        start = 64 + len(body)
        body += names if content is None else content
        rows.append(struct.pack("<IIQQQQIIQQ", offset, 1, 0, 0, start, 64 + len(body) - start, 0, 0, 1, 0))
    ident = bytes([*b"\x7fELF", 2, 1, 1, 0, abi_version]).ljust(16, b"\0")
    fields = (elf_type, machine, 1, 0, 0, 64 + len(body), flags, 64, 56, 0, 64, len(rows), len(rows) - 1)
    return ident + struct.pack("<HHIQQQIHHHHHH", *fields) + bytes(body) + b"".join(rows)


def library(
    kernel: str = "vecadd", comment: bytes = b"clang version 15.0.6\0", machine: int = 62, kind: int = 3
) -> bytes:
    """An ELF file of 64 bits that exports a kernel as PoCL's do; its section table is last."""
    symbols = [f"_pocl_kernel_{kernel}", f"_pocl_kernel_{kernel}_workgroup"]
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in symbols)
    rows = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    at = 1
    for name in symbols:
        rows += struct.pack("<IBBHQQ", at, 0x12, 0, 4, 0x1000, 16)
        at += len(name.encode()) + 1
    section_names = b"\0.dynsym\0.dynstr\0.comment\0.shstrtab\0"
    parts = [(1, 11 if kind == 3 else 2, rows, 2), (9, 3, strings, 0), (17, 1, comment, 0)]
    parts.append((26, 3, section_names, 0))
    body, table = b"", struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for name_at, section, content, link in parts:
        size = len(content)
        table += struct.pack("<IIQQQQIIQQ", name_at, section, 0, 0, 64 + len(body), size, link, 0, 1, 0)
        body += content
    body += bytes(-len(body) % 8)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 0, 64 + len(body), 0, 64, 56, 0, 64, 5, 4)
    return ident + head + body + table


def shared_library(order: str, bits: int) -> bytes:
    """A library with a build id, two dependencies and search paths, as a loader reads it."""
    texts = b"\0libc.so.6\0libm.so.6\0/a:/b\0$ORIGIN\0"
    places = [(1, texts.index(b"libc")), (1, texts.index(b"libm")), (15, texts.index(b"/a"))]
    places += [(29, texts.index(b"$")), (5, 0x1000), (0, 0)]
    tags = b"".join(struct.pack(order + ("qQ" if bits == 64 else "iI"), *place) for place in places)
    note = struct.pack(order + "III", 4, 4, 3) + b"GNU\0" + b"\xab\xcd\xef\x01"
    ident = b"\x7fELF" + bytes([bits // 32, 1 if order == "<" else 2, 1]) + bytes(9)
    head, row = (64, 56) if bits == 64 else (52, 32)
    start = head + 3 * row
    rows = b""
    for kind, offset, size in ((1, 0, 0), (4, 0, len(note)), (2, len(note), len(tags))):
        place = start + (offset if kind != 1 else len(note) + len(tags))
        address, size = (0x1000, len(texts)) if kind == 1 else (0, size)
        fields = (
            (kind, 0, place, address, 0, size, 0, 0)
            if bits == 64
            else (kind, place, address, 0, size, 0, 0, 0)
        )
        rows += struct.pack(order + ("IIQQQQQQ" if bits == 64 else "8I"), *fields)
    header = (3, 62, 1, 0, head, 0, 0, head, row, 3, 0, 0, 0)
    layout = "HHIQQQIHHHHHH" if bits == 64 else "HHIIIIIHHHHHH"
    return ident + struct.pack(order + layout, *header) + rows + note + tags + texts


def bundle(*identifiers: bytes, size: int = 4) -> bytes:
    """An offload bundle with a code object of some bytes per identifier."""
    start = 32 + sum(24 + len(one) for one in identifiers)
    rows = b""
    for index, one in enumerate(identifiers):
        rows += struct.pack("<QQQ", start + index * size, size, len(one)) + one
    return (
        b"__CLANG_OFFLOAD_BUNDLE__"
        + struct.pack("<Q", len(identifiers))
        + rows
        + bytes(size) * len(identifiers)
    )


def poclbin(version: int, kernels: Sequence[str], code: bytes = b"BC\xc0\xde", *, flags: int = 0) -> bytes:
    """A poclbin of some version with one root file and empty kernels."""
    data = b"poclbin\0" + struct.pack("<QIIQ", 0xABCDEF, version, len(kernels), flags)
    data += struct.pack("<I", 1) if version >= 9 else b""
    data += b"AB/CDEF".ljust(41, b"\0") + (bytes(8) if version >= 10 and flags & 2 else b"")
    root = struct.pack("<I", 11) + b"/program.bc" + struct.pack("<I", len(code)) + code
    data += (struct.pack("<Q", len(root)) if version >= 9 else b"") + root
    for name in kernels:
        data += struct.pack("<QQII", 24 + len(name) + 40, 0, 0, len(name)) + name.encode() + bytes(40)
    return data


def spirv(order: str, *instructions: Sequence[int]) -> bytes:
    words = [0x07230203, 0x00010200, 8 << 16, 10, 0]
    for opcode, *operands in instructions:
        words += [(len(operands) + 1) << 16 | opcode, *operands]
    return struct.pack(f"{order}{len(words)}I", *words)


def fatbin(*images: tuple[int, int, bytes]) -> bytes:
    body = b""
    for kind, number, content in images:
        head = struct.pack("<HHIQIIII", kind, 0x101, 64, len(content), 0, 0, 0, number)
        body += head.ljust(64, b"\0") + content
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
