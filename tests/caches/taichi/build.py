"""Taichi caches for tests, by its own rules from given bytes."""

import hashlib
import struct
from pathlib import Path

CODE = b"; ModuleID = 'kernel'\ntarget triple = \"x86_64-pc-linux-gnu\"\n"
JSON = b'{"compiled_data":{"tasks":[{"block_dim":0,"name":"scale_c80_0_kernel_0_serial"}]}}'
MADE_S = 1_600_000_000


def key(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


def file_bytes(code: bytes = CODE, architecture: int = 0) -> bytes:
    digest = hashlib.sha256(JSON + code).hexdigest().encode()
    return struct.pack("<4sIQQ", b"TIC\0", architecture, len(JSON), len(code)) + JSON + code + digest


def index_bytes(*keys: str) -> bytes:
    """An index with a row for each key."""
    rows = b""
    for one in keys:
        name = struct.pack("<Q", len(one) + 1) + b"T" + one.encode()
        rows += 2 * name + struct.pack("<Qqq", len(file_bytes()), MADE_S, MADE_S + 60)
    head = struct.pack("<Q3HQQ", 30 + len(rows), 1, 7, 4, len(keys) * len(file_bytes()), len(keys))
    return head + rows


def put(root: Path, number: int = 0, data: bytes | None = None) -> Path:
    """Lay a kernel with its row; its file."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"T{key(number)}.tic"
    path.write_bytes(file_bytes() if data is None else data)
    there = sorted(one.name[1:-4] for one in root.glob("T*.tic"))
    (root / "ticache.tcb").write_bytes(index_bytes(*there))
    for one in (path, root / "ticache.tcb"):
        one.chmod(0o600)
    return path


def put_quadrants(root: Path, number: int = 0, data: bytes | None = None) -> Path:
    """The same with the names of Quadrants; its file."""
    path = put(root, number, (file_bytes() if data is None else data).replace(b"TIC", b"QDC", 1))
    (root / "ticache.tcb").unlink()
    path = path.rename(path.with_suffix(".qdc"))
    index = root / "qdcache.qdb"
    index.write_bytes(index_bytes(*sorted(one.name[1:-4] for one in root.glob("T*.qdc"))))
    index.chmod(0o600)
    return path
