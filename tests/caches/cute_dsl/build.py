"""The CuTe DSL's cache for tests, by its own rules from given bytes."""

import zlib
from functools import partial
from hashlib import sha256
from pathlib import Path

from tests.caches.opened import Cases, lay

_PLACE = "cute_dsl_{}.mlir"


def bytecode(number: int = 0) -> bytes:
    return b"ML\xefR" + bytes([13]) + b"MLIR21.0.0git\0" + b"func_%d" % number


def _whole(number: int = 0) -> bytes:
    data = bytecode(number)
    return data + zlib.crc32(data).to_bytes(4, "little")


def put(root: Path, number: int = 0, data: bytes | None = None) -> Path:
    """Lay a function as the CuTe DSL does; its file."""
    name = _PLACE.format(sha256(b"%d" % number).hexdigest())
    return lay(root / name, _whole(number) if data is None else data)


def _facts(root: Path) -> None:
    put(root)
    lay(root / "pyir_class_facts" / f"{0:032x}.v1.facts", b"{}")


CASES: Cases = {
    "a function": put,
    "with facts about classes": _facts,
    "empty": partial(put, data=b""),
    "cut": partial(put, data=_whole()[:-3]),
    "a changed byte": partial(put, data=_whole().replace(b"func", b"fund")),
    "another format": partial(put, data=b"garbage"),
    "of a killed writer": lambda root: put(root / "tmp.pid_99999999_12345678-1234-1234-1234-123456789abc"),
}
