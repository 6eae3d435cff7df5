"""DeepGEMM's cache for tests, by its own rules from given bytes."""

import hashlib
from pathlib import Path

from tests.payload.build import elf64

NAME = "sm90_fp8_gemm_1d2d"
CUBIN = elf64(190, flags=0x6005A04, abi_version=8, sections=[(".text.k", b"code")])


def key(number: int) -> str:
    """The digits of a kernel, by number."""
    return hashlib.sha256(b"%d" % number).hexdigest()[:32]


def put(root: Path, number: int = 0) -> Path:
    """Lay a kernel as DeepGEMM does; its folder."""
    folder = root / "cache" / f"kernel.{NAME}.{key(number)}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (("kernel.cu", b"// Includes' hash value: 1\n%d" % number), ("kernel.cubin", CUBIN)):
        (folder / name).write_bytes(data)
        (folder / name).chmod(0o600)
    return folder
