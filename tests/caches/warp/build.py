"""Warp caches for tests, by its own rules from given bytes."""

import hashlib
from pathlib import Path

from tests.caches.opened import PTX

VERSION, MODULE = "1.19.0", "physics"


def digits(number: int) -> str:
    """The beginning of the hash of a module, by number."""
    return hashlib.sha256(b"%d" % number).hexdigest()[:7]


def put(root: Path, number: int = 0) -> Path:
    """Lay a module compiled for a GPU; its directory."""
    name = f"wp_{MODULE}_{digits(number)}"
    folder = root / VERSION / name
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"{name}.cu": b"// generated", f"{name}.meta": b'{"k_smem_bytes": 0}', f"{name}.sm90.ptx": PTX}
    for file, data in files.items():
        (folder / file).write_bytes(data)
        (folder / file).chmod(0o600)
    return folder


def put_older(root: Path, number: int = 0) -> Path:
    """Lay a module as Warp 1.2 to 1.5 do, below WARP_CACHE_PATH; its directory."""
    folder = root / f"wp_{MODULE}_{digits(number)}"
    folder.mkdir(parents=True)
    for ending, data in {"cu": b"// generated", "meta": b"{}", "sm90.ptx": PTX}.items():
        (folder / f"module_codegen.{ending}").write_bytes(data)
    return folder


def put_oldest(root: Path) -> Path:
    """Lay a module as Warp 1.0 and 1.1 do; the directory of its binary."""
    name = f"wp_my.{MODULE}"
    for folder in ("bin", "gen"):
        (root / "1.0.2" / folder).mkdir(parents=True)
    (root / "1.0.2" / "gen" / f"{name}.cu").write_bytes(b"// generated")
    (root / "1.0.2" / "bin" / f"{name}.sm90.ptx").write_bytes(PTX)
    (root / "1.0.2" / "bin" / f"{name}.sm90.hash").write_bytes(bytes(32))
    return root / "1.0.2" / "bin"
