"""darktable's kernel caches for tests, by its own rules from given bytes."""

from hashlib import md5
from pathlib import Path

from tests.caches.opened import PTX

FOLDER = "cached_v4_kernels_for_NVIDIAGeForceRTX4090_5505414"


def put(root: Path, number: int = 0, data: bytes = PTX) -> Path:
    """Lay the binary of a program, and the link to it; the binary."""
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / md5(b"%d" % number).hexdigest()
    path.write_bytes(data)
    path.chmod(0o600)
    (folder / f"program{number}.cl.bin").symlink_to(path.name)
    return path
