"""hashcat's kernel caches for tests, by its own rules from given bytes."""

from pathlib import Path

from tests.caches.opened import PTX


def put(root: Path, number: int = 0, data: bytes = PTX) -> Path:
    """Lay a kernel of one hash mode; its file."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"m{number:05d}_a3-pure.{number + 0xABCD0000:08x}.kernel"
    path.write_bytes(data)
    path.chmod(0o600)
    return path
