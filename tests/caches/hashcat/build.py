"""hashcat's kernel caches for tests, by its own rules from given bytes."""

from functools import partial
from pathlib import Path

from tests.caches.opened import PTX, Cases, Environs, lay


def put(root: Path, number: int = 0, data: bytes = PTX) -> Path:
    """Lay a kernel of one hash mode; its file."""
    return lay(root / f"m{number:05d}_a3-pure.{number + 0xABCD0000:08x}.kernel", data)


CASES: Cases = {
    "a kernel": put,
    "empty": partial(put, data=b""),
    "cut": partial(put, data=PTX[:-3]),
    "another format": partial(put, data=b"garbage"),
}
PLACES: Environs = {
    "below the home on record": ({"HOME": "/elsewhere"},),
    "an older folder": ({"HOME": "/elsewhere"}, "record/.hashcat/kernels/"),
}
