"""Caches of AMD's code object manager for tests, by its own rules from given bytes."""

import sys
from pathlib import Path

from tests.payload.build import bitcode

OUTPUT = bitcode()


def key(number: int) -> str:
    """The digits of an entry's name, by number."""
    return f"{number + 0xABCD:064x}"


def file_bytes(output: bytes = OUTPUT, log: bytes = b"1 warning generated.\n") -> bytes:
    """A file as the code object manager writes it."""
    return b"".join(len(part).to_bytes(8, sys.byteorder) + part for part in (output, log))


def put(root: Path, number: int = 0, data: bytes | None = None) -> Path:
    """Lay what one step of compiling gave; its file."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"llvmcache-{key(number)}"
    path.write_bytes(file_bytes() if data is None else data)
    path.chmod(0o600)
    return path
