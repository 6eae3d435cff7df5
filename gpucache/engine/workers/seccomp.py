"""The kernel reports every file that a process opens for reading, and another process answers.

Owns the filter and the system calls; must not know what the files are for. Needs Linux 5.7 on x86-64 or
aarch64 and no privilege. Sources: seccomp(2), seccomp_unotify(2), process_vm_readv(2), and the kernel's
headers linux/seccomp.h, linux/filter.h and linux/audit.h.

Not reported: directories, paths opened with ``O_PATH``, files that are opened for writing, too, and the opens
of 32-bit processes.
"""

import ctypes
import errno
import os
import platform
import select
import struct
import sys
from collections.abc import Callable
from pathlib import Path

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
        raise OSError("opens cannot be told on this system")
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
    """The filter in classic BPF; after each test, how many instructions to skip for yes and for no."""
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
    """The answering side: lets every open go on, and reports its path."""

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
        """Ask the kernel; False if the process did not wait, because it was killed or got a signal."""
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
