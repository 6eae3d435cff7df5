"""Bitcode of programs: what is read of it, and that no damage raises anything but FormatError."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucache.errors import FormatError
from gpucache.payload import bitcode
from gpucache.payload.bitcode import Module
from gpucache.payload.reading import CutError
from tests.payload import build

_SOUND = build.bitcode(["vecadd", "twice"])


def test_a_program_says_what_made_it() -> None:
    """Compiler, target, source and the kernels that are defined are read, and what is declared is not."""
    assert bitcode.read_module(_SOUND) == Module(
        "LLVM15.0.6", "x86_64-pc-linux-gnu", "/caches/pocl/tempfile_abcdef.cl", ("vecadd", "twice")
    )


def test_wrapped_bitcode_is_read() -> None:
    """Bitcode in Apple's wrapper says the same."""
    wrapped = struct.pack("<IIIII", 0x0B17C0DE, 0, 20, len(_SOUND), 7) + _SOUND
    assert bitcode.read_module(wrapped) == bitcode.read_module(_SOUND)
    with pytest.raises(CutError):
        bitcode.read_module(wrapped[:-1])


def test_every_cut_is_seen() -> None:
    """A program that was cut anywhere is not taken for a whole one."""
    for length in (0, *range(4, len(_SOUND))):
        with pytest.raises(CutError):
            bitcode.read_module(_SOUND[:length])


def test_what_is_no_bitcode_is_said_to_be_so() -> None:
    """Other bytes are damage, not a cut."""
    with pytest.raises(FormatError, match="does not begin") as raised:
        bitcode.read_module(b"kernel void add() {}")
    assert not isinstance(raised.value, CutError)


def test_zeros_at_the_end_are_damage() -> None:
    """A file whose second half came back as zeros is seen."""
    with pytest.raises(FormatError):
        bitcode.read_module(_SOUND[: len(_SOUND) // 2] + bytes(len(_SOUND) // 2))


def test_an_array_beyond_the_bytes_is_refused_before_it_is_read() -> None:
    """A number of elements is held against the bytes that are left."""
    block = build.Block().define((0, 2), (3, 0), (1, 1))
    block.put(4, build.Block.width)
    block.vbr(1 << 40, 6)
    whole = build.Bits(b"BC\xc0\xde")
    build.enter(whole, 8, block.ended())
    with pytest.raises(CutError, match="array"):
        bitcode.read_module(whole.data())


def test_elements_without_bits_are_refused() -> None:
    """An array of elements that take no room would cost work without bytes."""
    block = build.Block().define((0, 2), (3, 0), (1, 0))
    block.put(4, build.Block.width)
    block.vbr(60_000, 6)
    whole = build.Bits(b"BC\xc0\xde")
    build.enter(whole, 8, block.ended())
    with pytest.raises(FormatError, match="take room"):
        bitcode.read_module(whole.data())


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(4, len(_SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_give_a_module_or_a_format_error(changes: list[tuple[int, int]]) -> None:
    """Whatever is changed in a program, reading it ends in one of the two."""
    data = bytearray(_SOUND)
    for place, value in changes:
        data[place] = value
    with suppress(FormatError):
        assert isinstance(bitcode.read_module(bytes(data)), Module)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_after_the_magic_give_a_module_or_a_format_error(rest: bytes) -> None:
    """Random bytes raise nothing else."""
    with suppress(FormatError):
        bitcode.read_module(b"BC\xc0\xde" + rest)
