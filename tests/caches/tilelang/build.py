"""TileLang's cache for tests, by its own rules from given bytes."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from tests.caches.deep_gemm.build import CUBIN
from tests.payload.build import elf64

VERSION, KERNEL = "0.1.15", "scale_kernel"
LIBRARY = elf64(elf_type=3, sections=[(".rodata", CUBIN)])
_SOURCE = b'extern "C" __global__ void __launch_bounds__(128, 1) scale_kernel(const float* A) { }\n// %d\n'


def key(number: int) -> str:
    """The key of an entry, by number."""
    return hashlib.sha256(b"%d" % number).hexdigest()


def put(root: Path, number: int = 0) -> Path:
    """Lay a kernel for a GPU as TileLang does; its folder."""
    files = {
        "device_kernel.cu": _SOURCE % number,
        "host_kernel.cu": b"// host",
        "executable.so": LIBRARY,
        "params.json": b"{}",
    }
    listed = {name: _told(data) for name, data in files.items()}
    files["manifest.json"] = json.dumps({"files": listed, "version": 1}).encode()
    return lay(root / VERSION / "linux-x86_64" / "kernels" / key(number), files)


def put_binary(root: Path, number: int = 0) -> Path:
    """Lay a device binary; its folder."""
    told = {"format": "tilelang.cuda-binary-cache.v1", **_told(CUBIN)}
    files = {"kernel.cubin": CUBIN, "metadata.json": json.dumps(told).encode()}
    return lay(root / VERSION / "cuda-binaries" / key(number), files)


def put_tuned(root: Path, number: int = 0) -> Path:
    """Lay what an autotuner found; its folder."""
    files = {
        "best_config.json": b'{"block": 128}',
        "function.pkl": b"\x80\x04N.",
        "latency.json": b'{"latency": 1.0}',
        "params.json": b"{}",
        "device_kernel.cu": _SOURCE % number,
        "executable.so": LIBRARY,
    }
    return lay(root / VERSION / "linux-x86_64" / "autotuner" / key(number), files)


def lay(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write the files of an entry; their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
        (folder / name).chmod(0o600)
    return folder


def _told(data: bytes) -> dict[str, object]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
