"""Cycles' kernel caches for tests, by its own rules from given bytes."""

from pathlib import Path

from tests.caches.opened import PTX


def put(root: Path, number: int = 0, data: bytes = PTX, of: str = "compute_90", ending: str = ".ptx") -> Path:
    """Lay a kernel for an architecture; its file."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"cycles_kernel_{of}_{number + 0xABCD << 112:032X}{ending}"
    path.write_bytes(data)
    path.chmod(0o600)
    return path
