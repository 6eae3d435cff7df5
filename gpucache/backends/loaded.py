"""Which files this process runs as shared libraries. Linux only; elsewhere none is found."""

import sys
from pathlib import Path


def loaded(name: str) -> Path | None:
    """The file of a loaded library whose name begins with ``name``."""
    if sys.platform != "linux":
        return None
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        path = line.partition("/")[2]
        if path.rpartition("/")[2].startswith(name):
            return Path("/" + path)
    return None
