"""Caches of Intel's GPU driver for tests, by its own rules from given bytes."""

from pathlib import Path

from tests.payload.build import elf64

_INTELGT = 205
BINARY = elf64(_INTELGT, sections=[(".text.scale", b"\0" * 64)])


def key(number: int) -> str:
    """The name of an entry, by number."""
    return f"{number + 0xABCD000000000000:016x}"


def put(root: Path, number: int = 0, data: bytes = BINARY) -> Path:
    """Lay a binary, and correct the sum of all sizes; its file."""
    name = key(number)
    folder = root / name[0] / name[1]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.cl_cache"
    path.write_bytes(data)
    total = sum(one.stat().st_size for one in root.glob("*/*/*.cl_cache"))
    (root / "config.file").write_bytes(total.to_bytes(8, "little"))
    for one in (path, root / "config.file"):
        one.chmod(0o600)
    return path
