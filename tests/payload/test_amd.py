"""AMD's code objects and offload bundles: their architectures, and the damage that is found."""

import struct

import pytest

from gpucache.payload import PayloadKind, describe
from tests.payload.build import bundle, elf64

_NOTED = [(".note", b"amdgcn-amd-amdhsa--gfx90a:xnack-")]


_HIP = bundle(b"hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-")


@pytest.mark.parametrize(("flags", "architecture"), [(0x4C, "gfx942"), (0x54C, "gfx942"), (0x51, "gfx90a")])
def test_the_flags_of_code_win_over_its_notes(flags: int, architecture: str) -> None:
    """A loader reads the flags; the notes count only if the flags name no processor."""
    assert describe(elf64(224, flags=flags, sections=_NOTED)).architecture == architecture


def test_the_beginning_of_code_tells_its_architecture() -> None:
    """Code that is cut after its header still has its architecture, and is reported as cut."""
    info = describe(elf64(224, flags=0x3F, sections=_NOTED)[:64])
    assert (info.kind, info.architecture) == (PayloadKind.AMDGPU, "gfx90a")
    assert info.problem


@pytest.mark.parametrize(
    ("data", "architecture", "architectures"),
    [
        (_HIP, "gfx90a", None),
        (bundle(b"host-x86", b"hip-amdgcn--gfx90a", b"hip-amdgcn--gfx90a:xnack+"), "gfx90a", None),
        (bundle(b"host-x86", b"hip-amdgcn--gfx90a", b"hip-amdgcn--gfx942"), None, "gfx90a, gfx942"),
        (bundle(), None, None),
        (b"CCOB" + bytes(40), None, None),
    ],
)
def test_a_bundle_names_its_architectures(
    data: bytes, architecture: str | None, architectures: str | None
) -> None:
    """One is the architecture, several are listed, and of a compressed bundle nothing is read."""
    info = describe(data)
    assert (info.kind, info.architecture, info.problem) == (PayloadKind.OFFLOAD_BUNDLE, architecture, None)
    assert dict(info.detail).get("architectures") == architectures
    assert info.target == (f"hip:{architecture}" if architecture else "")


def test_every_cut_of_a_bundle_is_a_problem() -> None:
    """A cut inside a code object, and one inside the list of them, are distinguished."""
    assert "code object hipv4" in (describe(_HIP[:-1]).problem or "")
    assert "list of code objects" in (describe(_HIP[:40]).problem or "")
    assert [size for size in range(24, len(_HIP)) if describe(_HIP[:size]).problem is None] == []


def test_a_long_identifier_is_refused() -> None:
    """An identifier longer than any of clang's is a problem, and so is a missing one."""
    assert "300 bytes" in (describe(bundle(b"x" * 300)).problem or "")
    lying = _HIP[:48] + struct.pack("<Q", 2**64 - 1) + _HIP[56:]
    assert "list of code objects" in (describe(lying).problem or "")
