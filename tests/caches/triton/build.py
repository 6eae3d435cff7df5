"""Triton caches for tests, by its own rules from given bytes."""

import hashlib
import json
from base64 import b32encode
from pathlib import Path
from typing import Any

from tests.caches.opened import PTX

KERNEL = "add"


def key(number: int) -> str:
    """The key of an entry, by number."""
    return hashlib.sha256(b"%d" % number).hexdigest()


def folder(root: Path, number: int = 0) -> Path:
    """Where Triton keeps an entry."""
    return root / b32encode(bytes.fromhex(key(number))).decode().rstrip("=")


def put(root: Path, number: int = 0, **described: Any) -> Path:
    """Lay a kernel as Triton does, described with options beside the usual ones; its folder."""
    place = folder(root, number)
    place.mkdir(parents=True, exist_ok=True)
    target = {"backend": "cuda", "arch": 90, "warp_size": 32}
    told = {"hash": key(number), "target": target, "num_warps": 4, "triton_version": "3.9.0", "name": KERNEL}
    files = {
        f"{KERNEL}.source": b"module { source }",
        f"{KERNEL}.ttir": b"module { }",
        f"{KERNEL}.ptx": PTX,
        f"{KERNEL}.json": json.dumps({**told, **described}).encode(),
    }
    listed = {name: str(place / name) for name in files}
    files[f"__grp__{KERNEL}.json"] = json.dumps({"child_paths": listed}).encode()
    for name, data in files.items():
        (place / name).write_bytes(data)
        (place / name).chmod(0o600)
    return place
