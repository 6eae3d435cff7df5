"""A file system in user space that shows a directory, and lets calls fail as a network or a disk would.

Its arguments are the directory and a mount point. It speaks the kernel's own protocol (linux/fuse.h, version
7.31) over /dev/fuse, without a library. It writes ``ready`` once it is mounted; then each line on stdin,
``NAME ERROR`` with an operation such as ``WRITE`` or ``ALL`` and an error such as ``EIO``, sets the operation
that fails from now on, and an empty line resets it; each is confirmed by a line. The kernel caches nothing.
"""

import ctypes
import errno
import os
import select
import stat
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_HEADER = struct.Struct("<IIQQIIIHH")
_REPLY = struct.Struct("<IiQ")
_BUFFER_BYTES = 1 << 20
_NO_CACHE = 1  # FOPEN_DIRECT_IO
_NODEV_NOSUID = 6
_OPERATIONS = {
    1: "LOOKUP", 2: "FORGET", 3: "GETATTR", 4: "SETATTR", 9: "MKDIR", 10: "UNLINK", 11: "RMDIR", 12: "RENAME",
    14: "OPEN", 15: "READ", 16: "WRITE", 17: "STATFS", 18: "RELEASE", 20: "FSYNC", 25: "FLUSH", 26: "INIT",
    27: "OPENDIR", 28: "READDIR", 29: "RELEASEDIR", 30: "FSYNCDIR", 34: "ACCESS", 35: "CREATE",
    42: "BATCH_FORGET", 45: "RENAME2",
}  # fmt: skip
_SILENT = ("FORGET", "BATCH_FORGET")
_NEVER_FAIL = ("INIT", "RELEASE", "RELEASEDIR")


def _name(data: bytes) -> str:
    return os.fsdecode(data.split(b"\0", 1)[0])


