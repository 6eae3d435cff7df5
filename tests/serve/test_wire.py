"""Frames: a sent frame is read back equal, and anything else is refused."""

import socket
import struct
import threading
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.serve.wire import (
    FIELD_CAP,
    FRAME_BYTES_CAP,
    VERSION,
    Fields,
    Frame,
    Kind,
    WireError,
    encode,
    number,
    receive,
)


def _read(data: bytes) -> Frame:
    """The frame read from a peer that sends these bytes and closes."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        with theirs, suppress(BrokenPipeError, ConnectionResetError):
            theirs.sendall(data)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with ours:
            return receive(ours)
    finally:
        sender.join()


@given(st.integers(0, 0xFFFF), st.lists(st.binary(max_size=200), max_size=20))
def test_a_frame_is_read_as_it_was_sent(kind: int, fields: list[bytes]) -> None:
    """Any kind and any fields come through, empty ones too."""
    frame = Frame(kind, tuple(fields))
    assert _read(encode(frame)) == frame


def test_the_bytes_of_a_frame() -> None:
    """Lengths, version and kind are where the other side, written in C, expects them."""
    data = encode(Frame(Kind.HIT, (b"ab", b"")))
    assert data == struct.pack("<IHHI2sI", 14, 1, 0x81, 2, b"ab", 0)


@given(st.data())
def test_a_frame_that_ends_early_is_none(data: st.DataObject) -> None:
    """A frame cut off at any byte is refused."""
    whole = encode(Frame(Kind.BUILD, (b"kernel", b"options", b"")))
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(WireError):
        _read(whole[:end])


def test_a_length_is_not_believed() -> None:
    """A frame that promises more than the maximum is refused before anything is read or allocated."""
    with pytest.raises(WireError, match="cannot be"):
        _read(struct.pack("<I", FRAME_BYTES_CAP + 1))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (struct.pack("<HHI", VERSION, Kind.BUILD, 100) + b"short", "longer"),
        (struct.pack("<HH", VERSION, Kind.BUILD) + bytes(4 * (FIELD_CAP + 1)), "too many"),
        (struct.pack("<HH", VERSION + 1, Kind.BUILD), "version 2"),
    ],
)
def test_what_is_no_frame_of_ours_is_refused(body: bytes, words: str) -> None:
    """A field beyond its frame, too many fields for memory, and another version are refused."""
    with pytest.raises(WireError, match=words):
        _read(struct.pack("<I", len(body)) + body)


def test_fields_are_taken_in_order() -> None:
    """Text keeps bytes that are not UTF-8, and numbers are decimal."""
    fields = Fields((b"caf\xe9", number(-11), number(2), b"x", b"y"))
    assert fields.text().encode("utf-8", "surrogateescape") == b"caf\xe9"
    assert (fields.number(), fields.count()) == (-11, 2)
    assert fields.rest() == (b"x", b"y")


@pytest.mark.parametrize("data", [b"", b"1x", b" 1", b"-", b"9" * 20, b"0x10"])
def test_what_is_no_number_is_refused(data: bytes) -> None:
    """A number out of range is refused too."""
    with pytest.raises(WireError):
        Fields((data,)).number()


def test_too_few_and_too_many_fields_are_told() -> None:
    """A request of the wrong form for its kind is refused on either side."""
    with pytest.raises(WireError, match="few"):
        Fields(()).take()
    with pytest.raises(WireError, match="many"):
        Fields((b"left",)).end()
    with pytest.raises(WireError, match="counts"):
        Fields((number(-1),)).count()
