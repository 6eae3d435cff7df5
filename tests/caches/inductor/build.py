"""TorchInductor's caches for tests, by its own rules from given bytes."""

import hashlib
import pickle
from base64 import b32encode
from pathlib import Path

GRAPH = pickle.dumps({"graph": "compiled"})


def name(data: bytes) -> str:
    """What a file is called by."""
    return b32encode(hashlib.sha256(data).digest()).decode().lower()[:51]


def put(root: Path, number: int = 0, data: bytes = GRAPH, kind: str = "fxgraph") -> Path:
    """Lay a graph for one set of guards; its file."""
    key = kind[0] + name(b"%d" % number)
    folder = root / kind / key[1:3] / key
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name(data)
    path.write_bytes(data)
    path.chmod(0o600)
    return path
