"""Files larger than memory: they are told apart by size and in pieces, and never held whole."""

import os
from pathlib import Path

import pytest

from gpucache.answers.entries import CacheEntry
from gpucache.answers.lookup import Verdict
from gpucache.caches.sycl import slots
from gpucache.errors import FormatError
from tests.caches.sycl.build import Made, framed, opened, put, spirv

_HUGE = 6 << 30


def _one(root: Path) -> CacheEntry:
    (entry,) = opened(root).scan()
    return entry


def _huge_binary(root: Path) -> None:
    """A sparse binary of 6 GiB."""
    path = put(root) / "0.bin"
    path.write_bytes((1).to_bytes(8, "little") + _HUGE.to_bytes(8, "little"))
    os.truncate(path, 16 + _HUGE)


def test_a_huge_binary_is_not_looked_into(tmp_path: Path) -> None:
    """The check says so."""
    _huge_binary(tmp_path)

    checked = opened(tmp_path).check(_one(tmp_path))

    assert checked.findings == ()
    assert checked.notes == ("its binary of 6.0 GiB was not looked into: larger than 256 MiB",)


def test_a_huge_binary_is_reported_by_its_size(tmp_path: Path) -> None:
    """Without a digest."""
    _huge_binary(tmp_path)

    report = opened(tmp_path).report(_one(tmp_path))

    assert report.payload == (("binary", "6.0 GiB, not looked into: larger than 256 MiB"),)


def test_a_huge_binary_is_not_extracted(tmp_path: Path) -> None:
    """It says from which size on."""
    _huge_binary(tmp_path)

    with pytest.raises(FormatError, match=r"over the 1\.0 GiB that are extracted"):
        opened(tmp_path).extract(_one(tmp_path))


def test_huge_images_are_told_by_their_size(tmp_path: Path) -> None:
    """A key that is sparse, too, is neither shown nor compared whole."""
    path = put(tmp_path) / "0.src"
    made = Made()
    head = b"".join(map(framed, (made.device, made.options, made.spec))) + _HUGE.to_bytes(8, "little")
    path.write_bytes(head)
    os.truncate(path, len(head) + _HUGE)
    cache = opened(tmp_path)

    fields = {field.label: field.value for field in cache.report(_one(tmp_path)).key_fields}
    (reach,) = cache.explain({"image": (made.image,)})

    assert fields["image"] == "6.0 GiB, not looked into: larger than 256 MiB"
    assert reach.verdict is Verdict.KEY_CHANGED
    assert "image size" in [one.label for one in reach.differences]


def test_the_cap_holds_for_images_and_binaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte above it is too large."""
    put(tmp_path)
    size = len(Made().payload)
    monkeypatch.setattr(slots, "LOOKED_INTO_BYTES", size)
    assert opened(tmp_path).check(_one(tmp_path)).notes == ()

    monkeypatch.setattr(slots, "LOOKED_INTO_BYTES", size - 1)
    assert "not looked into" in opened(tmp_path).check(_one(tmp_path)).notes[0]


def test_images_of_several_pieces_are_compared_to_the_last_byte(tmp_path: Path) -> None:
    """The one that differs is in the last piece."""
    image = spirv("first_kernel", words=600_000)
    put(tmp_path, Made(image=image))
    cache = opened(tmp_path)

    (same,) = cache.explain({"image": (image,)})
    (other,) = cache.explain({"image": (image[:-1] + b"x",)})

    assert same.hit
    assert [one.label for one in other.differences] == ["image SHA-256"]