def _attributes(status: os.stat_result) -> bytes:
    times = [status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns]
    return struct.pack(
        "<6Q10I",
        status.st_ino, status.st_size, status.st_blocks, *(time // 10**9 for time in times),
        *(time % 10**9 for time in times),
        status.st_mode, status.st_nlink, status.st_uid, status.st_gid, 0, 4096, 0,
    )  # fmt: skip


class Shown:
    """A directory as the kernel reads it: its files by number, and descriptors by number."""

    def __init__(self, folder: Path) -> None:
        self._paths = {1: folder}
        self._numbers = {folder: 1}
        self._listed: dict[int, bytes] = {}

    def answer(self, operation: str, node: int, data: bytes) -> bytes:
        """The reply to an operation; raises OSError."""
        method: Callable[[int, bytes], bytes] | None = getattr(self, f"_{operation.lower()}", None)
        if method is None:
            raise OSError(errno.ENOSYS, operation)
        return method(node, data)

    def _entry(self, path: Path) -> bytes:
        status = path.lstat()
        number = self._numbers.setdefault(path, len(self._paths) + 1)
        self._paths[number] = path
        return struct.pack("<4Q2I", number, 0, 0, 0, 0, 0) + _attributes(status)

    def _init(self, _: int, __: bytes) -> bytes:
        return struct.pack("<4I2H2I2H8I", 7, 31, 1 << 16, 0, 16, 16, 1 << 17, 1, 32, 0, *[0] * 8)

    def _lookup(self, node: int, data: bytes) -> bytes:
        return self._entry(self._paths[node] / _name(data))

    def _getattr(self, node: int, data: bytes) -> bytes:
        given, _, descriptor = struct.unpack_from("<IIQ", data)
        status = os.fstat(descriptor) if given & 1 else self._paths[node].lstat()
        return struct.pack("<Q2I", 0, 0, 0) + _attributes(status)

    def _setattr(self, node: int, data: bytes) -> bytes:
        valid, _, _, size, _, accessed, changed, _, accessed_ns, changed_ns, _, mode = struct.unpack_from(
            "<2I6Q4I", data
        )
        path = self._paths[node]
        if valid & 1:
            path.chmod(stat.S_IMODE(mode))
        if valid & 8:
            os.truncate(path, size)
        if valid & 0x30:
            os.utime(path, ns=(accessed * 10**9 + accessed_ns, changed * 10**9 + changed_ns))
        return struct.pack("<Q2I", 0, 0, 0) + _attributes(path.lstat())

    def _mkdir(self, node: int, data: bytes) -> bytes:
        path = self._paths[node] / _name(data[8:])
        path.mkdir(struct.unpack_from("<I", data)[0])
        return self._entry(path)

    def _unlink(self, node: int, data: bytes) -> bytes:
        (self._paths[node] / _name(data)).unlink()
        return b""

    def _rmdir(self, node: int, data: bytes) -> bytes:
        (self._paths[node] / _name(data)).rmdir()
        return b""

    def _rename(self, node: int, data: bytes, skip: int = 8) -> bytes:
        old, new = data[skip:].split(b"\0")[:2]
        before = self._paths[node] / os.fsdecode(old)
        after = self._paths[struct.unpack_from("<Q", data)[0]] / os.fsdecode(new)
        before.replace(after)
        for path, number in list(self._numbers.items()):
            if path.is_relative_to(before):
                del self._numbers[path]
                self._paths[number] = after / path.relative_to(before)
                self._numbers[self._paths[number]] = number
        return b""

    def _rename2(self, node: int, data: bytes) -> bytes:
        return self._rename(node, data, 16)

    def _open(self, node: int, data: bytes) -> bytes:
        flags = struct.unpack_from("<I", data)[0] & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        return struct.pack("<Q2I", os.open(self._paths[node], flags), _NO_CACHE, 0)

    def _create(self, node: int, data: bytes) -> bytes:
        flags, mode = struct.unpack_from("<2I", data)
        path = self._paths[node] / _name(data[16:])
        descriptor = os.open(path, flags | os.O_CREAT, stat.S_IMODE(mode))
        return self._entry(path) + struct.pack("<Q2I", descriptor, _NO_CACHE, 0)

    def _read(self, _: int, data: bytes) -> bytes:
        descriptor, offset, size = struct.unpack_from("<2QI", data)
        return os.pread(descriptor, size, offset)

    def _write(self, _: int, data: bytes) -> bytes:
        descriptor, offset, size = struct.unpack_from("<2QI", data)
        return struct.pack("<2I", os.pwrite(descriptor, data[40 : 40 + size], offset), 0)

    def _release(self, _: int, data: bytes) -> bytes:
        os.close(struct.unpack_from("<Q", data)[0])
        return b""

    def _flush(self, _: int, __: bytes) -> bytes:
        return b""

    _fsync = _fsyncdir = _access = _flush

    def _statfs(self, _: int, __: bytes) -> bytes:
        found = os.statvfs(self._paths[1])
        sizes = (found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
        return struct.pack("<5Q10I", *sizes, found.f_bsize, 255, found.f_frsize, *[0] * 7)

    def _opendir(self, node: int, _: bytes) -> bytes:
        number = max(self._listed, default=0) + 1
        found = b""
        for inode, name in enumerate(
            map(os.fsencode, sorted(path.name for path in self._paths[node].iterdir())), 1
        ):
            length = 24 + len(name)
            end = len(found) + length + -length % 8  # where the next one begins
            found += struct.pack("<2Q2I", inode, end, len(name), 0) + name + bytes(-length % 8)
        self._listed[number] = found
        return struct.pack("<Q2I", number, 0, 0)

    def _readdir(self, _: int, data: bytes) -> bytes:
        number, offset, size = struct.unpack_from("<2QI", data)
        found, end = self._listed[number][offset:], 0
        while end < len(found):
            length = 24 + struct.unpack_from("<I", found, end + 16)[0]
            if end + length + (-length % 8) > size:
                break
            end += length + (-length % 8)
        return found[:end]

    def _releasedir(self, _: int, data: bytes) -> bytes:
        del self._listed[struct.unpack_from("<Q", data)[0]]
        return b""


def main() -> None:
    folder, place = Path(sys.argv[1]), sys.argv[2]
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"gpucache-test", os.fsencode(place), b"fuse", _NODEV_NOSUID, options.encode()) != 0:
        sys.exit(f"it cannot be mounted: {os.strerror(ctypes.get_errno())}")
    print("ready", flush=True)  # noqa: T201 - the parent waits for it
    shown, failing, error = Shown(folder), "", 0
    while True:
        ready, _, _ = select.select([device, sys.stdin], [], [])
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if not line:
                return  # the process that mounted it has gone
            failing, _, name = line.strip().partition(" ")
            error = getattr(errno, name) if name else 0
            print("so be it", flush=True)  # noqa: T201
            continue
        try:
            request = os.read(device, _BUFFER_BYTES)
        except OSError as end:
            if end.errno == errno.ENODEV:
                return  # unmounted
            continue
        _, opcode, unique, node, *_ = _HEADER.unpack_from(request)
        operation = _OPERATIONS.get(opcode, "unknown")
        if operation in _SILENT:
            continue
        fails = failing in (operation, "ALL") and operation not in _NEVER_FAIL
        number, answer = (error, b"") if fails else _answered(shown, operation, node, request)
        with suppress(OSError):  # the process that asked has gone
            os.write(device, _REPLY.pack(_REPLY.size + len(answer), -number, unique) + answer)


def _answered(shown: Shown, operation: str, node: int, request: bytes) -> tuple[int, bytes]:
    """The number of an error, and the reply to an operation."""
    try:
        return 0, shown.answer(operation, node, request[_HEADER.size :])
    except OSError as refused:
        return refused.errno or errno.EIO, b""


if __name__ == "__main__":
    main()
