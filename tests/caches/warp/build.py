"""Warp caches for tests, by its own rules from given bytes."""

import hashlib
from pathlib import Path

from tests.caches.opened import PTX

VERSION, MODULE = "1.19.0", "physics"


def digits(number: int) -> str:
    """The beginning of the hash of a module, by number."""
    return hashlib.sha256(b"%d" % number).hexdigest()[:7]


def put(root: Path, number: int = 0) -> Path:
    """Lay a module compiled for a GPU; its folder."""
    name = f"wp_{MODULE}_{digits(number)}"
    folder = root / VERSION / name
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"{name}.cu": b"// generated", f"{name}.meta": b'{"k_smem_bytes": 0}', f"{name}.sm90.ptx": PTX}
    for file, data in files.items():
        (folder / file).write_bytes(data)
        (folder / file).chmod(0o600)
    return folder
