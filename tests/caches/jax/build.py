"""Compilation caches of JAX for tests, by its own rules from given bytes."""

import hashlib
import zlib
from pathlib import Path

EXECUTABLE = b"U\x08\x03\x12\tpjrt_ifrt" + bytes(range(256)) * 4


def executable(module: str, before: bytes = EXECUTABLE[:1] + bytes(0x55)) -> bytes:
    """The beginning of an executable for a CPU, since 0.10 with a message before it."""
    name = module.encode()
    module_proto = b"\n" + bytes([len(name)]) + name + b"\x12\x06main.1"
    with_config = b"\n" + bytes([len(module_proto)]) + module_proto
    return before + b"\n" + bytes([0x80 | len(with_config), 0]) + with_config


def key(number: int) -> str:
    """The digits of an entry's key, by number."""
    return hashlib.sha256(b"%d" % number).hexdigest()


def packed(executable: bytes = EXECUTABLE, seconds: int = 3) -> bytes:
    """A file as JAX writes it without zstd."""
    return zlib.compress(seconds.to_bytes(4, "big") + executable)


def framed(executable: bytes = EXECUTABLE, seconds: int = 3, *, checksum: bool = False) -> bytes:
    """The same as a zstd frame of one segment, in raw blocks of 256 bytes at most, with a sham checksum."""
    data = seconds.to_bytes(4, "big") + executable
    blocks = [data[at : at + 256] for at in range(0, len(data), 256)]
    told = b"".join(
        (len(block) << 3 | (number == len(blocks) - 1)).to_bytes(3, "little") + block
        for number, block in enumerate(blocks)
    )
    descriptor = 0xA0 | (4 if checksum else 0)
    head = b"\x28\xb5\x2f\xfd" + bytes([descriptor]) + len(data).to_bytes(4, "little")
    return head + told + (b"sham" if checksum else b"")


def put(
    root: Path,
    number: int = 0,
    data: bytes | None = None,
    *,
    used_ns: int | None = None,
    only_use: bool = False,
    module: str = "jit_f",
    old: bool = False,
) -> Path:
    """Lay a file where JAX, or JAX before 0.4.31, looks for an entry, with its last use if any."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{module}-{key(number)}{'' if old else '-cache'}"
    if not only_use:
        path.write_bytes(packed() if data is None else data)
        path.chmod(0o600)
    if used_ns is not None:
        beside = path.with_name(f"{module}-{key(number)}-atime")
        beside.write_bytes(used_ns.to_bytes(8, "little"))
        beside.chmod(0o600)
        (root / ".lockfile").touch()
    return path
