"""Several files as one payload."""

import pytest

from gpucache.errors import FormatError
from gpucache.payload import PayloadKind, describe
from gpucache.payload.containers import binary, pack, unpack

_PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry scale() { ret; }\n"
_FILES = {"scale.source": b"text", "scale.ptx": _PTX, "scale.json": b"{}", "empty": b""}


def test_files_come_out_as_they_went_in() -> None:
    """In their order, with names and bytes; the description has the names and the binary's architecture."""
    payload = pack(_FILES)
    assert list(unpack(payload).items()) == list(_FILES.items())
    assert binary(payload) == _PTX and binary(pack({"a": b"text"})) == pack({"a": b"text"})
    found = describe(payload)
    assert (found.kind, found.architecture, found.problem) == (PayloadKind.FILES, "compute_90", None)
    assert ("names of files", ", ".join(_FILES)) in found.detail


def test_a_cut_or_longer_payload_is_refused() -> None:
    """Wherever it is cut, and with a byte too many."""
    payload = pack(_FILES)
    for wrong in (*(payload[:end] for end in range(len(payload))), payload + b"\0"):
        with pytest.raises(FormatError):
            unpack(wrong)
        if len(wrong) >= 8:
            assert describe(wrong).problem


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0b", "a" * 256])
def test_a_name_that_is_none_of_a_file_is_refused(name: str) -> None:
    """No file could be written outside of the target directory."""
    with pytest.raises(FormatError, match="name of a file"):
        unpack(pack({name: b""}))


def test_lengths_are_bounded_before_anything_is_read() -> None:
    """The count of files and their sizes are compared with the payload."""
    for header in (b"\xff\xff\xff\xff", b"\1\0\0\0" + b"\xff\xff\xff\xff" + b"\xff" * 8):
        with pytest.raises(FormatError):
            unpack(pack({})[:8] + header)


def test_two_files_of_one_name_are_refused() -> None:
    one = pack({"a": b"", "b": b""}).replace(b"b", b"a")
    with pytest.raises(FormatError, match="name of a file"):
        unpack(one)
