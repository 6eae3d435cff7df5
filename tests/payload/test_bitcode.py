"""Bitcode of programs: the values read from it, and that damage raises only FormatError."""

import struct

import pytest

from gpucache.errors import FormatError
from gpucache.payload import bitcode
from gpucache.payload.bitcode import Module
from gpucache.payload.reading import CutError
from tests.payload import build

_SOUND = build.bitcode(["vecadd", "twice"])


def test_a_program_says_what_made_it() -> None:
    """Compiler, target, source and the defined kernels are read, but not declared ones."""
    assert bitcode.read_module(_SOUND) == Module(
        "LLVM15.0.6", "x86_64-pc-linux-gnu", "/caches/pocl/tempfile_abcdef.cl", ("vecadd", "twice")
    )


def test_wrapped_bitcode_is_read() -> None:
    """Bitcode in Apple's wrapper gives the same values."""
    wrapped = struct.pack("<IIIII", 0x0B17C0DE, 0, 20, len(_SOUND), 7) + _SOUND
    assert bitcode.read_module(wrapped) == bitcode.read_module(_SOUND)
    with pytest.raises(CutError):
        bitcode.read_module(wrapped[:-1])


def test_every_cut_is_seen() -> None:
    """A program cut anywhere is not taken for a whole one."""
    for length in (0, *range(4, len(_SOUND))):
        with pytest.raises(CutError):
            bitcode.read_module(_SOUND[:length])


def test_what_is_no_bitcode_is_said_to_be_so() -> None:
    """Other bytes are damage, not a cut."""
    with pytest.raises(FormatError, match="does not begin") as raised:
        bitcode.read_module(b"kernel void add() {}")
    assert not isinstance(raised.value, CutError)


def test_zeros_at_the_end_are_damage() -> None:
    """A file whose second half was replaced by zeros is damaged."""
    with pytest.raises(FormatError):
        bitcode.read_module(_SOUND[: len(_SOUND) // 2] + bytes(len(_SOUND) // 2))


@pytest.mark.parametrize(
    ("width", "count", "error", "words"),
    [(1, 1 << 40, CutError, "array"), (0, 60_000, FormatError, "take room")],
)
def test_an_array_that_cannot_be_is_refused_before_it_is_read(
    width: int, count: int, error: type[FormatError], words: str
) -> None:
    """Its length is compared with the remaining bytes, and elements without bits would only cost time."""
    block = build.Block().define((0, 2), (3, 0), (1, width))
    block.put(4, build.Block.width)
    block.vbr(count, 6)
    whole = build.Bits(b"BC\xc0\xde")
    build.enter(whole, 8, block.ended())
    with pytest.raises(error, match=words):
        bitcode.read_module(whole.data())


def test_a_walk_reads_nested_records_and_the_abbreviations_that_block_0_defines() -> None:
    """A nested record without a definition is found, which reading the module alone skips."""

    def nested(defined_for: int) -> bytes:
        module = build.Block().record(1, [0])
        inner = build.Block()
        inner.put(4, build.Block.width)
        inner.put(0, 8)
        shared = build.Block().record(1, [defined_for]).define((0, 7), (1, 8))
        build.enter(module, 0, shared.ended(), build.Block.width)
        build.enter(module, 17, inner.ended(), build.Block.width)
        whole = build.Bits(b"BC\xc0\xde")
        build.enter(whole, 8, module.ended())
        return whole.data()

    bitcode.walk(nested(17))
    bitcode.read_module(nested(18))
    with pytest.raises(FormatError, match="does not define"):
        bitcode.walk(nested(18))
