"""OpenCV's OpenCL caches for tests, by its own rules from given bytes."""

import struct
from collections.abc import Mapping
from hashlib import md5
from pathlib import Path

from tests.caches.opened import PTX

DEVICE = "NVIDIA_Corporation--NVIDIA_GeForce_RTX_4090--550_54_14"
SLOTS = 64
ONE: Mapping[str, bytes] = {"-D T=float": PTX}


def content(digest: str, builds: Mapping[str, bytes] = ONE) -> bytes:
    """A file with a chain for each of its builds."""
    begins = len(digest).to_bytes(4, "little") + digest.encode()
    starts, links = [0] * SLOTS, b""
    for slot, (options, binary) in enumerate(builds.items()):
        starts[slot] = len(begins) + 4 + 4 * SLOTS + len(links)
        links += struct.pack("<III", 0, len(options), len(binary)) + options.encode() + binary
    return begins + struct.pack(f"<{1 + SLOTS}I", SLOTS, *starts) + links


def put(root: Path, number: int = 0, builds: Mapping[str, bytes] = ONE) -> Path:
    """Lay the builds of one source below the lock; the file."""
    folder = root / DEVICE
    folder.mkdir(parents=True, exist_ok=True)
    (root / ".lock").touch(mode=0o600)
    digest = md5(b"%d" % number).hexdigest()
    path = folder / f"imgproc--resize_{digest}.bin"
    path.write_bytes(content(digest, builds))
    path.chmod(0o600)
    return path
