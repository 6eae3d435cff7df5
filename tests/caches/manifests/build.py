"""Caches with manifests for tests, by the rules of B12X and of Unsloth."""

import hashlib
import json
import struct
import zlib
from base64 import b64encode
from pathlib import Path


def content(number: int = 0) -> bytes:
    return b"\x7fELF content %d" % number


def put_object(root: Path, number: int = 0) -> Path:
    """Lay a kernel of B12X; its object."""
    key, data = hashlib.sha256(b"%d" % number).hexdigest(), content(number)
    path = root / key[:2] / f"{key}.o"
    told = {"cache_key": key, "object_bytes": len(data), "object_sha256": hashlib.sha256(data).hexdigest()}
    return _lay(path, data, path.with_suffix(".json"), told)


def mega_cache(*contents: bytes) -> bytes:
    def part(data: bytes) -> bytes:
        return struct.pack(">Q", len(data)) + data

    made = struct.pack(">Q", 1) + part(b64encode(b"inductor")) + struct.pack(">Q", len(contents))
    for one in contents:
        made += part(b64encode(b"key")) + part(one)
    return struct.pack(">I", zlib.crc32(made)) + made


def put_bundle(root: Path, number: int = 0, data: bytes = b"") -> Path:
    """Lay a bundle of Unsloth; its file."""
    data = data or content(number)
    digest = hashlib.sha256(data).hexdigest()
    path = root / hashlib.sha256(b"%d" % number).hexdigest()[:32] / f"megacache-{digest[:16]}.bin"
    told = {"bytes": len(data), "sha256": digest, "bundle": path.name}
    return _lay(path, data, path.with_name("manifest.json"), told)


def _lay(path: Path, data: bytes, manifest: Path, told: dict[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    manifest.write_text(json.dumps(told), encoding="ascii")
    for one in (path, manifest):
        one.chmod(0o600)
    return path
