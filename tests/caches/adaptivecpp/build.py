"""AdaptiveCpp's JIT caches for tests, by its own rules from given bytes."""

from functools import partial
from pathlib import Path

from tests.caches.opened import PTX, Cases, Environs, lay, together, write

_PROGRAM = "apps/saxpy-1234567890123456789"


def put(root: Path, number: int = 0, data: bytes = PTX) -> Path:
    """Lay a binary as AdaptiveCpp does; its file."""
    return lay(root / _PROGRAM / "jit-cache" / f"{number + 17}.987654321.jit", data)


CASES: Cases = {
    "a binary": put,
    "empty": partial(put, data=b""),
    "cut": partial(put, data=PTX[:-3]),
    "another format": partial(put, data=b"garbage"),
    "with the program's database": together(put, write(f"{_PROGRAM}/app.v4.db", b"\x85")),
    "of a killed writer": write(f"{_PROGRAM}/jit-cache/99.tmp", PTX[:9]),
}
PLACES: Environs = {
    "below XDG_DATA_HOME": ({"XDG_DATA_HOME": "/data", "HOME": "/home/me"},),
    "below the home": ({"HOME": "/home/me"},),
}
