"""What payloads are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.caches.futhark.contents import consequence, stored_form, target_of
from gpucache.payload import describe
from tests.caches.futhark.build import PTX, SPIRV
from tests.payload.test_amd import HIP, bundle


@pytest.mark.parametrize(
    ("payload", "kind", "target"),
    [
        (PTX, "ptx", "cuda:compute_80"),
        (PTX.replace(b"sm_80", b"sm_90a"), "ptx", "cuda:compute_90a"),
        (HIP, "offload-bundle", "hip:gfx90a"),
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
    """CUDA compiles again, OpenCL may not, and of unknown bytes both is told."""
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
