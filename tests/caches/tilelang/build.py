"""TileLang's cache for tests, by its own rules from given bytes."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from tests.caches.deep_gemm.build import CUBIN
from tests.caches.opened import Cases, Lay, changed, gone, write
from tests.caches.opened import lay as lay_file
from tests.payload.build import elf64

VERSION, KERNEL = "0.1.15", "scale_kernel"
LIBRARY = elf64(elf_type=3, sections=[(".rodata", CUBIN)])
_SOURCE = b'extern "C" __global__ void __launch_bounds__(128, 1) scale_kernel(const float* A) { }\n// %d\n'


def key(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


def put(root: Path, number: int = 0) -> Path:
    """Lay a kernel for a GPU as TileLang does; its directory."""
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
    """Lay a device binary; its directory."""
    told = {"format": "tilelang.cuda-binary-cache.v1", **_told(CUBIN)}
    files = {"kernel.cubin": CUBIN, "metadata.json": json.dumps(told).encode()}
    return lay(root / VERSION / "cuda-binaries" / key(number), files)


def put_tuned(root: Path, number: int = 0) -> Path:
    """Lay what an autotuner found; its directory."""
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
    """Write the files of an entry; their directory."""
    for name, data in files.items():
        lay_file(folder / name, data)
    return folder


def _told(data: bytes) -> dict[str, object]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _listed(*names: str) -> Lay:
    """A function that writes a manifest of some files, existing or not."""

    def make(folder: Path) -> None:
        there = {name: folder / name for name in names}
        told = {name: _told(path.read_bytes() if path.exists() else b"") for name, path in there.items()}
        (folder / "manifest.json").write_text(json.dumps({"files": told}))

    return make


_STAGED = f"{VERSION}/linux-x86_64/.staging/{key(7)}_99999999_0123abcd"
CASES: Cases = {
    "a kernel": put,
    "a binary": put_binary,
    "what tuning found": put_tuned,
    "of an older version": lambda root: lay(
        root / key(0), {"kernel.cu": b"", "kernel_lib.so": LIBRARY, "params.pkl": b"\x80\x04N."}
    ),
    "cut": changed(put, write("executable.so", LIBRARY[:-3])),
    "changed": changed(put, write("executable.so", LIBRARY[:-1] + b"!")),
    "parameters changed": changed(put, write("params.json", b"[]")),
    "a source changed": changed(put, write("host_kernel.cu", b"// tsoh")),
    "a cut manifest": changed(put, write("manifest.json", b"{")),
    "a deep manifest": changed(put, write("manifest.json", b"[" * 100_000)),
    "no manifest": changed(put, gone("manifest.json")),
    "no library": changed(put, gone("executable.so")),
    "a listed file that is gone": changed(put, _listed("launcher.cpp", "executable.so")),
    "a manifest without a binary": changed(put, _listed("params.json")),
    "a binary, cut": changed(put_binary, write("kernel.cubin", CUBIN[:-3])),
    "a binary without what is told of it": changed(put_binary, gone("metadata.json")),
    "tuned, without what was found": changed(put_tuned, gone("best_config.json")),
    "tuned, another format": changed(put_tuned, write("executable.so", b"garbage")),
    "tuned, cut": changed(put_tuned, write("executable.so", LIBRARY[:-3])),
    "something else in its folder": changed(put, write("notes.txt", b"mine")),
    "of a stopped writer": write(f"{_STAGED}/params.json", b"{"),
}
