"""The files that a compiler really opens: the kernel reports them to the process that started the worker.

A worker puts a seccomp filter on itself before its first compile. Each open of its threads and children then
waits until a thread of the worker's parent has written the path into a file in memory that both have open.
The worker reads that file when the compile has ended. If the kernel refuses the filter, opens are not seen,
and everything else works as usual.

The parent answers because Yama lets only ancestors read another process, and because a thread of the worker
could not: CPython holds its lock during some opens, such as that of ``dlopen``. The worker dies with its
parent, and ends itself when it finds that opens are not answered, as they fail then.

It costs 10 us for each open, and several times that on a loaded machine: some 2 % of a compile of CUB, which
opens 2,400 files, and of a compile by PoCL, which runs a linker and a Python. Tried and rejected: ``strace -f
--seccomp-bpf``, at 6 % of a compile of CUB, as it is not installed everywhere and many containers refuse it.
Rejected without a trial: inotify, which sees only directories that are known beforehand; fanotify, which
needs a privilege; a preloaded library, which is native code and misses direct system calls. None of these,
and not the filter, sees a file that was opened before the compile began, one that another process reads for
the compiler, or a question about a name without an open, such as whether it exists.

The kernel's notices come through a seccomp filter, whose descriptor another process reads.
"""

import ctypes
import errno
import os
import platform
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

R = TypeVar("R")

UNANSWERED = 213
"""The exit status of a worker whose watcher is gone, so that it can open no file."""
_MARK = os.fsencode(os.devnull)


@contextmanager
def watching() -> Iterator[socket.socket | None]:
    """A socket at which workers that are started meanwhile ask to be watched; None if that is impossible.

    The watching threads receive the signals that the calling thread receives now.
    """
    if sys.platform != "linux":
        yield None
        return
    try:
        inside, outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError:
        yield None
        return
    with inside, outside:
        admitting = threading.Thread(target=_admit, args=(inside,), daemon=True)
        try:
            admitting.start()
        except RuntimeError:  # no thread can be started
            yield None
            return
        try:
            yield outside
        finally:
            inside.shutdown(socket.SHUT_RDWR)
            admitting.join()


def _admit(inside: socket.socket) -> None:
    """Give each worker that connects its own thread: if a worker is killed, its thread may wait for ever."""
    room = socket.CMSG_SPACE(2 * 4)
    while True:
        asked, handed, _, _ = inside.recvmsg(1, room, socket.MSG_CMSG_CLOEXEC)
        if not asked:
            return
        descriptors = memoryview(handed[0][2]).cast("i").tolist()
        try:
            threading.Thread(target=_watch, args=descriptors, daemon=True).start()
        except RuntimeError:  # no thread can be started
            _close(*descriptors)


def _watch(listener: int, log: int) -> None:
    """Write down each path that a worker and its children open, once, until all of them have ended.

    If this ends before them, their opens fail.
    """
    written: set[bytes] = set()

    def write(path: bytes) -> None:
        if path == _MARK:
            written.clear()
        if path not in written:
            written.add(path)
            os.write(log, path + b"\0")

    try:
        with suppress(OSError):
            Listener(listener).serve(write)
    finally:
        _close(listener, log)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class OpenedFiles:
    """In a worker: the files that its compiles open, if its parent watches."""

    def __init__(self) -> None:
        self._door: socket.socket | None = None
        self._own: tuple[str, ...] = ()
        self._log: int | None = None

    def ask_at(self, door: socket.socket | None, place: str) -> None:
        """Be watched from the next compile on; files in ``place`` are this process's own and left out."""
        self._door, self._own = door, (f"{place}/", f"{os.path.realpath(place)}/")

    def watch(self, function: Callable[[], R]) -> tuple[R, frozenset[str] | None]:
        """A function's result, and the absolute paths that were opened for reading, also without success.

        None in place of the paths if the process is not watched.
        """
        if self._door is not None:
            self._log = _install(self._door)
            self._door = None
        if self._log is None:
            return function(), None
        os.ftruncate(self._log, 0)
        os.lseek(self._log, 0, os.SEEK_SET)  # where the watching thread writes, too
        _require_answer()
        try:
            result = function()
        finally:
            _require_answer()
        told = _told(self._log)
        return result, told and frozenset(path for path in told if not path.startswith(self._own))


def _install(door: socket.socket) -> int | None:
    """List the opens of this process in a file from now on, and return it; None if the filter is refused."""
    try:
        log = os.memfd_create("opened")
    except OSError:
        return None
    try:
        listener = install()
    except OSError:
        os.close(log)
        return None
    with suppress(OSError):  # of a parent that is going
        socket.send_fds(door, [b"?"], [listener, log])
    os.close(listener)
    return log


def _require_answer() -> None:
    """Open a file, and end this process if the open is not answered, as its compile would fail of that.

    This open also makes the watching thread list paths again that it listed before.
    """
    try:
        os.close(os.open(_MARK, os.O_RDONLY))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            os._exit(UNANSWERED)


def _told(log: int) -> frozenset[str] | None:
    """All listed paths; None if the list, or a path in it, could not be read."""
    paths = os.pread(log, os.fstat(log).st_size, 0).split(b"\0")[:-1]
    seen = frozenset(map(os.fsdecode, paths))
    return seen if os.fsdecode(_MARK) in seen and "" not in seen else None


OPENED_FILES = OpenedFiles()


if sys.platform == "linux":
    import fcntl

