"""Which files a thread can see and read, and whether their times tell anything.

Two threads that see the same find the same file under a path.

Owns the system calls. The library inside a command makes the same text (``native/wire.c``) in the thread that
asks for a build: seen from outside, threads differ and process ids of another namespace mean other processes.
"""

import ctypes
import os
from contextlib import suppress

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
    """The mount namespace, the root directory with its mount, and the groups; empty where one is unknown."""
    with suppress(OSError):
        namespace, root = os.stat("/proc/thread-self/ns/mnt"), os.stat("/")  # noqa: PTH116 - no pathlib in C
        groups = 0
        for group in (os.getegid(), *os.getgroups()):
            groups = (groups * 31 + group) % 2**64
        numbers = (namespace.st_dev, namespace.st_ino, root.st_dev, root.st_ino, _mount_of_root(), groups)
        return ":".join(f"{number:x}" for number in numbers)
    return ""


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
