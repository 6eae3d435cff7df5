"""Whether a file is unchanged, judged by its status alone: device, inode, size and both times.

A stamp represents a content only if the file was not young when it was taken, and only on a local file
system that sets the time of a change itself: a server may answer late, and another image in the same place
may have the same numbers. Used for headers and for compilers' files. Must not know the contents of files.

Also identifies the files that a thread can see and read, by its mounts and permissions, and the paths that a
preloaded library redirects.
"""

import ctypes
import os
import stat
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

Stamp = tuple[int, ...]
"""Device, inode, size in bytes, change and modification time in nanoseconds."""
_SETTLED_NS = 60 * 10**9
"""The age at which a file is settled. File systems' times step by up to 2 s; and a writer through mapped
memory leaves the times unchanged until the pages have been written back, by default after 35 s."""
_LOCAL = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E})
"""ext4, XFS, Btrfs, F2FS, ZFS and bcachefs, as linux/magic.h numbers them. In images, such as SquashFS, all
times come from the image's maker; on tmpfs a writer through a mapping never changes a time."""
_OVERLAY = 0x794C7630
_OF_LOWER = 48
"""The bits of an inode number above which an overlay may put the number of a lower file system."""


def stamp_of(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns, status.st_mtime_ns


def is_young(status: os.stat_result, now_ns: int) -> bool:
    """Whether a file with this status is so new that a further change might not change its stamp."""
    return max(status.st_ctime_ns, status.st_mtime_ns) > now_ns - _SETTLED_NS


def is_settled(path: str | bytes | Path, status: os.stat_result, now_ns: int) -> bool:
    """Whether the stamp of a file, taken at ``now_ns`` and before it was read, represents its content."""
    return not is_young(status, now_ns) and shows_changes(path, status)


def shows_changes(path: str | bytes | Path, status: os.stat_result) -> bool:
    """Whether the file system of a path sets the times of a file's changes itself."""
    if status.st_ino >> _OF_LOWER:
        return False
    local = _local.get(status.st_dev)
    if local is None:
        kind = _kind_of(path)
        local = kind in _LOCAL or (kind == _OVERLAY and _is_of_upper(status.st_dev))
        _local[status.st_dev] = local
    return local


_local: dict[int, bool] = {}


def _is_of_upper(device: int) -> bool:
    """Whether files on a device are on the same file system as the upper layer of an overlay.

    That can only be a local one. Files of other layers have separate devices, which are mounted nowhere.
    Source: Documentation/filesystems/overlayfs.rst.
    """
    if sys.platform == "win32":
        return False
    place = f" {os.major(device)}:{os.minor(device)} "
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return any(place in mount and "upperdir=" in mount for mount in mounts.split("\n"))


def _kind_of(path: str | bytes | Path) -> int:
    """The kind of the file system of a path; 0 if it is unknown. Source: statfs(2)."""
    if sys.platform != "linux":
        return 0
    import ctypes  # a hit does not need it for this

    answer = (ctypes.c_long * 64)()
    try:
        failed = ctypes.CDLL(None).statfs(os.fsencode(path), answer)
    except (OSError, AttributeError, ValueError):
        return 0
    return 0 if failed else answer[0] & 0xFFFFFFFF


_AT_FDCWD, _STATX_MNT_ID, _MNT_ID_AT = -100, 0x1000, 18


def files_seen() -> str:
    """The namespaces of mounts and users, the root directory with its mount, the permissions; or empty."""
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
    """A checksum of this thread's user, groups and capabilities. Raises OSError."""
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


FUNCTIONS_OF_FILES = {
    "open": "o", "open64": "o", "openat": "a", "openat64": "a", "fopen": "f", "fopen64": "f",
    "access": "e", "stat": "s", "stat64": "s", "__xstat": "x", "__xstat64": "x",
}  # fmt: skip
"""The functions by which compilers look for files, with a letter for the form of each."""
_PATH = getattr(os, "O_PATH", 0) | getattr(os, "O_CLOEXEC", 0)


@cache
def replaced_functions() -> tuple[tuple[str, Any], ...]:
    """The functions that a preloaded library has replaced, each after its form; in most processes none."""
    try:
        own, used = ctypes.CDLL("libc.so.6"), ctypes.CDLL(None)
    except (OSError, TypeError):
        return ()  # another libc, or another system

    def differs(name: str) -> bool:
        mine, other = (getattr(library, name, None) for library in (own, used))
        return other is not None and (
            mine is None
            or ctypes.cast(mine, ctypes.c_void_p).value != ctypes.cast(other, ctypes.c_void_p).value
        )

    return tuple((form, getattr(used, name)) for name, form in FUNCTIONS_OF_FILES.items() if differs(name))


def is_redirected(path: bytes) -> bool:
    """Whether a replaced function finds another file at a path than libc's own; compilers may use either."""
    if not replaced_functions():
        return False
    status = _opened(ctypes.CDLL("libc.so.6").open(path, _PATH))
    own = status and (status.st_dev, status.st_ino)
    for form, function in replaced_functions():
        found: tuple[int, int] | None = None
        if form in "oa":
            opened = _opened(function(path, _PATH) if form == "o" else function(_AT_FDCWD, path, _PATH))
            found = opened and (opened.st_dev, opened.st_ino)
        elif form == "f":
            if status is not None and not stat.S_ISREG(status.st_mode):
                continue  # it might wait for a writer
            function.restype = ctypes.c_void_p
            if stream := function(path, b"re"):
                opened = os.fstat(ctypes.CDLL(None).fileno(ctypes.c_void_p(stream)))
                ctypes.CDLL(None).fclose(ctypes.c_void_p(stream))
                found = opened.st_dev, opened.st_ino
        elif form == "e":
            found = (own or (0, 0)) if function(path, os.F_OK) == 0 else None
        else:
            told = (ctypes.c_uint64 * 32)()  # struct stat, which begins with the two numbers
            failed = function(path, told) if form == "s" else function(1, path, told)
            found = None if failed else (told[0], told[1])
        if found != own:
            return True
    return False


def _opened(fd: int) -> os.stat_result | None:
    """The status of an open file, which this closes; None for a missing one."""
    if fd < 0:
        return None
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)
