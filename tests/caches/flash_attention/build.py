"""FlashAttention 4's cache for tests, by its own rules from given bytes."""

from functools import partial
from hashlib import sha256
from pathlib import Path

from tests.caches.opened import Cases, lay, write
from tests.payload.build import elf64

OBJECT = elf64(elf_type=1)
_SOURCES = sha256(b"sources").hexdigest()


def put(root: Path, number: int = 0, data: bytes = OBJECT, kind: str = "fwd") -> Path:
    """Lay a kernel as FlashAttention does, with its lock; its file."""
    path = root / _SOURCES / kind / f"{sha256(b'%d' % number).hexdigest()}.o"
    lay(path.with_suffix(".lock"), b"")
    return lay(path, data)


CASES: Cases = {
    "a kernel": put,
    "without a kind": partial(put, kind=""),
    "empty": partial(put, data=b""),
    "cut": partial(put, data=OBJECT[:-3]),
    "another format": partial(put, data=b"garbage"),
    "a lock alone": write(f"{_SOURCES}/fwd/{sha256(b'1').hexdigest()}.lock", b""),
    "of a killed writer": write(f"{_SOURCES}/fwd/.{sha256(b'1').hexdigest()}.{'ab' * 8}.tmp.o", b""),
}
