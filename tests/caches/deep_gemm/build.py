"""DeepGEMM's cache for tests, by its own rules from given bytes."""

import hashlib
from pathlib import Path

from tests.caches.opened import Cases, Environs, changed, gone, lay, together, write
from tests.payload.build import elf64

NAME = "sm90_fp8_gemm_1d2d"
CUBIN = elf64(190, flags=0x6005A04, abi_version=8, sections=[(".text.k", b"code")])


def key(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()[:32]


def put(root: Path, number: int = 0) -> Path:
    """Lay a kernel as DeepGEMM does; its directory."""
    folder = root / "cache" / f"kernel.{NAME}.{key(number)}"
    lay(folder / "kernel.cu", b"// Includes' hash value: 1\n%d" % number)
    return lay(folder / "kernel.cubin", CUBIN).parent


_FIRST = f"cache/kernel.gemm_fp8_fp8_bf16_nt.{key(0)[:12]}"
CASES: Cases = {
    "a kernel": put,
    "of the first release": together(
        write(f"{_FIRST}/kernel.cu", b"//"),
        write(f"{_FIRST}/kernel.args", b"('lhs',)"),
        write(f"{_FIRST}/kernel.so", elf64()),
    ),
    "cut": changed(put, write("kernel.cubin", CUBIN[:-3])),
    "empty": changed(put, write("kernel.cubin", b"")),
    "another format": changed(put, write("kernel.cubin", b"garbage")),
    "no binary": changed(put, gone("kernel.cubin")),
    "no source": changed(put, gone("kernel.cu")),
    "something else in its folder": changed(put, write("notes.txt", b"mine")),
    "of a stopped compile": write(
        "tmp/99999999-0000abcd-0000abcd-0000abcd/kernel.cu", b"// Includes' hash value: 1"
    ),
}
_BELOW = (".cache/vllm/deep_gemm", ".cache/sglang/deep_gemm")
PLACES: Environs = {
    "by the home": ({"HOME": "{tmp}"},),
    "of servers above it": ({"HOME": "{tmp}", "DG_JIT_CACHE_DIR": "{tmp}/here"}, *_BELOW),
}
