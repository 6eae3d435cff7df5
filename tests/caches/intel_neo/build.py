"""Caches of Intel's GPU driver for tests, by its own rules from given bytes."""

from functools import partial
from pathlib import Path

from tests.caches.opened import Cases, lay, write
from tests.payload.build import elf64

_INTELGT = 205
BINARY = elf64(_INTELGT, sections=[(".text.scale", b"\0" * 64)])


def key(number: int) -> str:
    return f"{number + 0xABCD000000000000:016x}"


def put(root: Path, number: int = 0, data: bytes = BINARY) -> Path:
    """Lay a binary, and correct the sum of all sizes; its file."""
    name = key(number)
    path = lay(root / name[0] / name[1] / f"{name}.cl_cache", data)
    total = sum(one.stat().st_size for one in root.glob("*/*/*.cl_cache"))
    lay(root / "config.file", total.to_bytes(8, "little"))
    return path


CASES: Cases = {
    "a binary": put,
    "in one folder, by an older driver": write(f"{key(1)}.l0_cache", BINARY),
    "empty": partial(put, data=b""),
    "cut": partial(put, data=BINARY[:-9]),
    "another format": partial(put, data=b"garbage"),
    "of the older format": partial(put, data=b"CTNI" + bytes(40)),
}
