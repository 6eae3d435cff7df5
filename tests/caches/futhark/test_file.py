"""The 48 bytes a cache file begins with, and what is behind them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.entries import FindingKind
from gpucache.caches.futhark.format import encode, stored_form, target_of
from gpucache.errors import FormatError
from gpucache.payload import describe
from tests.caches.futhark.build import KEY, PTX, SPIRV, file_bytes, only_entry
from tests.payload.build import bundle


def _damage(folder: Path, data: bytes) -> FindingKind | None:
    (folder / "x.cache").write_bytes(data)
    found = only_entry(folder / "x.cache").damage
    return found.kind if found else None


def test_a_file_is_written_byte_for_byte() -> None:
    """Magic, size of the whole, key, payload; as in a file that Futhark's own routine wrote."""
    key = bytes.fromhex("ee54937c26b3439a") + b"\xee" * 24
    expected = "46555448 41524b00 3700000000000000 ee54937c26b3439a" + "ee" * 24 + "5041594c4f4144"
    assert encode(key, b"PAYLOAD") == bytes.fromhex(expected)


def test_a_key_of_another_length_is_refused() -> None:
    """A key has 32 bytes."""
    with pytest.raises(FormatError, match="32 bytes and this one has 31"):
        encode(KEY[1:], b"")


def test_every_truncation_is_seen(tmp_path: Path) -> None:
    """A file cut anywhere is truncated."""
    whole = file_bytes()
    found = {_damage(tmp_path, whole[:size]) for size in range(len(whole))}
    assert found == {FindingKind.TRUNCATED}


def test_every_flip_of_magic_and_size_is_seen(tmp_path: Path) -> None:
    """One wrong byte in magic or size is damage."""
    for place in range(16):
        data = bytearray(file_bytes())
        data[place] ^= 0x01
        assert _damage(tmp_path, bytes(data))


@pytest.mark.parametrize("declared", [0, -1, -(2**63), 47])
def test_a_size_that_no_file_can_have_is_corrupt(declared: int, tmp_path: Path) -> None:
    """Sizes below the header's own are no truncation."""
    assert _damage(tmp_path, file_bytes(declared=declared)) is FindingKind.CORRUPT


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


def test_ptx_is_stored_without_the_nul() -> None:
    """NVRTC's NUL goes, another payload's last byte stays."""
    assert stored_form(PTX + b"\0") == PTX
    assert stored_form(PTX) == PTX
    assert stored_form(SPIRV + b"\0") == SPIRV + b"\0"


@given(st.integers(10, 9999), st.sampled_from(["", "a", "f"]), st.sampled_from(["", ", texmode_independent"]))
def test_ptx_is_named_by_its_target(number: int, suffix: str, more: str) -> None:
    """The target is the directive's number and suffix."""
    text = PTX.replace(b"sm_80", f"sm_{number}{suffix}{more}".encode())
    assert target_of(describe(text)) == f"cuda:compute_{number}{suffix}"
