"""Numba caches for tests, by its own rules from given values."""

import hashlib
import pickle
from pathlib import Path

VERSION = "0.68.1"
SOURCES = f"sources_{hashlib.sha1(b'/home/me/sources').hexdigest()}"
OBJECT = pickle.dumps(("int64", b"object code"), protocol=4)


def put(root: Path, number: int = 0, versions: int = 1, below: str = SOURCES) -> Path:
    """Lay a function that was compiled for some signatures; its index."""
    folder = root / below
    folder.mkdir(parents=True, exist_ok=True)
    name = f"module.scale-{number + 1}.py311"
    files = {f"{name}.{one}.nbc": OBJECT for one in range(1, versions + 1)}
    table = {("int64", one): file for one, file in enumerate(files)}
    stamp = pickle.dumps((b"stamp", table), protocol=4)
    files[f"{name}.nbi"] = pickle.dumps(VERSION, protocol=5) + stamp
    for file, data in files.items():
        (folder / file).write_bytes(data)
        (folder / file).chmod(0o600)
    return folder / f"{name}.nbi"
