"""Caches of AMD's code object manager for tests, by its own rules from given bytes."""

import sys
from functools import partial
from pathlib import Path

from tests.caches.opened import Cases, lay
from tests.payload.build import bitcode, elf64

OUTPUT = bitcode()


def key(number: int) -> str:
    """The digits of an entry's name, by number."""
    return f"{number + 0xABCD:064x}"


def file_bytes(output: bytes = OUTPUT, log: bytes = b"1 warning generated.\n") -> bytes:
    """A file as the code object manager writes it."""
    return b"".join(len(part).to_bytes(8, sys.byteorder) + part for part in (output, log))


def put(root: Path, number: int = 0, data: bytes | None = None) -> Path:
    """Lay what one step of compiling gave; its file."""
    return lay(root / f"llvmcache-{key(number)}", file_bytes() if data is None else data)


CASES: Cases = {
    "an output": put,
    "empty": partial(put, data=b""),
    "cut in a length": partial(put, data=b"\0\0\0"),
    "a length beyond every file": partial(put, data=(2**64 - 1).to_bytes(8, sys.byteorder) + b"x"),
    "cut": partial(put, data=file_bytes()[:-1]),
    "no log": partial(put, data=file_bytes()[: 8 + len(OUTPUT)]),
    "more than it says": partial(put, data=file_bytes() + b"x"),
    "a cut object": partial(put, data=file_bytes(elf64(224)[:-9])),
}
