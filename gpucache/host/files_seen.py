"""Which files a thread can see and read, and whether their times tell anything.

Two threads that see the same find the same file under a path.

Owns the system calls. The library inside a command makes the same text (``native/wire.c``) in the thread that
asks for a build: seen from outside, threads differ and process ids of another namespace mean other processes.
"""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

# Numbers of statfs(2), here in the order of their names: bcachefs, Btrfs, EROFS, ext2 to ext4, F2FS, JFS,
# overlay, ramfs, SquashFS, tmpfs, XFS, ZFS.
# fmt: off
_LOCAL = frozenset((
    0xCA451A4E, 0x9123683E, 0xE0F5E1E2, 0xEF53, 0xF2F52010, 0x3153464A, 0x794C7630, 0x858458F6, 0x73717368,
    0x01021994, 0x58465342, 0x2FC12FC1,
))
# fmt: on
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
    """What stands for the user, groups and capabilities of the thread. Raises OSError."""
    total = 0
    for line in Path("/proc/thread-self/status").read_bytes().splitlines(keepends=True):
        if line.startswith((b"Uid:", b"Gid:", b"Groups:", b"CapEff:")):
            for byte in line:
                total = (total * 31 + byte) % 2**64
    return total


def _mount_of_root() -> int:
    """The number of the mount that the root directory is on; 0 before Linux 5.8, which cannot tell."""
    statx = getattr(ctypes.CDLL(None), "statx", None)
    told = (ctypes.c_uint64 * 32)()  # struct statx
    if statx is None or statx(_AT_FDCWD, b"/", 0, _STATX_MNT_ID, told) != 0:
        return 0
    return int(told[_MNT_ID_AT]) if told[0] & _STATX_MNT_ID else 0


def is_local(path: str) -> bool:
    """Whether a file lies on a file system of this machine, whose times can be believed; no where unknown."""
    told = (ctypes.c_long * 64)()  # struct statfs, which begins with the number of its kind
    statfs = getattr(ctypes.CDLL(None), "statfs", None)
    return statfs is not None and statfs(os.fsencode(path), told) == 0 and told[0] & 0xFFFFFFFF in _LOCAL