# For each machine its audit architecture and its numbers of seccomp, open, openat and openat2; openat in
# place of open on a machine without that.
_MACHINES = {
    "x86_64": (0xC000003E, 317, 2, 257, 437),
    "aarch64": (0xC00000B7, 277, 56, 56, 437),
}
_SET_MODE_FILTER = 1
# A kernel that knows TSYNC_ESRCH can also CONTINUE. SPEC_ALLOW: older ones would slow the process down.
_TSYNC, _SPEC_ALLOW, _NEW_LISTENER, _TSYNC_ESRCH = 1, 4, 8, 16
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000
_PR_SET_NO_NEW_PRIVS = 38
_CONTINUE = 1
_AT_FDCWD = -100
_PAGE_BYTES = 4096

_LOAD, _EQUAL, _ANY_BIT, _GO, _RETURN = 0x20, 0x15, 0x45, 0x05, 0x06
_NUMBER, _ARCHITECTURE, _SECOND, _THIRD = 0, 4, 24, 32
_INSTRUCTION = struct.Struct("=HBBI")
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
_RECEIVE = 0xC0002100 | _NOTIFICATION.size << 16
_SEND = 0xC0002101 | _RESPONSE.size << 16


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


class _Span(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


def install() -> int:
    """Make every open of this process, its threads and its children wait until it is answered.

    Returns the descriptor from which opens are read. They wait while no process reads it, and fail with
    ENOSYS once it is closed. Raises OSError if the kernel or a container refuses.
    """
    if sys.platform != "linux" or sys.maxsize < 2**32 or platform.machine() not in _MACHINES:
        raise OSError("opened files cannot be seen on this system")
    architecture, seccomp, *opens = _MACHINES[platform.machine()]
    program = _program(architecture, *opens)
    given = _Filter(len(program) // _INSTRUCTION.size, program)
    library = ctypes.CDLL(None, use_errno=True)
    flags = _TSYNC | _SPEC_ALLOW | _NEW_LISTENER | _TSYNC_ESRCH
    words = (*map(ctypes.c_ulong, (seccomp, _SET_MODE_FILTER, flags)), ctypes.byref(given))
    if library.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), "no_new_privs is refused")
    listener: int = library.syscall(*words)
    if listener < 0:
        raise OSError(ctypes.get_errno(), "a seccomp filter with a listener is refused")
    return listener


def _program(architecture: int, open_: int, openat: int, openat2: int) -> bytes:
    """The filter in classic BPF; each test has the number of instructions to skip for yes and for no."""
    silent = os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY | os.O_PATH
    return b"".join(
        _INSTRUCTION.pack(*line)
        for line in (
            (_LOAD, 0, 0, _ARCHITECTURE),
            (_EQUAL, 0, 9, architecture),
            (_LOAD, 0, 0, _NUMBER),
            (_EQUAL, 6, 0, openat2),
            (_EQUAL, 3, 0, openat),
            (_EQUAL, 0, 5, open_),
            (_LOAD, 0, 0, _SECOND),
            (_GO, 0, 0, 1),
            (_LOAD, 0, 0, _THIRD),
            (_ANY_BIT, 1, 0, silent),
            (_RETURN, 0, 0, _NOTIFY),
            (_RETURN, 0, 0, _ALLOW),
        )
    )


class Listener:
    """The watching side of a filter: allows every open and reports its path."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._open = _MACHINES[platform.machine()][2]
        self._read = ctypes.PyDLL(None).process_vm_readv  # PyDLL keeps the lock, as this call never waits
        self._path = ctypes.create_string_buffer(2 * _PAGE_BYTES)
        self._here = (_Span * 1)(_Span(ctypes.addressof(self._path), len(self._path)))
        # The rest of the path's page, and the next page, which is not read if it does not exist.
        self._there = (_Span * 2)(_Span(0, 0), _Span(0, _PAGE_BYTES))

    def serve(self, tell: Callable[[bytes], object]) -> None:
        """Call ``tell`` with the absolute path of each open, then let it go on, until all processes ended.

        The path is empty if it cannot be read. Raises OSError if the kernel cannot be queried.
        """
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        empty, notification = bytes(_NOTIFICATION.size), bytearray(_NOTIFICATION.size)
        response = bytearray(_RESPONSE.pack(0, 0, 0, _CONTINUE))
        while poll.poll()[0][1] & select.POLLIN:
            notification[:] = empty
            if self._control(_RECEIVE, notification):
                response[:8] = notification[:8]
                tell(self._absolute(notification))
                self._control(_SEND, response)

    def _control(self, request: int, words: bytearray) -> bool:
        """Call the kernel about a waiting open; False if its process waits no more, as after a signal."""
        try:
            fcntl.ioctl(self._descriptor, request, words)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return False
        return True

    def _absolute(self, notification: bytearray) -> bytes:
        _, process, _, call, _, _, first, second, *_ = _NOTIFICATION.unpack(notification)
        folder, at = (_AT_FDCWD, first) if call == self._open else (first, second)
        rest, page = self._there
        rest.start, rest.length = at, _PAGE_BYTES - at % _PAGE_BYTES
        page.start = at + rest.length
        if self._read(process, self._here, 1, self._there, 2, 0) <= 0:
            return b""
        path = self._path.value
        if path.startswith(b"/"):
            return path
        number = ctypes.c_int(folder).value
        link = f"/proc/{process}/cwd" if number == _AT_FDCWD else f"/proc/{process}/fd/{number}"
        try:
            return os.fsencode(Path(link).readlink()) + b"/" + path
        except OSError:
            return b""
