"""The two files of an entry: where their parts lie, and every way in which they can be broken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.entries import FindingKind
from gpucache.caches.sycl import slots
from gpucache.caches.sycl.slots import DamagedError
from tests.caches.sycl.build import Made, framed

_HUGE = (1 << 60).to_bytes(8, "little")


def _reader(data: bytes) -> slots.Read:
    return lambda offset, count: data[offset : offset + count]


def _source(data: bytes) -> slots.SourceShape:
    return slots.source_shape(_reader(data), len(data))


def _binary(data: bytes) -> slots.BinaryShape:
    return slots.binary_shape(_reader(data), len(data))


@given(st.lists(st.binary(max_size=40), min_size=4, max_size=4), st.binary(max_size=9))
def test_a_source_gives_its_parts_back(parts: list[bytes], trailing: bytes) -> None:
    """Device, options, spec constants and images, in this order, and what follows."""
    data = b"".join(map(framed, parts)) + trailing

    shape = _source(data)

    spans = (shape.device, shape.options, shape.spec, shape.images)
    assert [data[span.offset : span.end] for span in spans] == parts
    assert shape.trailing == len(trailing)


def test_every_cut_of_a_source_is_seen() -> None:
    """Whatever a full disk leaves of it is truncated."""
    data = Made(spec=b"12").source
    for length in range(len(data)):
        with pytest.raises(DamagedError) as caught:
            _source(data[:length])
        assert caught.value.kind is FindingKind.TRUNCATED


def test_every_cut_of_a_binary_is_seen() -> None:
    """Programs that find it get nothing and look no further."""
    data = Made().binary
    for length in range(len(data)):
        with pytest.raises(DamagedError) as caught:
            _binary(data[:length])
        assert (caught.value.kind, caught.value.stops) == (FindingKind.TRUNCATED, True)


@pytest.mark.parametrize("part", range(4))
def test_an_absurd_length_in_a_source_kills_programs(part: int) -> None:
    """libsycl allocates what any of the four lengths says."""
    data = b"".join(framed(b"abc") for _ in range(part)) + _HUGE

    with pytest.raises(DamagedError, match="std::bad_alloc") as caught:
        _source(data + bytes(64))

    assert (caught.value.kind, caught.value.kills) == (FindingKind.CORRUPT, True)


def test_an_absurd_length_in_a_binary_is_passed_over() -> None:
    """libsycl catches that one."""
    with pytest.raises(DamagedError, match="pass it over") as caught:
        _binary(bytes(8) + _HUGE + b"abc")

    assert (caught.value.kind, caught.value.stops) == (FindingKind.CORRUPT, False)


def test_an_empty_binary_is_nothing() -> None:
    """A size of zero is a miss for ever."""
    with pytest.raises(DamagedError, match="empty binary"):
        _binary((1).to_bytes(8, "little") + bytes(8))


def test_several_binaries_of_an_old_version_are_counted() -> None:
    """Before 2025 the number of binaries meant something; the first is the payload."""
    data = (2).to_bytes(8, "little") + framed(b"first") + framed(b"second") + b"xyz"

    shape = _binary(data)

    assert data[shape.payload.offset : shape.payload.end] == b"first"
    assert (shape.claimed, shape.held, shape.trailing) == (2, 2, 3)


def test_binaries_that_are_only_claimed_are_not_held() -> None:
    """Any number may be claimed; what is there is counted."""
    shape = _binary(_HUGE + framed(b"first"))

    assert (shape.claimed, shape.held, shape.trailing) == (1 << 60, 1, 0)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    """Parts lie within the file, or the file is damaged."""
    for shape_of in (_source, _binary):
        try:
            shape = shape_of(data)
        except DamagedError:
            continue
        last = shape.payload if isinstance(shape, slots.BinaryShape) else shape.images
        assert 0 <= last.offset <= last.end <= len(data)
