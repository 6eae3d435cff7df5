"""TVM-FFI's modules for tests, by its own rules from given bytes."""

from pathlib import Path

from tests.caches.opened import Cases, changed, gone, lay, write
from tests.payload.build import elf64

LIBRARY, OBJECT = elf64(elf_type=3), elf64(elf_type=1)
_BUILD = "cxx = c++\ncxxflags = -O2\n\nbuild cpp_0.o: compile {folder}/main.cpp\n"


def put(root: Path, number: int = 0) -> Path:
    """Lay a module as TVM-FFI and ninja do; its directory."""
    name = f"rope_{number}"
    folder = root / f"{name}_{0x54E7EAC3943BDEEC + number:016x}"
    files = {
        f"{name}.so": LIBRARY,
        "cpp_0.o": OBJECT,
        "main.cpp": b"int f();\n",
        "build.ninja": _BUILD.format(folder="/modules").encode(),
        ".ninja_log": b"# ninja log v7\n",
        ".ninja_deps": b"# ninjadeps\n",
        "lock": b"",
    }
    for file, data in files.items():
        lay(folder / file, data)
    return folder


CASES: Cases = {
    "a module": put,
    "an empty library": changed(put, write("rope_0.so", b"")),
    "a cut library": changed(put, write("rope_0.so", LIBRARY[:-3])),
    "another library": changed(put, write("rope_0.so", b"garbage")),
    "an empty object": changed(put, write("cpp_0.o", b"")),
    "a file of ninja's that is no text": changed(put, write("build.ninja", b"\x91")),
    "without a library": changed(put, gone("rope_0.so")),
    "without ninja's file": changed(put, gone("build.ninja")),
}
