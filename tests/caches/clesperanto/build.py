"""clesperanto's kernel caches for tests, by its own rules from given bytes."""

from pathlib import Path

from tests.caches.opened import PTX

VERSION, DEVICE = "clic-0.25.1-r4", "82b9b3471679702a-446"


def put(root: Path, number: int = 0, data: bytes = PTX) -> Path:
    """Lay the binary of one kernel; its file."""
    folder = root / VERSION / DEVICE
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number + 0xABCD000000000000:016x}-1029{number}.bin"
    path.write_bytes(data)
    path.chmod(0o600)
    return path
