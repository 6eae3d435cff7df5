"""The 48 bytes a cache file begins with, and what is behind them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.entries import FindingKind
from gpucache.caches.futhark.file import (
    consequence,
    damage,
    encode,
    read_header,
    stored_form,
    target_of,
)
from gpucache.errors import FormatError
from gpucache.payload import describe
from tests.caches.futhark.build import KEY, PTX, SPIRV, file_bytes
from tests.payload.build import bundle


def test_a_file_is_written_byte_for_byte() -> None:
    """Magic, size of the whole, key, payload; as in a file that Futhark's own routine wrote."""
    key = bytes.fromhex("ee54937c26b3439a") + b"\xee" * 24
    expected = "46555448 41524b00 3700000000000000 ee54937c26b3439a" + "ee" * 24 + "5041594c4f4144"
    assert encode(key, b"PAYLOAD") == bytes.fromhex(expected)


def test_a_key_of_another_length_is_refused() -> None:
    """A key has 32 bytes."""
    with pytest.raises(FormatError, match="32 bytes and this one has 31"):
        encode(KEY[1:], b"")


@pytest.mark.parametrize("size", range(48 + len(PTX)))
def test_every_truncation_is_seen(size: int) -> None:
    """A file cut anywhere is truncated."""
    found = damage(file_bytes()[:size], size)
    assert found is not None
    assert found.kind is FindingKind.TRUNCATED


@pytest.mark.parametrize("place", range(16))
def test_every_flip_of_magic_and_size_is_seen(place: int) -> None:
    """One wrong byte in magic or size is damage."""
    data = bytearray(file_bytes())
    data[place] ^= 0x01
    assert damage(bytes(data), len(data)) is not None


@pytest.mark.parametrize("declared", [0, -1, -(2**63), 47])
def test_a_size_that_no_file_can_have_is_corrupt(declared: int) -> None:
    """Sizes below the header's own are no truncation."""
    found = damage(file_bytes(declared=declared), 48 + len(PTX))
    assert found is not None
    assert found.kind is FindingKind.CORRUPT


@given(st.binary(max_size=120) | st.binary(max_size=80).map(lambda rest: b"FUTHARK\0" + rest))
def test_any_bytes_are_read(data: bytes) -> None:
    """Sound is what has the magic, a whole header and its own size, and nothing else."""
    sound = len(data) >= 48 and data[:16] == b"FUTHARK\0" + len(data).to_bytes(8, "little")
    assert (damage(data, len(data)) is None) == sound
    head = read_header(data)
    assert (head is not None) == (len(data) >= 48 and data.startswith(b"FUTHARK\0"))


@pytest.mark.parametrize(
    ("payload", "kind", "target"),
    [
        (PTX, "ptx", "cuda:compute_80"),
        (PTX.replace(b"sm_80", b"sm_90a"), "ptx", "cuda:compute_90a"),
        (bundle(b"hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-"), "offload-bundle", "hip:gfx90a"),
        (bundle(b"host-x86", b"hip-amdgcn--gfx90a", b"hip-amdgcn--gfx942"), "offload-bundle", "hip"),
        (b"CCOB" + bytes(40), "offload-bundle", "hip"),
        (SPIRV, "spir-v", "opencl"),
        (b"something else", "unknown", ""),
    ],
)
def test_kind_and_target(payload: bytes, kind: str, target: str) -> None:
    """The bytes say what they are and whom they are for."""
    info = describe(payload)
    assert (info.kind, target_of(info), info.problem) == (kind, target, None)


def test_consequences_differ() -> None:
    """CUDA compiles again, OpenCL may not, and for unknown bytes both are reported."""
    assert "compiles again" in consequence(describe(PTX))
    assert "does not compile again" in consequence(describe(SPIRV))
    unknown = consequence(describe(b"?"))
    assert "CUDA or HIP program compiles again" in unknown
    assert "does not compile again" in unknown


def test_ptx_is_stored_without_the_nul() -> None:
    """NVRTC's NUL goes, another payload's last byte stays."""
    assert stored_form(PTX + b"\0") == PTX
    assert stored_form(PTX) == PTX
    assert stored_form(SPIRV + b"\0") == SPIRV + b"\0"


@given(st.binary(max_size=200))
def test_any_bytes_have_a_consequence(payload: bytes) -> None:
    """Whatever the bytes, it is told what becomes of a program that is given them, and their size."""
    info = describe(payload)
    assert consequence(info)
    assert any(label == "size" for label, _ in info.pairs)


@given(st.integers(10, 9999), st.sampled_from(["", "a", "f"]), st.sampled_from(["", ", texmode_independent"]))
def test_ptx_is_named_by_its_target(number: int, suffix: str, more: str) -> None:
    """The target is the directive's number and suffix."""
    text = PTX.replace(b"sm_80", f"sm_{number}{suffix}{more}".encode())
    assert target_of(describe(text)) == f"cuda:compute_{number}{suffix}"
