"""Bitcode, libraries and caches made from their formats, as PoCL and its compiler lay them out."""

import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpucache.caches.foreign import ForeignCache
from gpucache.caches.layout import Files
from gpucache.caches.pocl import SYSTEM, names
from gpucache.outcomes import Location

NOW = 1_800_000_000 * 10**9
MINUTE = 60 * 10**9
DAY = 86_400 * 10**9
SMALL = "16-1-1-goffs0-smallgrid"
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
    """A program's bitcode with everything that is read of it, and a block that is stepped over."""
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


def folder_of(root: Path, digest: bytes = bytes(range(20))) -> Path:
    """Where PoCL keeps the program of a digest."""
    letters = names.letters_of(digest)
    return root / letters[:2] / letters[3:]


def program(
    root: Path,
    digest: bytes = bytes(range(20)),
    kernels: Sequence[str] = ("vecadd",),
    llvm: str = "LLVM15.0.6",
    variant: str = SMALL,
    at_ns: int = NOW - DAY,
) -> Path:
    """A sound program with every kernel compiled once; its folder."""
    folder = folder_of(root, digest)
    for kernel in kernels:
        place = folder / kernel / variant
        place.mkdir(parents=True)
        clang = f"clang version {llvm.removeprefix('LLVM')}\0".encode()
        (place / f"{kernel}.so").write_bytes(library(kernel, clang))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.bc").write_bytes(bitcode(kernels, llvm))
    (folder / "last_accessed").touch()
    age(root, at_ns)
    return folder


def age(root: Path, at_ns: int) -> None:
    """Give everything below a folder a time and modes that are trusted, as PoCL's are."""
    for path in sorted(root.rglob("*"), reverse=True):
        if not path.is_symlink():
            path.chmod(0o700)
            os.utime(path, ns=(at_ns, at_ns))


def cache(root: Path, now_ns: int = NOW) -> ForeignCache[Files]:
    """The cache at a root, at a time."""
    return SYSTEM.open(Location("pocl", str(root), "test", enabled=True), clock=lambda: now_ns)
