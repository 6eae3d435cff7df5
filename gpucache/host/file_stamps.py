"""Whether a file is as it was, seen by its status alone: device, inode, size and both times.

A stamp stands for a content only where the file was older than the times of its file system are apart when it
was taken, and only on a local file system: a server may answer late. Must not know what files say.
"""

import os
import sys
from pathlib import Path

Stamp = tuple[int, ...]
"""Device, inode, size in bytes, change and modification time in nanoseconds."""
_GRANULE_NS = 2 * 10**9
"""The largest step of the times of a file system: that of FAT."""
_LOCAL = frozenset(
    {
        *(0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E),  # ext4, XFS, Btrfs, F2FS, ZFS
        *(0x01021994, 0x858458F6, 0x794C7630, 0x73717368, 0xE0F5E1E2),  # tmpfs, ramfs, overlay, images
    }
)
"""The kinds of local file systems, as linux/magic.h numbers them."""


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file or folder of this status."""
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns, status.st_mtime_ns


def is_settled(path: str | bytes | Path, status: os.stat_result, now_ns: int) -> bool:
    """Whether the stamp of a file, taken at ``now_ns`` and before it was read, stands for its content."""
    if max(status.st_ctime_ns, status.st_mtime_ns) > now_ns - _GRANULE_NS:
        return False
    local = _local.get(status.st_dev)
    if local is None:
        local = _local[status.st_dev] = _kind_of(path) in _LOCAL
    return local


_local: dict[int, bool] = {}
"""Whether a device is a local file system."""


def _kind_of(path: str | bytes | Path) -> int:
    """The kind of the file system that a path is on; 0 where nobody says. Source: statfs(2)."""
    if sys.platform != "linux":
        return 0
    import ctypes  # which a hit does not need for this

    answer = (ctypes.c_long * 64)()
    try:
        failed = ctypes.CDLL(None).statfs(os.fsencode(path), answer)
    except (OSError, AttributeError, ValueError):
        return 0
    return 0 if failed else answer[0] & 0xFFFFFFFF
