"""TorchInductor's caches for tests, by its own rules from given bytes."""

import hashlib
import pickle
from base64 import b32encode
from pathlib import Path

from tests.payload.build import elf64

LIBRARY = elf64(elf_type=3)
GRAPH = pickle.dumps({"graph": "compiled"})


def name(data: bytes) -> str:
    """The name of a file, made from the digest of its content."""
    return b32encode(hashlib.sha256(data).digest()).decode().lower()[:51]


def put(root: Path, number: int = 0, data: bytes = GRAPH, kind: str = "fxgraph") -> Path:
    """Lay a graph for one set of guards; its file."""
    key = kind[0] + name(b"%d" % number)
    return _lay(root / kind / ("" if kind == "aotautograd" else key[1:3]) / key / name(data), data)


def put_module(root: Path, data: bytes = b"# AOT ID: ['0_inference']\npass\n") -> Path:
    """Lay the Python module of a graph; its file."""
    called = name(data.strip())
    return _lay(root / called[:2] / f"c{called}.py", data)


def put_library(root: Path, number: int = 0) -> Path:
    """Lay a library with what it was compiled from; its file."""
    called = name(b"library %d" % number)
    _lay(root / called[:2] / f"c{called}.main.cpp", b"// generated")
    return _lay(root / called[:2] / f"c{called}.main.so", LIBRARY)


def _lay(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)
    return path
