"""The parts of a file by its frame, whatever the bytes."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.caches.files import LOOKED_BYTES, Files, LargeError, Parts
from gpucache.errors import FormatError

_FRAME = "version:u8 name:z /4 keyed:u32 keys:u32?keyed :20*keys?keyed body:p64 more:rest"


def _parts(place: Path, data: bytes, frame: str = _FRAME) -> Parts:
    (place / "file").write_bytes(data)
    return Parts(Files(place, (), "", {"file": (place / "file").lstat()}), "file", frame)


def _data(keys: int, body: bytes, more: bytes = b"") -> bytes:
    head = b"\1gpu\0".ljust(8, b"\0") + struct.pack("<I", keys > 0)
    listed = struct.pack("<I", keys) + bytes(20 * keys) if keys else b""
    return head + listed + struct.pack("<Q", len(body)) + body + more


@pytest.mark.parametrize("keys", [0, 1, 3])
def test_the_parts_are_read_in_order(keys: int, tmp_path: Path) -> None:
    """Numbers, texts, zeros up to a multiple, parts that depend on a number, and all that follows."""
    found = _parts(tmp_path, _data(keys, b"binary", b"more"))
    assert (found.cut, found.numbers["version"], found.texts["name"]) == ("", 1, "gpu")
    assert (found.read("body"), found.read("more"), found.read("body", 3)) == (b"binary", b"more", b"bin")


@pytest.mark.parametrize("keys", [0, 2])
def test_every_cut_names_the_part_that_is_not_whole(keys: int, tmp_path: Path) -> None:
    """Only the last part may end where the file does."""
    whole = _data(keys, b"binary")
    for size in range(len(whole)):
        assert _parts(tmp_path, whole[:size]).cut, f"{size} bytes"
    assert not _parts(tmp_path, whole).cut


@given(st.binary(max_size=80))
def test_any_bytes_have_parts_inside_the_file_or_a_cut(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    """A length beyond the file is a cut, and nothing is read for it."""
    found = _parts(tmp_path_factory.mktemp("frames"), data)
    spans = [span for name, span in found.spans.items() if name != found.cut]
    assert all(0 <= span.offset <= span.end <= len(data) for span in spans)


def test_a_large_part_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """Its beginning can be read, and its digest; a file that became shorter is told."""
    found = _parts(tmp_path, b"")
    with (tmp_path / "file").open("wb") as file:
        file.write(struct.pack("<Q", LOOKED_BYTES + 1))
        os.truncate(file.fileno(), 8 + LOOKED_BYTES + 1)
    found = Parts(Files(tmp_path, (), "", {"file": (tmp_path / "file").lstat()}), "file", "body:p64")
    assert not found.cut and found.read("body", 4) == bytes(4)
    with pytest.raises(LargeError, match="larger than 256 MiB"):
        found.read("body")
    os.truncate(tmp_path / "file", 100)
    with pytest.raises(FormatError, match="became shorter"):
        found.read("body", 200_000)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """As every file of an entry."""
    (tmp_path / "file").symlink_to("/etc/passwd")
    with pytest.raises(FormatError, match="is a link"):
        Parts(Files(tmp_path, (), "", {"file": (tmp_path / "file").lstat()}), "file", _FRAME)


def test_a_word_that_means_nothing_is_an_error_of_the_format(tmp_path: Path) -> None:
    """It is seen as soon as the frame is used."""
    with pytest.raises(ValueError, match="size:u16"):
        _parts(tmp_path, b"", "size:u16")
