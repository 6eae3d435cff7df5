"""Triton caches for tests, by its own rules from given bytes."""

import hashlib
import json
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.caches.opened import PTX
from tests.payload.build import elf64

KERNEL = "add"
CUBIN = elf64(190, flags=0x6005A04, abi_version=8, sections=[(f".text.{KERNEL}", b"code")])
"""For sm_90."""
LAYOUTS: Mapping[str, Callable[[str], str]] = {
    "3.9.0": lambda key: b32encode(bytes.fromhex(key)).decode().rstrip("="),
    "3.2": lambda key: urlsafe_b64encode(bytes.fromhex(key)).decode().rstrip("="),
    "3.0-3.1": lambda key: key,
    "2.1-2.3": lambda key: key[:32],
}
"""How versions name the directory of a key, which the last has only 32 digits of."""


def key(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


def folder(root: Path, number: int = 0, version: str = "3.9.0") -> Path:
    """Where a version of Triton keeps an entry."""
    return root / LAYOUTS[version](key(number))


def put(root: Path, number: int = 0, version: str = "3.9.0", **described: Any) -> Path:
    """Lay a kernel as a version does, described with options next to the usual ones; its directory."""
    place = folder(root, number, version)
    place.mkdir(parents=True, exist_ok=True)
    target = {"backend": "cuda", "arch": 90, "warp_size": 32}
    told = {"hash": key(number), "target": target, "num_warps": 4, "num_ctas": 1, "shared": 0, "name": KERNEL}
    if "-" in version:
        told["hash"] = place.name
    elif version != "3.2":
        told["triton_version"] = version
    files = {
        f"{KERNEL}.source": b"module { source }",
        f"{KERNEL}.ttir": b"module { }",
        f"{KERNEL}.ptx": PTX,
        f"{KERNEL}.cubin": CUBIN,
        f"{KERNEL}.json": json.dumps({**told, **described}).encode(),
    }
    listed = {name: str(place / name) for name in files}
    files[f"__grp__{KERNEL}.json"] = json.dumps({"child_paths": listed}).encode()
    for name, data in files.items():
        (place / name).write_bytes(data)
        (place / name).chmod(0o600)
    return place
