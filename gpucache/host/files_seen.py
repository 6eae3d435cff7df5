"""The identity of the files that a thread can see and read.

Two threads with the same identity find the same file under a path.

Owns the system calls. The library inside a command makes the same text (``native/wire.c``) in the thread that
requests a build: seen from outside, threads differ and process ids of another namespace mean other processes.
"""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

_AT_FDCWD, _STATX_MNT_ID, _MNT_ID_AT = -100, 0x1000, 18


def files_seen() -> str:
    """The namespaces of mounts and users, the root directory with its mount, and the rights; else empty."""
    with suppress(OSError):
        files, users, root = map(os.stat, ("/proc/thread-self/ns/mnt", "/proc/thread-self/ns/user", "/"))
        total = _rights()
        numbers = (
            files.st_dev,
            files.st_ino,
            users.st_ino,
            root.st_dev,
            root.st_ino,
            total,
            _mount_of_root(),
        )
        return ":".join(f"{number:x}" for number in numbers)
    return ""


def _rights() -> int:
    """A checksum of the user, groups and capabilities of the thread. Raises OSError."""
    total = 0
    for line in Path("/proc/thread-self/status").read_bytes().splitlines(keepends=True):
        if line.startswith((b"Uid:", b"Gid:", b"Groups:", b"CapEff:")):
            for byte in line:
                total = (total * 31 + byte) % 2**64
    return total


def _mount_of_root() -> int:
    """The number of the mount of the root directory; 0 before Linux 5.8, which does not report it."""
    statx = getattr(ctypes.CDLL(None), "statx", None)
    told = (ctypes.c_uint64 * 32)()  # struct statx
    if statx is None or statx(_AT_FDCWD, b"/", 0, _STATX_MNT_ID, told) != 0:
        return 0
    return int(told[_MNT_ID_AT]) if told[0] & _STATX_MNT_ID else 0
