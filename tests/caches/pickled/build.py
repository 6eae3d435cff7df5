"""Caches with pickles for tests, by the rules of KeOps, FlyDSL and Hidet."""

from pathlib import Path

from tests.caches.opened import lay
from tests.caches.tvm_ffi import build as tvm_ffi

_MACHINE = "Linux_host_6.1_p3.11.7"


def artifact(
    *references: str, module: str = "flydsl.compiler.jit_executor", name: str = "CompiledArtifact"
) -> bytes:
    """A pickle of FlyDSL's, with the functions that it has called."""
    state = b"}(" + _text("ir_zlib") + b"C\x04x\x9c\x03\x00" + _text("processor_refs") + b"]("
    state += b"".join(map(_text, references)) + b"eu"
    return b"\x80\x04" + _text(module) + _text(name) + b"\x93)\x81" + state + b"b."


def _text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


FLYDSL = artifact("flydsl.runtime:ready")


def put_flydsl(root: Path, number: int = 0, data: bytes = FLYDSL) -> Path:
    """Lay a kernel of FlyDSL; its file."""
    return lay(root / "launch" / f"{number:064x}.pkl", data)


def put_keops(root: Path, data: bytes) -> Path:
    """Lay the pickle that KeOps loads when it is imported."""
    return lay(root / _MACHINE / "LoadKeOps_cpp_class_cache.pkl", data)


def put_formula(root: Path, number: int = 0) -> Path:
    """Lay the library of a formula; its file."""
    return lay(root / _MACHINE / f"pykeops_cpp_{number:010x}.so", tvm_ffi.LIBRARY)


def put_hidet(root: Path, data: bytes) -> Path:
    """Lay the types of an operator of Hidet's, next to a library."""
    folder = root / "ops" / "cpu_space_0" / "add" / f"{0:016x}"
    lay(folder / "lib.so", tvm_ffi.LIBRARY)
    return lay(folder / "func_types.pickle", data)
