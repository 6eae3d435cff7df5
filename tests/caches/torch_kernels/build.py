"""PyTorch's jiterator kernels for tests, by its own rules from given bytes."""

from hashlib import sha1
from pathlib import Path

from tests.caches.opened import PTX


def name(number: int = 0) -> str:
    source = f"kernel {number}".encode()
    return f"digamma_arch9.0_nvrtc12.6_ptx_{len(source)}_{sha1(source).hexdigest()}"


def put(root: Path, number: int = 0) -> Path:
    """Lay a kernel as PyTorch does; its file."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / name(number)
    path.write_bytes(PTX)
    path.chmod(0o600)
    return path
