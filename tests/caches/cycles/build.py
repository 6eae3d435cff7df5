"""Cycles' kernel caches for tests, by its own rules from given bytes."""

from functools import partial
from pathlib import Path

from tests.caches.opened import PTX, Cases, lay, write
from tests.payload.build import elf64

_CUBIN = elf64(190, flags=0x6005A04, abi_version=8, sections=[(".text.k", b"code")])
_AMD = elf64(224, sections=[(".note", b"amdgcn-amd-amdhsa--gfx90a:xnack-")])


def put(root: Path, number: int = 0, data: bytes = PTX, of: str = "compute_90", ending: str = ".ptx") -> Path:
    """Lay a kernel for an architecture; its file."""
    return lay(root / f"cycles_kernel_{of}_{number + 0xABCD << 112:032X}{ending}", data)


CASES: Cases = {
    "of CUDA": put,
    "a cubin": partial(put, data=_CUBIN, of="sm_90", ending=".cubin"),
    "of HIP": partial(put, data=_AMD, of="gfx90a", ending=""),
    "of HIP RT": partial(put, data=_AMD, of="gfx90a", ending=".hipfb"),
    "empty": partial(put, data=b""),
    "cut": partial(put, data=PTX[:-3]),
    "another format": partial(put, data=b"garbage"),
    "an archive of Metal": write("Apple_M4_Max/shadow", b"of Metal"),
}
