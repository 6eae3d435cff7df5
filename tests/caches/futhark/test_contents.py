"""What payloads are."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.caches.futhark.bundles import read_bundle
from gpucache.caches.futhark.contents import look_into, stored_form
from tests.caches.futhark.build import PTX, SPIRV


def bundle(*identifiers: bytes, size: int = 4) -> bytes:
    """An offload bundle with a code object of some bytes per identifier."""
    start = 32 + sum(24 + len(one) for one in identifiers)
    rows = b""
    for index, one in enumerate(identifiers):
        rows += struct.pack("<QQQ", start + index * size, size, len(one)) + one
    return (
        b"__CLANG_OFFLOAD_BUNDLE__"
        + struct.pack("<Q", len(identifiers))
        + rows
        + bytes(size) * len(identifiers)
    )


_HIP = bundle(b"hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-")


@pytest.mark.parametrize(
    ("payload", "kind", "target"),
    [
        (PTX, "ptx", "cuda:compute_80"),
        (PTX.replace(b"sm_80", b"sm_90a"), "ptx", "cuda:compute_90a"),
        (_HIP, "hip-bundle", "hip:gfx90a"),
        (bundle(b"host-x86", b"hip-amdgcn--gfx90a", b"hip-amdgcn--gfx942"), "hip-bundle", "hip"),
        (b"CCOB" + bytes(40), "hip-bundle", "hip"),
        (SPIRV, "spir-v", "opencl"),
        (b"something else", "unknown", ""),
    ],
)
def test_kind_and_target(payload: bytes, kind: str, target: str) -> None:
    """The bytes say what they are and whom they are for."""
    contents = look_into(payload)
    assert (contents.kind, contents.target, contents.problem) == (kind, target, "")


def test_a_cut_bundle_is_broken() -> None:
    """A code object beyond the end, and a cut list."""
    assert "beyond its end" in look_into(_HIP[:-1]).problem
    assert "ends inside" in look_into(_HIP[:40]).problem


def test_consequences_differ() -> None:
    """CUDA compiles again, OpenCL may not, and of unknown bytes both is told."""
    assert "compiles again" in look_into(PTX).consequence
    assert "does not compile again" in look_into(SPIRV).consequence
    unknown = look_into(b"?").consequence
    assert "CUDA or HIP program compiles again" in unknown
    assert "does not compile again" in unknown


def test_ptx_is_stored_without_the_nul() -> None:
    """NVRTC's NUL goes, another payload's last byte stays."""
    assert stored_form(PTX + b"\0") == PTX
    assert stored_form(PTX) == PTX
    assert stored_form(SPIRV + b"\0") == SPIRV + b"\0"


@given(st.binary(max_size=200))
def test_any_bytes_are_looked_into(payload: bytes) -> None:
    """Whatever the bytes, there is a kind, and the size is told."""
    contents = look_into(payload)
    assert contents.kind
    assert any(label == "size" for label, _ in contents.detail)


@given(st.binary(max_size=200))
def test_any_bundle_is_read(rest: bytes) -> None:
    """Whatever follows the magic, architectures are names of AMD's."""
    found = read_bundle(b"__CLANG_OFFLOAD_BUNDLE__" + rest)
    assert all(name.startswith("gfx") for name in found.architectures)


@given(st.integers(10, 9999), st.sampled_from(["", "a", "f"]), st.sampled_from(["", ", texmode_independent"]))
def test_ptx_is_named_by_its_target(number: int, suffix: str, more: str) -> None:
    """The target is the directive's number and suffix."""
    text = PTX.replace(b"sm_80", f"sm_{number}{suffix}{more}".encode())
    assert look_into(text).target == f"cuda:compute_{number}{suffix}"
