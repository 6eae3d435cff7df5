"""FlashInfer's cache for tests, by its own rules from given bytes."""

from functools import partial
from pathlib import Path

from tests.caches.opened import Cases, changed, lay, together, write
from tests.payload.build import elf64

VERSION, ARCHS = "0.7.2", "90a"
LIBRARY, OBJECT = elf64(elf_type=3), elf64(elf_type=1)
_BUILD = """ninja_required_version = 1.3
name = {name}
cuda_home = {cuda_home}
cxx_launcher =

cuda_cflags = $common_cflags $
    -gencode=arch=compute_90a,code=sm_90a $
    -O3

build {folder}/{name}.cuda.o: cuda_compile {source}
"""


def put(root: Path, number: int = 0, cuda_home: str = "/usr/local/cuda", source: str = "/") -> Path:
    """Lay a module as FlashInfer and ninja do; its directory."""
    name = f"batch_decode_{number}"
    folder = root / VERSION / ARCHS / "cached_ops" / name
    files = {
        f"{name}.so": LIBRARY,
        f"{name}.cuda.o": OBJECT,
        "build.ninja": _BUILD.format(name=name, folder=folder, cuda_home=cuda_home, source=source).encode(),
        ".ninja_log": b"# ninja log v7\n",
    }
    for file, data in files.items():
        lay(folder / file, data)
    return folder


def _own(root: Path) -> None:
    for name in (f"{VERSION}/{ARCHS}/cached_ops/tmp", f"{VERSION}/{ARCHS}/generated/gen", "cubins/abc"):
        (root / name).mkdir(parents=True)
    (root / VERSION / "flashinfer_jit.log").touch()  # where no GPU names an architecture


_CUTE = "80_90/cached_ops/quantize_sm100a_cute_dsl"
CASES: Cases = {
    "a module, and what else FlashInfer keeps": together(put, _own),
    "built with another CUDA": partial(put, cuda_home="/opt/cuda"),
    "sources that are gone": partial(put, source="/nowhere/page.cu"),
    "a source that no file can be": partial(put, source="/" + "x" * 300),
    "of the CuTe DSL, without a version": together(
        write(f"{_CUTE}/k.o", OBJECT), write(f"{_CUTE}/meta.json", b"{}")
    ),
    "cut": changed(put, write("batch_decode_0.so", LIBRARY[:-3])),
    "empty": changed(put, write("batch_decode_0.so", b"")),
    "another format": changed(put, write("batch_decode_0.so", b"garbage")),
    "an object cut": changed(put, write("batch_decode_0.cuda.o", OBJECT[:-3])),
}
