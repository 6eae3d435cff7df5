"""What a ``program.bc`` says of itself: its compiler, its target, its kernels, and whether it is all there.

Source: LLVM's "Bitcode File Format" and llvm/include/llvm/Bitcode/LLVMBitCodes.h. Read as far as the
outermost level goes: blocks fit into the file, a module is there, and with it the string table that its
names lie in. Bitcode has no checksum; what is changed without moving a block is not seen.
"""

import struct
from dataclasses import dataclass
from itertools import islice

from gpucache.caches.pocl.bitstream import Block, CutError, Record, blocks, records
from gpucache.errors import FormatError
from gpucache.payload.reading import printable

_MAGIC = b"BC\xc0\xde"
_WRAPPER = b"\xde\xc0\x17\x0b"
_MODULE, _IDENTIFICATION, _STRTAB = 8, 13, 23
_IDENTIFICATION_STRING = 1
_STRTAB_BLOB = 1
_VERSION, _TRIPLE, _FUNCTION, _SOURCE = 1, 2, 8, 16
_WITH_STRTAB = 2
_SPIR_KERNEL = 76
"""LLVM's calling convention of OpenCL kernels, which PoCL's programs keep."""
_BLOCK_LIMIT = 256
_KERNEL_LIMIT = 10_000
_NAME_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Module:
    """A program as its bitcode describes it; texts are printable and empty where it does not say."""

    producer: str
    """Such as ``LLVM15.0.6``."""
    triple: str
    source: str
    """The file it was compiled from: a temporary one in the cache that it was built in."""
    kernels: tuple[str, ...]


def read(data: bytes) -> Module:
    """The module in some bytes; raises CutError where they end too early, FormatError for other damage."""
    if not data:
        raise CutError("it is empty")
    data = _unwrapped(data)
    if not data.startswith(_MAGIC):
        raise FormatError("it does not begin as LLVM bitcode does")
    found = list(islice(blocks(data, len(_MAGIC)), _BLOCK_LIMIT))
    module = next((block for block in found if block.number == _MODULE), None)
    if module is None:
        raise CutError("it ends before the module begins")
    return _module(data, found, module)


def _unwrapped(data: bytes) -> bytes:
    if not data.startswith(_WRAPPER):
        return data
    if len(data) < 16:
        raise CutError("it ends in the middle of its wrapper")
    offset, size = struct.unpack_from("<II", data, 8)
    if offset + size > len(data):
        raise CutError(f"it ends before byte {offset + size}, where its wrapper says that it does")
    return data[offset : offset + size]


def _module(data: bytes, found: list[Block], module: Block) -> Module:
    version, texts = 0, {_TRIPLE: "", _SOURCE: ""}
    named: list[tuple[int, int]] = []
    for one in records(data, module):
        if one.code == _VERSION:
            version = one.operands[0] if one.operands else 0
        elif one.code in texts:
            texts[one.code] = texts[one.code] or printable(one.text())
        elif _is_kernel(one) and len(named) < _KERNEL_LIMIT:
            named.append((one.operands[0], one.operands[1]))
    names = _string_table(data, found)
    if names is None and version >= _WITH_STRTAB:
        raise CutError("it ends before the string table, which holds its names")
    kernels = (_name(names or b"", *place) for place in named)
    return Module(
        producer=_producer(data, found),
        triple=texts[_TRIPLE],
        source=texts[_SOURCE],
        kernels=tuple(filter(None, kernels)),
    )


def _is_kernel(one: Record) -> bool:
    """Whether a function is a kernel that is defined: name offset, size, type, convention, declared."""
    if one.code != _FUNCTION or len(one.operands) < 5:
        return False
    _, _, _, convention, declared = one.operands[:5]
    return convention == _SPIR_KERNEL and not declared


def _name(names: bytes, offset: int, size: int) -> str:
    return names[offset : offset + min(size, _NAME_LIMIT)].decode("utf-8", "surrogateescape")


def _producer(data: bytes, found: list[Block]) -> str:
    for block in found:
        if block.number == _IDENTIFICATION:
            held = (one for one in records(data, block) if one.code == _IDENTIFICATION_STRING)
            return next((printable(one.text()) for one in held), "")
    return ""


def _string_table(data: bytes, found: list[Block]) -> bytes | None:
    for block in found:
        if block.number == _STRTAB:
            return next((one.blob for one in records(data, block) if one.code == _STRTAB_BLOB), None)
    return None
