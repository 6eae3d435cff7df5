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
"""

import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from gpucache.engine.workers import seccomp

R = TypeVar("R")

UNANSWERED = 213
"""The exit status of a worker whose opens get no answers any more."""
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
            seccomp.Listener(listener).serve(write)
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
    """The file in which the opens of this process are listed from now on; None if the filter is refused."""
    try:
        log = os.memfd_create("opened")
    except OSError:
        return None
    try:
        listener = seccomp.install()
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
    """All paths that were listed; None if one of them, or none at all, could be read."""
    paths = os.pread(log, os.fstat(log).st_size, 0).split(b"\0")[:-1]
    seen = frozenset(map(os.fsdecode, paths))
    return seen if os.fsdecode(_MARK) in seen and "" not in seen else None


OPENED_FILES = OpenedFiles()
"""The instance for this process."""
