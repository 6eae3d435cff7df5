"""FlashInfer's cache for tests, by its own rules from given bytes."""

from pathlib import Path

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
    """Lay a module as FlashInfer and ninja do; its folder."""
    name = f"batch_decode_{number}"
    folder = root / VERSION / ARCHS / "cached_ops" / name
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        f"{name}.so": LIBRARY,
        f"{name}.cuda.o": OBJECT,
        "build.ninja": _BUILD.format(name=name, folder=folder, cuda_home=cuda_home, source=source).encode(),
        ".ninja_log": b"# ninja log v7\n",
    }
    for file, data in files.items():
        (folder / file).write_bytes(data)
        (folder / file).chmod(0o600)
    return folder
