"""PyTorch's extensions for tests, by its own rules from given bytes."""

from pathlib import Path

from tests.payload.build import elf64

PYTHON = "py312_cu126"
LIBRARY, OBJECT = elf64(elf_type=3), elf64(elf_type=1)
_BUILD = (
    "cxx = c++\n\ncflags = -DTORCH_EXTENSION_NAME={name} -O3\n\nbuild main.o: compile {folder}/main.cpp\n"
)


def put(root: Path, number: int = 0, python: str = PYTHON) -> Path:
    """Lay a module as PyTorch and ninja do; its directory."""
    name = f"rasterizer_{number}"
    folder = root / python / name
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        f"{name}.so": LIBRARY,
        "main.o": OBJECT,
        "main.cpp": b"int f();\n",
        "build.ninja": _BUILD.format(name=name, folder=folder).encode(),
        ".ninja_log": b"# ninja log v7\n",
        ".ninja_deps": b"# ninjadeps\n",
    }
    for file, data in files.items():
        (folder / file).write_bytes(data)
        (folder / file).chmod(0o600)
    return folder
